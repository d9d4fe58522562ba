"""Compiled code of `BagIndex`: inverted lists, keys of pairs, and the k nearest items.

A *key* orders items, smaller is nearer: the distance, or the negative similarity. It is made of ``shared``, a sum over
the words that query and item have in common, taken in float64 and in the order of the words. Inverted lists, dense rows
and single pairs add in that same order, so they give the same key to the last bit.

``queries`` are (starts, words, values, totals): rows in CSR form without zeros, words rising, and their totals.
``lists`` are inverted lists (starts, items, values, totals): the same by word, items in rising order, totals of items.
"""

import numpy as np
from numba import njit

from bagwise.retrieval.histograms import BLOCK_ITEMS, CHI2, EUCLIDEAN, INNER, INTERSECTION

# Partial sums of a row, which the compiler vectorizes.
_WIDTH = 64
# Rows that stay in a core's cache while all queries pass over them.
_TILE_NUMBERS = 1 << 16
# Entries of the lists of a group above which all items are looked at instead.
_MANY_ENTRIES = BLOCK_ITEMS // 4
_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def _shared_term(kind, x, z):
    """What a word adds to `shared`; x is positive for chi²."""
    if kind == INTERSECTION:
        return z if z < x else x
    if kind == CHI2:
        return x * z / (x + z)
    return x * z


@njit(cache=True, nogil=True)
def _key(kind, shared, query_total, total):
    """``Σ (x-z)² = Σx² + Σz² - 2 Σxz`` and ``Σ (x-z)²/(x+z) = Σx + Σz - 4 Σ xz/(x+z)``; or a negative similarity."""
    if kind == EUCLIDEAN:
        return max(query_total + total - 2.0 * shared, 0.0)
    if kind == CHI2:
        return max(query_total + total - 4.0 * shared, 0.0)
    return -shared


@njit(cache=True, nogil=True)
def _sift_down(keys, items, size, position):
    """Restore the heap below `place`: the farthest first, of equally far the latest."""
    key, item = keys[position], items[position]
    while True:
        child = 2 * position + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (keys[other] > keys[child] or (keys[other] == keys[child] and items[other] > items[child])):
            child = other
        if not (keys[child] > key or (keys[child] == key and items[child] > item)):
            break
        keys[position], items[position] = keys[child], items[child]
        position = child
    keys[position], items[position] = key, item


