// Sums of additive kernels over words, for all pairs of rows: launched by `pair_sums` of bagwise/gpu/kernels.py.
template<typename T> __device__ T intersection(T x, T z) { return x < z ? x : z; }

template<typename T> __device__ T chi2(T x, T z) {
    T total = x + z;
    return 2 * x * (z / (total > 0 ? total : 1));
}

template<typename T> __device__ T jensen_shannon(T x, T z) {
    T low = x < z ? x : z, high = x < z ? z : x;
    T ratio = low / (high > 0 ? high : 1);
    return ((low + high) * log1p(ratio) - (ratio > 0 ? low * log(ratio) : 0)) * (T)0.72134752044448170368;
}

// 64 x 64 pairs of rows by 16 x 16 threads with 4 x 4 pairs each, 16 words at a time in shared memory. Sums of 16 words
// are of type T, all others double.
template<typename T, T word(T, T)>
__global__ void pair_sums(const T* X, const T* Z, long long n, long long m, long long n_words, T* out) {
    __shared__ T x[16][65];
    __shared__ T z[16][65];
    long long first = (long long)blockIdx.y * 64, second = (long long)blockIdx.x * 64;
    int row = threadIdx.y, column = threadIdx.x, thread = threadIdx.y * 16 + threadIdx.x;
    double totals[4][4] = {};
    for (long long w = 0; w < n_words; w += 16) {
        for (int l = thread; l < 1024; l += 256) {
            int k = l % 16, r = l / 16;
            bool inside = w + k < n_words;
            x[k][r] = inside && first + r < n ? X[(first + r) * n_words + w + k] : 0;
            z[k][r] = inside && second + r < m ? Z[(second + r) * n_words + w + k] : 0;
        }
        __syncthreads();
        T sums[4][4] = {};
        #pragma unroll
        for (int k = 0; k < 16; k++) {
            T a[4], b[4];
            #pragma unroll
            for (int i = 0; i < 4; i++) { a[i] = x[k][row + 16 * i]; b[i] = z[k][column + 16 * i]; }
            #pragma unroll
            for (int i = 0; i < 4; i++)
                #pragma unroll
                for (int j = 0; j < 4; j++) sums[i][j] += word(a[i], b[j]);
        }
        for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) totals[i][j] += (double)sums[i][j];
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            long long r = first + row + 16 * i, c = second + column + 16 * j;
            if (r < n && c < m) out[r * m + c] = (T)totals[i][j];
        }
}
