// The searches for trace ratios and for mutual information on a CUDA device, and what they share.
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

// Trace ratios: the bound search over A and B, kept as pairs (A_ij, B_ij) of a d x d matrix, upper triangle at first.

#define ROUNDING (16.0 * 2.220446049250313e-16)
#define NEAR 128.0
#define STEEP 1e300
#define TINY 1e-12
#define RESUM_EVERY 256

struct Traces {
    double a, b, floor_a, floor_b;
};

__device__ __forceinline__ double ratio_of(const Traces &at, double x, double y) {
    double numerator = at.a + x, denominator = at.b + y;
    if (denominator <= at.floor_b) return numerator > at.floor_a ? INF : -INF;
    return numerator / denominator;
}

__device__ __forceinline__ double score_of(const Traces &at) {
    if (at.b <= at.floor_b) return at.a > at.floor_a ? INF : INF - INF;
    return at.a / at.b;
}

// What is remembered of the rows of a block, in shared memory, or of all rows, between two launches.
struct Rows {
    double *top_a, *top_b, *right, *left, *low, *high, *reach;
    int *order, *partner, *partner_order;
};

#define DOUBLES_A_ROW 7
#define BYTES_A_ROW (8 * DOUBLES_A_ROW + 12)

__device__ __forceinline__ Rows rows_at(char *memory, int n) {
    Rows rows;
    double *numbers = (double *)memory;
    rows.top_a = numbers;
    rows.top_b = numbers + n;
    rows.right = numbers + 2 * n;
    rows.left = numbers + 3 * n;
    rows.low = numbers + 4 * n;
    rows.high = numbers + 5 * n;
    rows.reach = numbers + 6 * n;
    rows.order = (int *)(numbers + DOUBLES_A_ROW * n);
    rows.partner = rows.order + n;
    rows.partner_order = rows.partner + n;
    return rows;
}

// Results of one block: the best pair of its rows, the best pair that its columns have with the row just formed and
// their range of 2 B, how far rows reach that are not known exactly, and its part of the diagonals.
struct __align__(16) RatioRecord {
    Pair own, formed;
    double low, high, reach, sum_a, sum_b, resum;

    static __device__ __forceinline__ RatioRecord nothing() {
        RatioRecord record;
        record.own = record.formed = no_pair();
        record.low = INF;
        record.high = record.reach = -INF;
        record.sum_a = record.sum_b = record.resum = 0.0;
        return record;
    }

    // Combine the records of the lanes of a warp.
    __device__ __forceinline__ void combine(RatioRecord *out) const {
        warp_best_pair(own, &out->own);
        warp_best_pair(formed, &out->formed);
        double least = -warp_max(-low), most = warp_max(high), furthest = warp_max(reach), total_a = 0.0, total_b = 0.0;
        bool sums = __any_sync(ALL_LANES, resum != 0.0);
        if (sums) {
            total_a = warp_sum(sum_a);
            total_b = warp_sum(sum_b);
        }
        if (threadIdx.x % WARP == 0) {
            out->low = least;
            out->high = most;
            out->reach = furthest;
            out->sum_a = total_a;
            out->sum_b = total_b;
            out->resum = sums;
        }
    }
};

static_assert(sizeof(RatioRecord) == 144, "searches/device.py allocates this");

struct NoLook {
    __device__ void operator()(int block, const RatioRecord &record) const {}
};

struct RatioScratch {
    RatioRecord records[MOST_WARPS], result;
    double low[MOST_WARPS], high[MOST_WARPS], value[MOST_WARPS];
    rank_t key[MOST_WARPS];
};

// Value of the top of row k at these traces, and how far the row can reach; see searches/_bound_kernels.py.
__device__ __forceinline__ void evaluate(const Rows &rows, int k, const Traces &at, double &value, double &reach) {
    double top_a = rows.top_a[k];
    value = reach = -INF;
    if (top_a == -INF) return;
    double top_b = rows.top_b[k], low = rows.low[k], high = rows.high[k];
    bool owned = rows.partner[k] >= 0;
    if (top_a == INF || at.b + low <= at.floor_b) {
        reach = INF;
        if (top_a != INF && owned) value = ratio_of(at, top_a, top_b);
        return;
    }
    double right = rows.right[k], left = rows.left[k];
    double denominator = at.b + top_b;
    double top = (at.a + top_a) / denominator;
    if (owned) {
        value = top;
        if (right < top && top < left) return;  // nothing in this row exceeds its top
    }
    double size = fabs(at.a) + fabs(top_a);
    reach = top + ROUNDING * (size + fabs(top) * at.b) / denominator;
    if (high > top_b) {
        double rise = right * (high - top_b), under = at.b + high;
        double end = (at.a + top_a + rise) / under;
        reach = fmax(reach, end + ROUNDING * (size + fabs(rise) + fabs(end) * at.b) / under);
    }
    if (low < top_b) {
        double fall = left * (top_b - low), under = at.b + low;
        double end = (at.a + top_a - fall) / under;
        reach = fmax(reach, end + ROUNDING * (size + fabs(fall) + fabs(end) * at.b) / under);
    }
}

