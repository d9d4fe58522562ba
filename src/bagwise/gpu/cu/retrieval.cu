// the k-th smallest number of each row, by a block for each; numbers as integers of the same order, of which eight
// bits are found at a time
extern "C" __global__ void kth_smallest(const double* values, long long n, long long k, double* out) {
    __shared__ unsigned int counts[256];
    __shared__ unsigned long long found, seen;
    __shared__ long long left;
    const double* row = values + (long long)blockIdx.x * n;
    if (threadIdx.x == 0) { found = 0; seen = 0; left = k; }
    for (int shift = 56; shift >= 0; shift -= 8) {
        counts[threadIdx.x] = 0;
        __syncthreads();
        for (long long i = threadIdx.x; i < n; i += blockDim.x) {
            unsigned long long bits = __double_as_longlong(row[i]);
            bits = bits >> 63 ? ~bits : bits | 0x8000000000000000ull;
            if ((bits & seen) == found) atomicAdd(&counts[(bits >> shift) & 255], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int digit = 0;
            while (digit < 255 && left > counts[digit]) left -= counts[digit++];
            found |= (unsigned long long)digit << shift;
            seen |= 255ull << shift;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = __longlong_as_double(found >> 63 ? found & 0x7fffffffffffffffull : ~found);
}
