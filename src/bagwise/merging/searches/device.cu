// What the searches on a CUDA device share (device_ratios.cu, device_sums.cu, which follow in the same source).
//
// Persistent kernels merge level after level without returning to the host. The words are divided among the blocks:
// block q has the slots q * share .. (q + 1) * share - 1, keeps what is remembered of their rows in its shared memory,
// and handles their columns when a row is formed or compared. As on the CPU a pair belongs to the row of the word that
// changed last, row i has the pair (i, j) if order[j] < order[i], and only the entry in that row is up to date: a merge
// writes one row and no column.
//
// A level takes one exchange between all blocks, and one more where rows must be scanned: every block writes a record
// and counts itself as arrived, waits until all have, reads all records, and comes to the same decision as all others.
// Records are kept twice, by the parity of the exchange: a block writes exchange e + 2 after it has read e + 1 of all
// blocks, which have read e by then.
//
// tests/device_mirror.py follows these steps in NumPy.

#define INF __longlong_as_double(0x7ff0000000000000LL)
#define NO_KEY 0x7fffffffffffffffLL
#define DEAD 0x7fffffff
#define WARP 32
#define ALL_LANES 0xffffffffu
#define MOST_WARPS 32

typedef long long rank_t;

// A pair: its value, its place among equals, twice its entries of A and B, its owner i and the other slot j.
struct Pair {
    double value;
    rank_t key;
    double x, y;
    int i, j, order_i, order_j;
};

__device__ __forceinline__ Pair no_pair() {
    Pair pair;
    pair.value = -INF;
    pair.key = NO_KEY;
    pair.x = pair.y = 0.0;
    pair.i = pair.j = pair.order_i = pair.order_j = -1;
    return pair;
}

// The pair with the lowest first word, then the lowest second word, comes first among equals.
__device__ __forceinline__ rank_t pair_key(int i, int j) {
    return ((rank_t)min(i, j) << 32) | (rank_t)max(i, j);
}

__device__ __forceinline__ bool better(double value, rank_t key, double other, rank_t other_key) {
    return value > other || (value == other && key < other_key);
}

__device__ __forceinline__ void take_better(Pair &best, const Pair &other) {
    if (better(other.value, other.key, best.value, best.key)) best = other;
}

__device__ __forceinline__ int load_acquire(const int *place) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
    return value;
}

__device__ __forceinline__ void add_release(int *place, int value) {
    asm volatile("red.release.gpu.global.add.s32 [%0], %1;" : : "l"(place), "r"(value) : "memory");
}

// Unsigned numbers in the order of floating-point ones; -0 is 0.
__device__ __forceinline__ unsigned long long ordered(double value) {
    long long bits = __double_as_longlong(value + 0.0);
    return (unsigned long long)(bits ^ ((bits >> 63) | (long long)0x8000000000000000LL));
}

__device__ __forceinline__ double unordered(unsigned long long bits) {
    long long sign = (bits >> 63) ? (long long)0x8000000000000000LL : -1LL;
    return __longlong_as_double((long long)bits ^ sign);
}

// The largest number over the lanes of a warp, in all lanes.
__device__ __forceinline__ unsigned long long warp_largest(unsigned long long value) {
#if __CUDA_ARCH__ >= 800
    unsigned upper = (unsigned)(value >> 32);
    unsigned most = __reduce_max_sync(ALL_LANES, upper);
    unsigned lower = __reduce_max_sync(ALL_LANES, upper == most ? (unsigned)value : 0u);
    return ((unsigned long long)most << 32) | lower;
#else
    for (int step = WARP / 2; step > 0; step /= 2) {
        unsigned long long other = __shfl_xor_sync(ALL_LANES, value, step);
        value = other > value ? other : value;
    }
    return value;
#endif
}

__device__ __forceinline__ double warp_max(double value) { return unordered(warp_largest(ordered(value))); }

__device__ __forceinline__ double warp_sum(double value) {
    for (int step = WARP / 2; step > 0; step /= 2) value += __shfl_xor_sync(ALL_LANES, value, step);
    return value;
}

// The lane of a warp with the best value, of equals the lowest key; -1 if none has a key.
__device__ __forceinline__ int warp_best_lane(double value, rank_t key) {
    unsigned long long bits = ordered(value);
    unsigned long long most = warp_largest(key == NO_KEY ? 0ull : bits);
    unsigned who = __ballot_sync(ALL_LANES, key != NO_KEY && bits == most);
    if (who & (who - 1)) {
        bool equal = (who >> (threadIdx.x % WARP)) & 1;
        unsigned long long lowest = warp_largest(equal ? ~(unsigned long long)key : 0ull);
        who = __ballot_sync(ALL_LANES, equal && ~(unsigned long long)key == lowest);
    }
    return __ffs(who) - 1;
}

// The best value and key over the lanes of a warp, in all lanes.
__device__ __forceinline__ void warp_best(double &value, rank_t &key) {
    int lane = max(warp_best_lane(value, key), 0);
    value = __shfl_sync(ALL_LANES, value, lane);
    key = __shfl_sync(ALL_LANES, key, lane);
}

// The best pair over the lanes of a warp, written to `out` by the lane that has it.
__device__ __forceinline__ void warp_best_pair(const Pair &pair, Pair *out) {
    if (max(warp_best_lane(pair.value, pair.key), 0) == threadIdx.x % WARP) *out = pair;
}

template <class Record>
__device__ __forceinline__ void copy_record(Record *out, const Record *in) {
    static_assert(sizeof(Record) % 16 == 0, "records are copied 16 bytes at a time");
    const double2 *from = (const double2 *)in;
    double2 *to = (double2 *)out;
#pragma unroll
    for (int k = 0; k < sizeof(Record) / 16; ++k) to[k] = __ldcg(from + k);
}

// All blocks exchange their records; `result`, in shared memory, is the combination of all of them afterwards.
//
// `mine` is a thread's part, of which the first n_active warps have some; `scratch` one record for each warp. `look` is
// called with the number and the record of every block.
template <class Record, class Look>
__device__ void exchange(
    Record *records, int *arrived, int number, const Record &mine, int n_active, Record *scratch, Record *result,
    Look look
) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, n_blocks = gridDim.x;
    records += (number & 1) * n_blocks;
    if (warp < n_active) mine.combine(scratch + warp);
    __syncthreads();
    if (warp == 0) {
        Record part = Record::nothing();
        if (lane < n_active) part = scratch[lane];
        part.combine(records + blockIdx.x);
        __syncwarp();
        if (lane == 0) add_release(arrived, 1);
    }
    __syncthreads();
    int n_readers = (n_blocks + WARP - 1) / WARP;
    if (warp < n_readers) {
        if (lane == 0)
            while (load_acquire(arrived) < (number + 1) * n_blocks) {}
        __syncwarp();
        Record part = Record::nothing();
        if (threadIdx.x < n_blocks) {
            copy_record(&part, records + threadIdx.x);
            look(threadIdx.x, part);
        }
        part.combine(n_readers == 1 ? result : scratch + warp);
    }
    __syncthreads();
    if (n_readers == 1) return;
    if (warp == 0) {
        Record part = Record::nothing();
        if (lane < n_readers) part = scratch[lane];
        part.combine(result);
    }
    __syncthreads();
}