__device__ __forceinline__ void remember(
    const Rows &rows, int k, double best, int partner, int partner_order, double x, double y, double low, double high,
    const Traces &at
) {
    rows.partner[k] = partner;
    rows.partner_order[k] = partner_order;
    rows.low[k] = low;
    rows.high[k] = high;
    rows.top_b[k] = y;
    rows.right[k] = rows.left[k] = best;
    rows.top_a[k] = low == INF ? -INF : at.b + low <= at.floor_b ? INF : x;
}

// Scan row i, which has d entries, with all threads of a block: the best pair, and the range of 2 B.
__device__ void scan_row(
    const double2 *row, const int *order, int start, int d, int own_order, const Traces &at, RatioScratch *scratch,
    double &best, int &partner, double &low, double &high
) {
    double value = -INF;
    rank_t key = NO_KEY;
    low = INF;
    high = -INF;
#pragma unroll 4
    for (int j = start + threadIdx.x; j < d; j += blockDim.x) {
        if (__ldcg(order + j) < own_order) {
            double2 entry = __ldcg(row + j);
            double y = 2.0 * entry.y;
            double found = ratio_of(at, 2.0 * entry.x, y);
            if (found > value) {  // j rises, so that the first of equals stays
                value = found;
                key = j;
            }
            low = fmin(low, y);
            high = fmax(high, y);
        }
    }
    warp_best(value, key);
    low = -warp_max(-low);
    high = warp_max(high);
    int warp = threadIdx.x / WARP, n_warps = blockDim.x / WARP;
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        scratch->value[warp] = value;
        scratch->key[warp] = key;
        scratch->low[warp] = low;
        scratch->high[warp] = high;
    }
    __syncthreads();
    for (int w = 0; w < n_warps; ++w) {
        if (better(scratch->value[w], scratch->key[w], value, key)) {
            value = scratch->value[w];
            key = scratch->key[w];
        }
        low = fmin(low, scratch->low[w]);
        high = fmax(high, scratch->high[w]);
    }
    best = value;
    partner = key == NO_KEY ? -1 : (int)key;
}

// Slopes from the top of a row to its other points, and the best ratio of a point that differs from the top.
__device__ void scan_slopes(
    const double2 *row, const int *order, int d, int own_order, const Traces &at, double top_a, double top_b,
    RatioScratch *scratch, double &right, double &left, double &second
) {
    right = second = -INF;
    left = INF;
#pragma unroll 4
    for (int j = threadIdx.x; j < d; j += blockDim.x) {
        if (__ldcg(order + j) < own_order) {
            double2 entry = __ldcg(row + j);
            double x = 2.0 * entry.x, y = 2.0 * entry.y;
            double dx = x - top_a, dy = y - top_b;
            if (dy > 0.0) right = fmax(right, dx / dy);
            if (dy < 0.0) left = fmin(left, dx / dy);
            if (dx != 0.0 || dy != 0.0) second = fmax(second, (at.a + x) / (at.b + y));
        }
    }
    right = warp_max(right);
    left = -warp_max(-left);
    second = warp_max(second);
    int warp = threadIdx.x / WARP, n_warps = blockDim.x / WARP;
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        scratch->high[warp] = right;
        scratch->low[warp] = left;
        scratch->value[warp] = second;
    }
    __syncthreads();
    for (int w = 0; w < n_warps; ++w) {
        right = fmax(right, scratch->high[w]);
        left = fmin(left, scratch->low[w]);
        second = fmax(second, scratch->value[w]);
    }
}

// First scan of all rows, which own the pairs to their right.
extern "C" __global__ void first_ratio_scan(const double2 *matrix, int d, const double *traces, char *memory) {
    __shared__ RatioScratch scratch;
    Rows rows = rows_at(memory, d);
    Traces at = {traces[0], traces[1], traces[2], traces[3]};
    for (int i = blockIdx.x; i < d; i += gridDim.x) {
        double best, low, high;
        int partner;
        const double2 *row = matrix + (size_t)i * d;
        scan_row(row, rows.order, i + 1, d, DEAD, at, &scratch, best, partner, low, high);
        if (threadIdx.x == 0) {
            double2 entry = partner < 0 ? make_double2(0.0, 0.0) : row[partner];
            int order = partner < 0 ? -1 : rows.order[partner];
            remember(rows, i, best, partner, order, 2.0 * entry.x, 2.0 * entry.y, low, high, at);
        }
    }
}

// The row of this block that reaches furthest; -1: none reaches `least`.
__device__ int furthest_row(const Rows &rows, int n_rows, double least, RatioScratch *scratch) {
    double value = -INF;
    rank_t key = NO_KEY;
    for (int k = threadIdx.x; k < n_rows; k += blockDim.x) {
        double reach = rows.reach[k];
        if (reach > value) {
            value = reach;
            key = k;
        }
    }
    warp_best(value, key);
    int warp = threadIdx.x / WARP, n_warps = blockDim.x / WARP;
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        scratch->value[warp] = value;
        scratch->key[warp] = key;
    }
    __syncthreads();
    for (int w = 0; w < n_warps; ++w)
        if (better(scratch->value[w], scratch->key[w], value, key)) {
            value = scratch->value[w];
            key = scratch->key[w];
        }
    return key != NO_KEY && value >= least ? (int)key : -1;
}

