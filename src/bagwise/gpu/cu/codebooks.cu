// Kernels of codebooks: each is launched by a function of bagwise/gpu/codebook_kernels.py, which says what it computes.
// a warp for each row
template<typename T>
__global__ void nearest(const T* found, const T* norms, long long n, int n_words, bool bipolar,
                        long long* words, signed char* signs) {
    long long i = (long long)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= n) return;
    const T* row = found + i * n_words;
    int lane = threadIdx.x % 32, word = n_words;
    T best = 0;
    #pragma unroll 8
    for (int k = lane; k < n_words; k += 32) {
        T value = bipolar ? norms[k] - abs(row[k]) : norms[k] + row[k];
        if (word == n_words || value < best) { best = value; word = k; }
    }
    for (int half = 16; half > 0; half >>= 1) {
        T value = __shfl_down_sync(0xffffffff, best, half);
        int other = __shfl_down_sync(0xffffffff, word, half);
        bool nearer = value < best || (value == best && other < word);
        if (other < n_words && (word == n_words || nearer)) { best = value; word = other; }
    }
    if (lane == 0) {
        words[i] = word;
        signs[i] = bipolar && row[word] > 0 ? -1 : 1;
    }
}

template<typename T>
__global__ void least_distances(const T* products, long long n, int n_others, const double* others,
                                const double* squares, bool bipolar, double* out) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double least = 0;
    for (int k = 0; k < n_others; k++) {
        double product = products[i * n_others + k];
        double value = others[k] - 2.0 * (bipolar ? fabs(product) : product);
        if (k == 0 || value < least) least = value;
    }
    out[i] = fmax(squares[i] + least, 0.0);
}

template<typename T, typename Bits>
__global__ void row_hashes(const T* values, long long n, long long width, unsigned long long* hashes) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const Bits* bits = (const Bits*)values;
    unsigned long long state = 0x9E3779B97F4A7C15ull;
    for (long long k = 0; k < width; k++) {
        if (values[i * width + k] != 0) state ^= bits[i * width + k];
        state *= 0xBF58476D1CE4E5B9ull;
        state ^= state >> 29;
    }
    hashes[i] = state;
}

template<typename T>
__global__ void reduce_segments(const T* values, long long width, const double* factors, const long long* order,
                                const long long* begins, const long long* ends, long long n_segments, bool maximum,
                                double* out) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_segments * width) return;
    long long segment = i / width, column = i % width;
    double total = 0;
    for (long long p = begins[segment]; p < ends[segment]; p++) {
        long long row = order[p];
        double value = factors[row] * (double)values[row * width + column];
        total = maximum ? max(total, value) : total + value;
    }
    out[i] = total;
}
