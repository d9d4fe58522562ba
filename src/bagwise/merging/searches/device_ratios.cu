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