// Merge n_levels times. `counts` holds the merges done so far and the row scans; `traces` a, b and their floors.
extern "C" __global__ void __launch_bounds__(512, 1) merge_ratios(
    double2 *matrix, int d, int share, char *memory, double *traces, int *counts, RatioRecord *records, int *arrived,
    int n_levels, long long *pairs, double *scores
) {
    extern __shared__ char local[];
    __shared__ RatioScratch scratch;
    int first = blockIdx.x * share, n_rows = max(min(share, d - first), 0);
    Rows all = rows_at(memory, d), rows = rows_at(local, share);
    for (int k = threadIdx.x; k < n_rows; k += blockDim.x) {
        rows.top_a[k] = all.top_a[first + k];
        rows.top_b[k] = all.top_b[first + k];
        rows.right[k] = all.right[first + k];
        rows.left[k] = all.left[first + k];
        rows.low[k] = all.low[first + k];
        rows.high[k] = all.high[first + k];
        rows.order[k] = all.order[first + k];
        rows.partner[k] = all.partner[first + k];
        rows.partner_order[k] = all.partner_order[first + k];
        rows.reach[k] = -INF;
    }
    int n_active = min((n_rows + WARP - 1) / WARP, (int)blockDim.x / WARP);
    const RatioRecord &found = scratch.result;
    Traces at = {traces[0], traces[1], traces[2], traces[3]};
    int level = counts[0], scans = 0, number = 0;
    int s = -1, t = -1, order_s = 0, order_t = 0, new_order = 0;
    double x = 0.0, y = 0.0;
    for (int done = 0;; ++done) {
        // Form the row of the last merge, and look at what is remembered of all rows.
        RatioRecord mine = RatioRecord::nothing();
        bool resum = done > 0 && level % RESUM_EVERY == 0;
        mine.resum = resum;
        __syncthreads();
        for (int k = threadIdx.x; k < n_rows; k += blockDim.x) {
            int j = first + k, order = rows.order[k];
            if (j == t) {
                rows.order[k] = DEAD;
                rows.top_a[k] = -INF;
                rows.reach[k] = -INF;
                rows.partner[k] = -1;
                all.order[j] = DEAD;
                continue;
            }
            if (order == DEAD) continue;
            double2 *diagonal = matrix + (size_t)j * d + j;
            if (j == s) {
                double2 here = __ldcg(diagonal), other = __ldcg(matrix + (size_t)t * d + t);
                __stcg(diagonal, make_double2(here.x + other.x + x, here.y + other.y + y));
                rows.order[k] = new_order;
                rows.reach[k] = -INF;
                rows.top_a[k] = -INF;
                all.order[j] = new_order;
            } else {
                double2 from_s, from_t;
                if (s >= 0) {
                    from_s = __ldcg(order > order_s ? matrix + (size_t)j * d + s : matrix + (size_t)s * d + j);
                    from_t = __ldcg(order > order_t ? matrix + (size_t)j * d + t : matrix + (size_t)t * d + j);
                }
                if (rows.partner[k] == s || rows.partner[k] == t) rows.partner[k] = -1;
                double value, row_reach;
                evaluate(rows, k, at, value, row_reach);
                rows.reach[k] = row_reach;
                mine.reach = fmax(mine.reach, row_reach);
                if (value > -INF) {
                    Pair pair;
                    pair.value = value;
                    pair.i = j;
                    pair.j = rows.partner[k];
                    pair.key = pair_key(j, pair.j);
                    pair.x = rows.top_a[k];
                    pair.y = rows.top_b[k];
                    pair.order_i = order;
                    pair.order_j = rows.partner_order[k];
                    take_better(mine.own, pair);
                }
                if (s >= 0) {
                    double2 sum = make_double2(from_s.x + from_t.x, from_s.y + from_t.y);
                    __stcg(matrix + (size_t)s * d + j, sum);
                    Pair pair;
                    pair.x = 2.0 * sum.x;
                    pair.y = 2.0 * sum.y;
                    pair.value = ratio_of(at, pair.x, pair.y);
                    pair.key = pair.value > -INF ? j : NO_KEY;
                    pair.i = s;
                    pair.j = j;
                    pair.order_i = new_order;
                    pair.order_j = order;
                    take_better(mine.formed, pair);
                    mine.low = fmin(mine.low, pair.y);
                    mine.high = fmax(mine.high, pair.y);
                }
            }
            if (resum) {
                double2 here = __ldcg(diagonal);
                mine.sum_a += here.x;
                mine.sum_b += here.y;
            }
        }
        exchange(records, arrived, number++, mine, n_active, scratch.records, &scratch.result, NoLook());
        if (s >= first && s < first + n_rows && threadIdx.x == 0)
            remember(rows, s - first, found.formed.value, found.formed.j, found.formed.order_j, found.formed.x,
                     found.formed.y, found.low, found.high, at);
        if (done == n_levels) {
            if (resum) {
                at.a = found.sum_a;
                at.b = found.sum_b;
            }
            break;
        }
        double total_a = found.sum_a, total_b = found.sum_b;
        Pair best = found.own;
        if (found.formed.key != NO_KEY) {
            Pair formed = found.formed;
            formed.key = pair_key(s, formed.j);
            take_better(best, formed);
        }
        if (found.reach >= best.value && found.reach > -INF) {
            // Every block scans those of its rows that reach the best pair.
            RatioRecord mine = RatioRecord::nothing();
            double least = best.value;
            int k;
            while ((k = furthest_row(rows, n_rows, least, &scratch)) >= 0) {
                int i = first + k, partner;
                double value, row_low, row_high;
                const double2 *row = matrix + (size_t)i * d;
                int own_order = rows.order[k];
                scan_row(row, all.order, 0, d, own_order, at, &scratch, value, partner, row_low, row_high);
                double2 entry = partner < 0 ? make_double2(0.0, 0.0) : __ldcg(row + partner);
                int partner_order = partner < 0 ? -1 : __ldcg(all.order + partner);
                double top_a = 2.0 * entry.x, top_b = 2.0 * entry.y;
                bool sound = partner >= 0 && at.b + row_low > at.floor_b;
                double right = value, left = value;
                if (sound) {
                    double second;
                    scan_slopes(row, all.order, d, own_order, at, top_a, top_b, &scratch, right, left, second);
                    double doubt = NEAR * ROUNDING * (fabs(value) + (fabs(at.a) + fabs(top_a)) / (at.b + top_b));
                    bool apart = second < value - doubt;
                    right = apart ? 0.5 * (value + fmax(right, -STEEP)) : value;
                    left = apart ? 0.5 * (value + fmin(left, STEEP)) : value;
                }
                if (threadIdx.x == 0) {
                    remember(rows, k, value, partner, partner_order, top_a, top_b, row_low, row_high, at);
                    rows.right[k] = right;
                    rows.left[k] = left;
                    rows.reach[k] = -INF;
                }
                if (partner >= 0) {
                    Pair pair;
                    pair.value = value;
                    pair.key = pair_key(i, partner);
                    pair.x = top_a;
                    pair.y = top_b;
                    pair.i = i;
                    pair.j = partner;
                    pair.order_i = own_order;
                    pair.order_j = partner_order;
                    if (threadIdx.x == 0) take_better(mine.own, pair);
                    least = fmax(least, value);
                }
                ++scans;
                __syncthreads();
            }
            exchange(records, arrived, number++, mine, 1, scratch.records, &scratch.result, NoLook());
            take_better(best, found.own);
        }
        if (resum) {
            // after the comparisons, all of which were made at the same traces
            at.a = total_a;
            at.b = total_b;
        }
        if (best.key == NO_KEY) {
            // All pairs are 0/0: the two lowest live slots.
            for (int which = 0; which < 2; ++which) {
                __syncthreads();
                RatioRecord mine = RatioRecord::nothing();
                Pair &lowest = mine.own;
                for (int k = threadIdx.x; k < n_rows; k += blockDim.x)
                    if (rows.order[k] != DEAD && first + k != (which ? best.i : -1) && lowest.key == NO_KEY) {
                        lowest.value = 0.0;
                        lowest.key = lowest.i = first + k;
                        lowest.order_i = rows.order[k];
                    }
                exchange(records, arrived, number++, mine, n_active, scratch.records, &scratch.result, NoLook());
                if (which == 0) {
                    best.i = found.own.i;
                    best.order_i = found.own.order_i;
                } else {
                    best.j = found.own.i;
                    best.order_j = found.own.order_i;
                }
            }
            bool first_owns = best.order_j < best.order_i;
            int row = first_owns ? best.i : best.j, column = first_owns ? best.j : best.i;
            double2 entry = __ldcg(matrix + (size_t)row * d + column);
            best.x = 2.0 * entry.x;
            best.y = 2.0 * entry.y;
        }
        bool in_order = best.i < best.j;
        s = in_order ? best.i : best.j;
        t = in_order ? best.j : best.i;
        order_s = in_order ? best.order_i : best.order_j;
        order_t = in_order ? best.order_j : best.order_i;
        x = best.x;
        y = best.y;
        at.a += x;
        at.b += y;
        at.floor_a = fmax(at.floor_a, TINY * fabs(at.a));
        at.floor_b = fmax(at.floor_b, TINY * fabs(at.b));
        new_order = d + ++level;
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            pairs[2 * done] = s;
            pairs[2 * done + 1] = t;
            scores[done] = score_of(at);
        }
    }
    __syncthreads();
    for (int k = threadIdx.x; k < n_rows; k += blockDim.x) {
        all.top_a[first + k] = rows.top_a[k];
        all.top_b[first + k] = rows.top_b[k];
        all.right[first + k] = rows.right[k];
        all.left[first + k] = rows.left[k];
        all.low[first + k] = rows.low[k];
        all.high[first + k] = rows.high[k];
        all.order[first + k] = rows.order[k];
        all.partner[first + k] = rows.partner[k];
        all.partner_order[first + k] = rows.partner_order[k];
    }
    if (threadIdx.x == 0) {
        atomicAdd(counts + 1, scans);
        if (blockIdx.x == 0) {
            counts[0] = level;
            traces[0] = at.a;
            traces[1] = at.b;
            traces[2] = at.floor_a;
            traces[3] = at.floor_b;
        }
    }
}

