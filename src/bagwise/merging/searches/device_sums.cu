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
