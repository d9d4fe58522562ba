// The E-step of latent Dirichlet allocation: launched by bagwise/gpu/topics.py.
// log(x + 8) - digamma(x), as in bagwise.topics._kernels
__device__ double below_log(double x) {
    double q = x * (x + 7.0);
    double outer = q * (q + 6.0), inner = (q + 10.0) * (q + 12.0);
    double below = (2.0 * x + 7.0) * ((2.0 * q + 6.0) * inner + (2.0 * q + 22.0) * outer) / (outer * inner);
    double r = 1.0 / (x + 8.0), t = r * r;
    double series = t * (1.0 / 12 - t * (1.0 / 120 - t * (1.0 / 252 - t * (1.0 / 240 - t * (1.0 / 132
        - t * (691.0 / 32760 - t / 12))))));
    return 0.5 * r + series + below;
}

__device__ double digamma(double x) { return log(x + 8.0) - below_log(x); }

// sum, or minimum, over a block of 128 threads; the same for all of them
__device__ double together(double value, bool least) {
    __shared__ double parts[128];
    parts[threadIdx.x] = value;
    for (int half = 64; half > 0; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) {
            double other = parts[threadIdx.x + half];
            parts[threadIdx.x] = least ? fmin(parts[threadIdx.x], other) : parts[threadIdx.x] + other;
        }
    }
    __syncthreads();
    double result = parts[0];
    __syncthreads();
    return result;
}

// a block for each document
extern "C" __global__ void infer(const long long* starts, const int* words, const double* counts, const double* weights,
                                 const double* alpha, double alpha_total, long long n_topics, bool warm, int max_iter,
                                 double tol, double* gammas, double* freshes, double* expecteds, double* ratios,
                                 double* bounds) {
    long long d = blockIdx.x, begin = starts[d], end = starts[d + 1];
    double* gamma = gammas + d * n_topics;
    double* expected = expecteds + d * n_topics;
    double* fresh = freshes + d * n_topics;
    double own = 0;
    for (long long j = begin + threadIdx.x; j < end; j += blockDim.x) own += counts[j];
    double length = together(own, false);
    for (long long k = threadIdx.x; k < n_topics; k += blockDim.x)
        if (begin == end) gamma[k] = alpha[k];
        else if (!warm) gamma[k] = alpha[k] + length / n_topics;
    double limit = tol * (alpha_total + length), least = 0;
    int lane = threadIdx.x % 32;
    for (int done = 0;; done++) {
        own = 1e300;
        for (long long k = threadIdx.x; k < n_topics; k += blockDim.x) own = fmin(own, below_log(gamma[k]));
        least = together(own, true);
        for (long long k = threadIdx.x; k < n_topics; k += blockDim.x)
            expected[k] = (gamma[k] + 8.0) * exp(least - below_log(gamma[k]));
        __syncthreads();
        if (begin == end) break;
        for (long long j = begin + threadIdx.x / 32; j < end; j += blockDim.x / 32) {
            const double* row = weights + words[j] * n_topics;
            double dot = 0;
            for (long long k = lane; k < n_topics; k += 32) dot += row[k] * expected[k];
            for (int half = 16; half > 0; half >>= 1) dot += __shfl_xor_sync(0xffffffff, dot, half);
            if (lane == 0) ratios[j] = counts[j] / dot;
        }
        __syncthreads();
        own = 0;
        for (long long k = threadIdx.x; k < n_topics; k += blockDim.x) {
            double sum = 0;
            for (long long j = begin; j < end; j++) sum += ratios[j] * weights[words[j] * n_topics + k];
            fresh[k] = alpha[k] + expected[k] * sum;
            own += fabs(fresh[k] - gamma[k]);
        }
        double change = together(own, false);
        // gamma stays what `expected` and `ratios` belong to
        if (done > 0 && (change <= limit || done >= max_iter)) break;
        for (long long k = threadIdx.x; k < n_topics; k += blockDim.x) gamma[k] = fresh[k];
    }
    if (begin == end) {
        if (threadIdx.x == 0) bounds[d] = 0;
        return;
    }
    own = 0;
    for (long long k = threadIdx.x; k < n_topics; k += blockDim.x) own += gamma[k];
    double total = together(own, false), psi = digamma(total);
    own = 0;
    for (long long k = threadIdx.x; k < n_topics; k += blockDim.x)
        if (gamma[k] != alpha[k])
            own += lgamma(gamma[k]) - lgamma(alpha[k]) + (alpha[k] - gamma[k]) * (digamma(gamma[k]) - psi);
    for (long long j = begin + threadIdx.x; j < end; j += blockDim.x)
        own += counts[j] * (log(counts[j] / ratios[j]) - least - psi);
    double bound = together(own, false);
    if (threadIdx.x == 0) bounds[d] = lgamma(alpha_total) - lgamma(total) + bound;
}

// a block of 32 topics x 8 shares of the documents for each word
extern "C" __global__ void expected_counts(const long long* starts, const int* documents, const long long* places,
                                           const double* ratios, const double* expected, const double* weights,
                                           long long n_topics, double* sums) {
    __shared__ double parts[8][32];
    long long v = blockIdx.x;
    for (long long first = 0; first < n_topics; first += 32) {
        long long k = first + threadIdx.x;
        double sum = 0;
        if (k < n_topics)
            for (long long p = starts[v] + threadIdx.y; p < starts[v + 1]; p += 8)
                sum += ratios[places[p]] * expected[documents[p] * n_topics + k];
        parts[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && k < n_topics) {
            for (int part = 1; part < 8; part++) sum += parts[part][threadIdx.x];
            sums[v * n_topics + k] = sum * weights[v * n_topics + k];
        }
        __syncthreads();
    }
}