// Additive scores: a row remembers its best partner, exactly while that exists, as an upper bound afterwards.
//
// `states` has one column a slot, which only its block reads; `nodes` one row for every word and every merge, which all
// blocks read: the merge of level l is the node d + l - 1, so that a group that is read is never written.

#define MOST_SCANNED 4
// Rows that have lost their partner are compared with the next merge if their bound is at most this times the loss.
#define EAGER 1.05
#define SMALLEST 2.2250738585072014e-308

__device__ __forceinline__ double x_log_x(double x) { return x * log(fmax(x, SMALLEST)); }

// Mutual information: g = Σ_c x_c log x_c - p log p with p = Σ_c x_c.
struct Information {
    static __device__ __forceinline__ double part(double x) { return x_log_x(x); }
    static __device__ __forceinline__ double rest(double mass) { return x_log_x(mass); }
};

struct Sums {
    double *gain, *term, *mass;
    int *order, *partner, *partner_order;
};

#define BYTES_A_SUM 36

__device__ __forceinline__ Sums sums_at(char *memory, int n) {
    Sums sums;
    sums.gain = (double *)memory;
    sums.term = sums.gain + n;
    sums.mass = sums.gain + 2 * n;
    sums.order = (int *)(sums.gain + 3 * n);
    sums.partner = sums.order + n;
    sums.partner_order = sums.partner + n;
    return sums;
}