@njit(cache=True, nogil=True)
def _heapify(keys, items, size):
    for position in range(size // 2 - 1, -1, -1):
        _sift_down(keys, items, size, position)


@njit(cache=True, nogil=True)
def _sort_heap(keys, items):
    """Put a full heap in order, the nearest first."""
    for last in range(keys.shape[0] - 1, 0, -1):
        keys[0], keys[last] = keys[last], keys[0]
        items[0], items[last] = items[last], items[0]
        _sift_down(keys, items, last, 0)


@njit(cache=True, nogil=True, error_model="numpy")
def _accumulate(kind, x, items, values, sums):
    """``sums[items] += shared_term(x, values)``; the kind is asked once, not for every entry."""
    if kind == INTERSECTION:
        for p in range(items.shape[0]):
            sums[items[p]] += _shared_term(INTERSECTION, x, np.float64(values[p]))
    elif kind == CHI2:
        for p in range(items.shape[0]):
            sums[items[p]] += _shared_term(CHI2, x, np.float64(values[p]))
    else:
        for p in range(items.shape[0]):
            sums[items[p]] += _shared_term(INNER, x, np.float64(values[p]))


@njit(cache=True, nogil=True)
def search_lists(kind, queries, lists, first, out_keys, out_items):
    """Find the nearest items of a block for the queries ``first, first + 1, …``, as many as `out_keys` has rows.

    Equivalent to computing all keys and taking the first columns of a stable argsort. Costs one step for each entry in
    the lists of a query's words, and one for each item.
    """
    query_starts, query_words, query_values, query_totals = queries
    starts, items, values, totals = lists
    n_items, k = totals.shape[0], out_keys.shape[1]
    sums = np.zeros(BLOCK_ITEMS)
    for i in range(out_keys.shape[0]):
        query = first + i
        sums[:n_items] = 0.0
        for p in range(query_starts[query], query_starts[query + 1]):
            begin, end = starts[query_words[p]], starts[query_words[p] + 1]
            _accumulate(kind, np.float64(query_values[p]), items[begin:end], values[begin:end], sums)
        keys, nearest = out_keys[i], out_items[i]
        for item in range(k):
            keys[item] = _key(kind, sums[item], query_totals[query], totals[item])
            nearest[item] = item
        _heapify(keys, nearest, k)
        for item in range(k, n_items):
            key = _key(kind, sums[item], query_totals[query], totals[item])
            if key < keys[0]:  # of equally near items the first, which is there already, stays
                keys[0], nearest[0] = key, item
                _sift_down(keys, nearest, k, 0)
        _sort_heap(keys, nearest)


@njit(cache=True, nogil=True, error_model="numpy")
def _dense_shared(kind, words, values, row):
    """`shared` of a query, given by its words, and a dense row."""
    shared = 0.0
    for p in range(words.shape[0]):
        shared += _shared_term(kind, np.float64(values[p]), np.float64(row[words[p]]))
    return shared


@njit(cache=True, nogil=True, error_model="numpy")
def _about_shared(kind, x, z, sums):
    """`shared` of two dense rows in float32, in partial sums that the compiler vectorizes."""
    sums[:] = _ZERO
    whole = x.shape[0] - x.shape[0] % _WIDTH
    if kind == INTERSECTION:
        for w in range(0, whole, _WIDTH):
            for k in range(_WIDTH):
                sums[k] += min(x[w + k], z[w + k])
        for w in range(whole, x.shape[0]):
            sums[w - whole] += min(x[w], z[w])
    else:
        for w in range(0, whole, _WIDTH):
            for k in range(_WIDTH):
                sums[k] += _half_chi2(x[w + k], z[w + k])
        for w in range(whole, x.shape[0]):
            sums[w - whole] += _half_chi2(x[w], z[w])
    total = _ZERO
    for k in range(_WIDTH):
        total += sums[k]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _half_chi2(x, z):
    """``x * z / (x + z)`` in float32, zero where both are, without overflow."""
    total = x + z
    return x * (z / (total if total > _ZERO else _ONE))


@njit(cache=True, nogil=True)
def screen_rows(kind, queries, rows, out):
    """``out[i, j]`` is about `shared` of two dense rows, in float32, for the intersection and chi². Cost O(d) a pair.

    Its relative error is below that of d + 4 roundings.
    """
    sums = np.empty(_WIDTH, dtype=np.float32)
    tile = max(_TILE_NUMBERS // max(rows.shape[1], 1), 1)
    for low in range(0, rows.shape[0], tile):
        for i in range(queries.shape[0]):
            for j in range(low, min(low + tile, rows.shape[0])):
                out[i, j] = _about_shared(kind, queries[i], rows[j], sums)


@njit(cache=True, nogil=True)
def _find(items, begin, end, item):
    """The place of an item in a rising list, or where it would be."""
    while begin < end:
        middle = (begin + end) // 2
        if items[middle] < item:
            begin = middle + 1
        else:
            end = middle
    return begin


@njit(cache=True, nogil=True)
def keys_from_lists(kind, queries, lists, first, bounds, chosen, out):
    """Keys of the queries ``first, first + 1, …`` and chosen items of a block.

    Those of query ``first + i`` are ``chosen[bounds[i, 0] : bounds[i, 1]]``, in rising order; their keys go to the same
    places of `out`. Costs a search in the list of each word of a query, for each of its items.
    """
    query_starts, query_words, query_values, query_totals = queries
    starts, items, values, totals = lists
    for i in range(bounds.shape[0]):
        query = first + i
        low, high = bounds[i]
        out[low:high] = 0.0
        for p in range(query_starts[query], query_starts[query + 1]):
            position, end = starts[query_words[p]], starts[query_words[p] + 1]
            for c in range(low, high):
                position = _find(items, position, end, chosen[c])
                if position == end:
                    break
                if items[position] == chosen[c]:
                    out[c] += _shared_term(kind, np.float64(query_values[p]), np.float64(values[position]))
        for c in range(low, high):
            out[c] = _key(kind, out[c], query_totals[query], totals[chosen[c]])


@njit(cache=True, nogil=True)
def keys_from_rows(kind, queries, rows, totals, first, bounds, chosen, out):
    """`keys_from_lists` for dense rows."""
    query_starts, query_words, query_values, query_totals = queries
    for i in range(bounds.shape[0]):
        query = first + i
        words = query_words[query_starts[query] : query_starts[query + 1]]
        values = query_values[query_starts[query] : query_starts[query + 1]]
        for c in range(bounds[i, 0], bounds[i, 1]):
            shared = _dense_shared(kind, words, values, rows[chosen[c]])
            out[c] = _key(kind, shared, query_totals[query], totals[chosen[c]])


@njit(cache=True, nogil=True, fastmath={"reassoc"})
def group_moments(lists, members, ends, squared, scale, rooted, sums, squares):
    """Sum the words of each group in every item, and add up these features and their squares.

    With dense rows X, squared if they hold square roots: ``F = scale[:, None] * (X @ membership)``, of which square
    roots are taken if `rooted`; ``sums += F.sum(axis=0)`` and ``squares += (F**2).sum(axis=0)``. Words of group g are
    ``members[ends[g - 1]:ends[g]]``; scale has `BLOCK_ITEMS` entries. Two steps per entry of a list.
    """
    starts, items, values = lists
    buffer = np.zeros(BLOCK_ITEMS, np.float32)  # half the cache of float64
    first = 0
    for g in range(ends.shape[0]):
        n_entries = 0
        for m in range(first, ends[g]):
            n_entries += starts[members[m] + 1] - starts[members[m]]
            for p in range(starts[members[m]], starts[members[m] + 1]):
                buffer[items[p]] += values[p] * values[p] if squared else values[p]
        total, square = 0.0, 0.0
        if n_entries > _MANY_ENTRIES:
            for i in range(BLOCK_ITEMS):
                value = np.float64(buffer[i]) * scale[i]
                if rooted:
                    value = np.sqrt(value)
                total += value
                square += value * value
            buffer[:] = _ZERO
        else:
            for m in range(first, ends[g]):
                for p in range(starts[members[m]], starts[members[m] + 1]):
                    i = items[p]
                    value = np.float64(buffer[i]) * scale[i]  # 0 where another word of the group was before
                    buffer[i] = _ZERO
                    if rooted:
                        value = np.sqrt(value)
                    total += value
                    square += value * value
        sums[g] += total
        squares[g] += square
        first = ends[g]