struct __align__(16) Partner {
    double gain;
    int slot, order;
};

__device__ __forceinline__ Partner no_partner() {
    Partner partner;
    partner.gain = -INF;
    partner.slot = partner.order = -1;
    return partner;
}

__device__ __forceinline__ bool better(const Partner &one, const Partner &other) {
    return one.gain > other.gain || (one.gain == other.gain && (unsigned)one.slot < (unsigned)other.slot);
}

// The lane of a warp with the best partner; lane 0 where none has one.
__device__ __forceinline__ int warp_best_partner(const Partner &partner) {
    return max(warp_best_lane(partner.gain, partner.slot < 0 ? NO_KEY : partner.slot), 0);
}

// Results of one block: the best pair known exactly, the best of the rows that have lost their partner, its part of the
// score, and the best partners among its slots of the rows that are compared.
struct __align__(16) SumRecord {
    Pair own;
    Partner stale;
    double sum;
    int resum, n_found;
    Partner found[MOST_SCANNED];

    static __device__ __forceinline__ SumRecord nothing() {
        SumRecord record;
        record.own = no_pair();
        record.stale = no_partner();
        record.sum = 0.0;
        record.resum = record.n_found = 0;
#pragma unroll
        for (int r = 0; r < MOST_SCANNED; ++r) record.found[r] = no_partner();
        return record;
    }

    // Combine the records of the lanes of a warp.
    __device__ __forceinline__ void combine(SumRecord *out) const {
        int lane = threadIdx.x % WARP;
        warp_best_pair(own, &out->own);
        if (warp_best_partner(stale) == lane) out->stale = stale;
        int sums = __any_sync(ALL_LANES, resum), n = __any_sync(ALL_LANES, n_found > 1) ? MOST_SCANNED : 1;
        double total = sums ? warp_sum(sum) : 0.0;
#pragma unroll
        for (int r = 0; r < MOST_SCANNED; ++r)
            if (r < n && warp_best_partner(found[r]) == lane) out->found[r] = found[r];
        if (lane == 0) {
            out->sum = total;
            out->resum = sums;
            out->n_found = n;
        }
    }
};

static_assert(sizeof(SumRecord) == 144, "searches/device.py allocates this");

// Rows that are compared with all slots; their states are in shared memory as well.
struct Compared {
    double term[MOST_SCANNED], mass[MOST_SCANNED];
    int row[MOST_SCANNED], order[MOST_SCANNED], n;
};

struct SumScratch {
    SumRecord records[MOST_WARPS], result;
    Partner stale_of[MOST_WARPS * WARP];
    Compared compared;
};

struct LookAtStale {
    Partner *stale_of;
    __device__ void operator()(int block, const SumRecord &record) const { stale_of[block] = record.stale; }
};

// Mass and term of a state, by one warp.
template <class Score>
__device__ void describe(const double *state, int n_classes, double *mass_out, double *term_out) {
    int lane = threadIdx.x % WARP;
    double parts = 0.0, mass = 0.0;
    for (int c = lane; c < n_classes; c += WARP) {
        parts += Score::part(state[c]);
        mass += state[c];
    }
    parts = warp_sum(parts);
    mass = warp_sum(mass);
    if (lane == 0) {
        *mass_out = mass;
        *term_out = parts - Score::rest(mass);
    }
}

template <class Score>
__device__ void describe_compared(const double *chosen, int n_classes, Compared &compared) {
    for (int r = threadIdx.x / WARP; r < compared.n; r += blockDim.x / WARP)
        describe<Score>(chosen + r * n_classes, n_classes, compared.mass + r, compared.term + r);
}

// Gains of the first N compared rows with one slot; logarithms of several rows or classes are under way at a time.
template <class Score, int N>
__device__ __forceinline__ void gains_with(
    const double *states, size_t d, int n_classes, const double *chosen, const Compared &compared, int j, double term,
    double mass, double *gains
) {
    double parts[N];
#pragma unroll
    for (int r = 0; r < N; ++r) parts[r] = 0.0;
    const double *state = states + j;
#pragma unroll(4 / N)
    for (int c = 0; c < n_classes; ++c) {
        double x = state[c * d];
#pragma unroll
        for (int r = 0; r < N; ++r) parts[r] += Score::part(x + chosen[r * n_classes + c]);
    }
#pragma unroll
    for (int r = 0; r < N; ++r)
        gains[r] = parts[r] - Score::rest(mass + compared.mass[r]) - (term + compared.term[r]);
}

// First scan of all rows, which own the pairs to their right.
extern "C" __global__ void __launch_bounds__(256) first_sum_scan(
    const double *states, const double *nodes, int d, int n_classes, char *memory
) {
    extern __shared__ double chosen[];
    __shared__ SumScratch scratch;
    Sums sums = sums_at(memory, d);
    Compared &compared = scratch.compared;
    int warp = threadIdx.x / WARP, n_warps = blockDim.x / WARP;
    for (int start = blockIdx.x * MOST_SCANNED; start < d; start += gridDim.x * MOST_SCANNED) {
        __syncthreads();
        int n = min(MOST_SCANNED, d - start);
        if (threadIdx.x == 0) {
            compared.n = n;
            for (int r = 0; r < n; ++r) {
                compared.term[r] = sums.term[start + r];
                compared.mass[r] = sums.mass[start + r];
            }
        }
        for (int k = threadIdx.x; k < MOST_SCANNED * n_classes; k += blockDim.x)
            chosen[k] = k < n * n_classes ? nodes[(size_t)start * n_classes + k] : 0.0;
        __syncthreads();
        Partner best[MOST_SCANNED];
#pragma unroll
        for (int r = 0; r < MOST_SCANNED; ++r) best[r] = no_partner();
        for (int j = start + 1 + threadIdx.x; j < d; j += blockDim.x) {
            double gains[MOST_SCANNED];
            gains_with<Information, MOST_SCANNED>(
                states, d, n_classes, chosen, compared, j, sums.term[j], sums.mass[j], gains
            );
#pragma unroll
            for (int r = 0; r < MOST_SCANNED; ++r)
                if (r < n && j > start + r && gains[r] > best[r].gain) {
                    best[r].gain = gains[r];
                    best[r].slot = j;
                    best[r].order = d - j;
                }
        }
#pragma unroll
        for (int r = 0; r < MOST_SCANNED; ++r) {
            if (warp_best_partner(best[r]) == threadIdx.x % WARP) scratch.records[warp].found[r] = best[r];
        }
        __syncthreads();
        if (threadIdx.x < n) {
            int r = threadIdx.x;
            Partner winner = scratch.records[0].found[r];
            for (int w = 1; w < n_warps; ++w)
                if (better(scratch.records[w].found[r], winner)) winner = scratch.records[w].found[r];
            sums.gain[start + r] = winner.gain;
            sums.partner[start + r] = winner.slot;
            sums.partner_order[start + r] = winner.order;
        }
    }
}

// Term and mass of all words, summed in the same order as those of merged ones.
extern "C" __global__ void describe_words(const double *nodes, int d, int n_classes, char *memory) {
    Sums sums = sums_at(memory, d);
    int n_warps = gridDim.x * blockDim.x / WARP;
    for (int j = (blockIdx.x * blockDim.x + threadIdx.x) / WARP; j < d; j += n_warps)
        describe<Information>(nodes + (size_t)j * n_classes, n_classes, sums.mass + j, sums.term + j);
}

// Compare more rows: the stale ones of the largest bounds, at least `least`, at most one of each block, not s or t.
__device__ void choose_stale(SumScratch *scratch, int n, double least, int s, int t) {
    __syncthreads();
    if (threadIdx.x < WARP) {
        Compared &compared = scratch->compared;
        for (; n < MOST_SCANNED; ++n) {
            Partner best = no_partner();
            int from = -1;
            for (int q = threadIdx.x; q < gridDim.x; q += WARP) {
                Partner stale = scratch->stale_of[q];
                if (stale.gain >= least && stale.slot != s && stale.slot != t && better(stale, best)) {
                    best = stale;
                    from = q;
                }
            }
            if (!__any_sync(ALL_LANES, from >= 0)) break;
            if (warp_best_partner(best) == threadIdx.x) {
                scratch->stale_of[from] = no_partner();
                compared.row[n] = best.slot;
                compared.order[n] = best.order;
            }
            __syncwarp();
        }
        if (threadIdx.x == 0) compared.n = n;
    }
    __syncthreads();
}

__device__ __forceinline__ size_t node_of(int slot, int order, int d) { return order > d ? order - 1 : slot; }

// Compare n rows with the slot k of this block; returns whether it is one of them.
template <class Score>
__device__ __forceinline__ bool compare_slot(
    const double *states, int d, int n_classes, const double *chosen, const Compared &compared, int n, int j, int order,
    double term, double mass, SumRecord &mine
) {
    double gains[MOST_SCANNED];
    if (n == 1)
        gains_with<Score, 1>(states, d, n_classes, chosen, compared, j, term, mass, gains);
    else if (n == 2)
        gains_with<Score, 2>(states, d, n_classes, chosen, compared, j, term, mass, gains);
    else
        gains_with<Score, MOST_SCANNED>(states, d, n_classes, chosen, compared, j, term, mass, gains);
    bool is_compared = false;
#pragma unroll
    for (int r = 0; r < MOST_SCANNED; ++r)
        if (r < n) {
            is_compared |= j == compared.row[r];
            if (order < compared.order[r] && gains[r] > mine.found[r].gain) {
                mine.found[r].gain = gains[r];
                mine.found[r].slot = j;
                mine.found[r].order = order;
            }
        }
    return is_compared;
}

// Copy the states of compared rows from number `start` on to shared memory, zeros for those that are not there.
__device__ __forceinline__ void load_compared(
    const double *nodes, double *chosen, int n_classes, const Compared &compared, int start, int d
) {
    int n = compared.n, end = n > 2 ? MOST_SCANNED : n;
    for (int k = start * n_classes + threadIdx.x; k < end * n_classes; k += blockDim.x) {
        int r = k / n_classes;
        chosen[k] = r < n ? __ldcg(nodes + node_of(compared.row[r], compared.order[r], d) * n_classes + k - r * n_classes)
                          : 0.0;
    }
}

// Merge n_levels times. `counts` holds the merges done so far and the row scans; `score` the score and its offset.
extern "C" __global__ void __launch_bounds__(512, 1) merge_sums(
    double *states, double *nodes, int d, int n_classes, int share, char *memory, double *score, int *counts,
    SumRecord *records, int *arrived, int n_levels, long long *pairs, double *scores
) {
    extern __shared__ double chosen[];
    __shared__ SumScratch scratch;
    int first = blockIdx.x * share, n_rows = max(min(share, d - first), 0);
    Compared &compared = scratch.compared;
    Sums all = sums_at(memory, d), sums = sums_at((char *)(chosen + MOST_SCANNED * n_classes), share);
    for (int k = threadIdx.x; k < n_rows; k += blockDim.x) {
        sums.gain[k] = all.gain[first + k];
        sums.term[k] = all.term[first + k];
        sums.mass[k] = all.mass[first + k];
        sums.order[k] = all.order[first + k];
        sums.partner[k] = all.partner[first + k];
        sums.partner_order[k] = all.partner_order[first + k];
    }
    int n_active = min((n_rows + WARP - 1) / WARP, (int)blockDim.x / WARP);
    const SumRecord &result = scratch.result;
    LookAtStale look = {scratch.stale_of};
    for (int q = threadIdx.x; q < gridDim.x; q += blockDim.x) scratch.stale_of[q] = no_partner();
    double total = score[0], offset = score[1];
    int level = counts[0], scans = 0, number = 0;
    int s = -1, t = -1, new_order = 0;
    size_t node_s = 0, node_t = 0;
    double least = INF;  // bound of stale rows that are compared together with the merged one
    for (int done = 0;; ++done) {
        __syncthreads();
        bool resum = done > 0 && level % RESUM_EVERY == 0, is_ours = s >= first && s < first + n_rows;
        if (threadIdx.x == 0) {
            compared.row[0] = s;
            compared.order[0] = new_order;
        }
        choose_stale(&scratch, s >= 0, least, s, t);
        int n = compared.n;
        scans += max(n - 1, 0);
        load_compared(nodes, chosen, n_classes, compared, s >= 0, d);
        if (s >= 0)
            for (int c = threadIdx.x; c < n_classes; c += blockDim.x) {
                double x = __ldcg(nodes + node_s * n_classes + c) + __ldcg(nodes + node_t * n_classes + c);
                chosen[c] = x;
                if (is_ours) {
                    __stcg(nodes + (size_t)(new_order - 1) * n_classes + c, x);
                    states[(size_t)c * d + s] = x;
                }
            }
        __syncthreads();
        describe_compared<Information>(chosen, n_classes, compared);
        __syncthreads();
        SumRecord mine = SumRecord::nothing();
        mine.resum = resum;
        mine.n_found = n;
        for (int k = threadIdx.x; k < n_rows; k += blockDim.x) {
            int j = first + k, order = sums.order[k];
            if (order == DEAD) continue;
            if (j == t) {
                sums.order[k] = DEAD;
                sums.gain[k] = -INF;
                sums.partner[k] = -1;
                continue;
            }
            if (j == s) {
                sums.order[k] = new_order;
                sums.term[k] = compared.term[0];
                sums.mass[k] = compared.mass[0];
            } else {
                bool is_compared = n > 0 && compare_slot<Information>(
                    states, d, n_classes, chosen, compared, n, j, order, sums.term[k], sums.mass[k], mine
                );
                int partner = sums.partner[k];
                if (partner == s || partner == t) partner = sums.partner[k] = -1;
                double gain = sums.gain[k];
                if (partner >= 0) {
                    Pair pair;
                    pair.value = gain;
                    pair.key = pair_key(j, partner);
                    pair.x = pair.y = 0.0;
                    pair.i = j;
                    pair.j = partner;
                    pair.order_i = order;
                    pair.order_j = sums.partner_order[k];
                    take_better(mine.own, pair);
                } else if (!is_compared && gain > mine.stale.gain) {
                    mine.stale.gain = gain;
                    mine.stale.slot = j;
                    mine.stale.order = order;
                }
            }
            if (resum) mine.sum += sums.term[k];
        }
        exchange(records, arrived, number++, mine, n_active, scratch.records, &scratch.result, look);
        if (resum) total = offset + result.sum;
        Pair best = result.own;
        for (bool formed = s >= 0;; formed = true) {
            // Take what was found of the compared rows.
            if (formed) {
#pragma unroll
                for (int r = 0; r < MOST_SCANNED; ++r) {
                    if (r >= compared.n) continue;
                    int i = compared.row[r];
                    Partner partner = result.found[r];
                    if (threadIdx.x == 0 && i >= first && i < first + n_rows) {
                        sums.gain[i - first] = partner.gain;
                        sums.partner[i - first] = partner.slot;
                        sums.partner_order[i - first] = partner.order;
                    }
                    if (partner.slot < 0) continue;
                    Pair pair;
                    pair.value = partner.gain;
                    pair.key = pair_key(i, partner.slot);
                    pair.x = pair.y = 0.0;
                    pair.i = i;
                    pair.j = partner.slot;
                    pair.order_i = compared.order[r];
                    pair.order_j = partner.order;
                    take_better(best, pair);
                }
            }
            if (done == n_levels || result.stale.gain == -INF || result.stale.gain < best.value) break;
            choose_stale(&scratch, 0, best.value, -1, -1);
            n = compared.n;
            scans += n;
            load_compared(nodes, chosen, n_classes, compared, 0, d);
            __syncthreads();
            describe_compared<Information>(chosen, n_classes, compared);
            __syncthreads();
            mine = SumRecord::nothing();
            mine.n_found = n;
            for (int k = threadIdx.x; k < n_rows; k += blockDim.x) {
                int j = first + k, order = sums.order[k];
                if (order == DEAD) continue;
                bool is_compared = compare_slot<Information>(
                    states, d, n_classes, chosen, compared, n, j, order, sums.term[k], sums.mass[k], mine
                );
                if (!is_compared && sums.partner[k] < 0 && sums.gain[k] > mine.stale.gain) {
                    mine.stale.gain = sums.gain[k];
                    mine.stale.slot = j;
                    mine.stale.order = order;
                }
            }
            exchange(records, arrived, number++, mine, n_active, scratch.records, &scratch.result, look);
        }
        if (done == n_levels) break;
        bool in_order = best.i < best.j;
        s = in_order ? best.i : best.j;
        t = in_order ? best.j : best.i;
        node_s = node_of(s, in_order ? best.order_i : best.order_j, d);
        node_t = node_of(t, in_order ? best.order_j : best.order_i, d);
        total += best.value;
        least = EAGER * best.value;
        new_order = d + ++level;
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            pairs[2 * done] = s;
            pairs[2 * done + 1] = t;
            scores[done] = total;
        }
    }
    __syncthreads();
    for (int k = threadIdx.x; k < n_rows; k += blockDim.x) {
        all.gain[first + k] = sums.gain[k];
        all.term[first + k] = sums.term[k];
        all.mass[first + k] = sums.mass[k];
        all.order[first + k] = sums.order[k];
        all.partner[first + k] = sums.partner[k];
        all.partner_order[first + k] = sums.partner_order[k];
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        counts[0] = level;
        counts[1] += scans;
        score[0] = total;
    }
}
