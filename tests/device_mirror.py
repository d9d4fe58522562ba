"""What the kernels in `bagwise/gpu/cu/merging.cu` do, step by step in NumPy: blocks, and exchanges of them.

A block is an object that reads only its own rows, the matrix or the nodes, and the records of all blocks. Entries that
a block must not read hold NaN.
"""

from __future__ import annotations

import numpy as np

DEAD = 2**31 - 1
ROUNDING = 16 * 2.0**-52
NEAR = 128.0
STEEP = 1e300
TINY = 1e-12
RESUM_EVERY = 256
MOST_SCANNED = 4
EAGER = 1.05


def key_of(i, j):
    return min(i, j), max(i, j)


def better(pair, other):
    """Of equal values the lowest key."""
    return pair["value"] > other["value"] or (pair["value"] == other["value"] and pair["key"] < other["key"])


def no_pair():
    return {"value": -np.inf, "key": (DEAD, DEAD), "i": -1, "j": -1}


def best_of(pairs):
    best = no_pair()
    for pair in pairs:
        if better(pair, best):
            best = pair
    return best


class Traces:
    def __init__(self, a, b):
        self.a, self.b, self.floor_a, self.floor_b = a, b, TINY * abs(a), TINY * abs(b)

    def ratio(self, x, y):
        with np.errstate(all="ignore"):
            above, under = self.a + x, self.b + y
            return np.where(under <= self.floor_b, np.where(above > self.floor_a, np.inf, -np.inf), above / under)

    def add(self, x, y):
        self.a, self.b = self.a + x, self.b + y
        self.floor_a = max(self.floor_a, TINY * abs(self.a))
        self.floor_b = max(self.floor_b, TINY * abs(self.b))

    def score(self):
        if self.b <= self.floor_b:
            return np.inf if self.a > self.floor_a else np.nan
        return self.a / self.b


class RatioBlock:
    """The rows ``first .. first + n - 1`` and what one block of threads does with them."""

    def __init__(self, matrix, order, first, n):
        self.matrix, self.all_order, self.first, self.n = matrix, order, first, n
        self.top_a, self.top_b = np.full(n, -np.inf), np.zeros(n)
        self.right, self.left, self.low, self.high = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
        self.reach = np.full(n, -np.inf)
        self.order = order[first : first + n].copy()
        self.partner, self.partner_order = np.full(n, -1), np.full(n, -1)
        self.scans = 0

    def scan(self, k, at, start=0):
        row = self.matrix[self.first + k]
        columns = np.flatnonzero(self.all_order < self.order[k])
        columns = columns[columns >= start]
        x, y = 2.0 * row[columns].T
        assert not np.isnan(x).any(), "a row reads an entry that it does not own"
        ratios = at.ratio(x, y)
        low, high = y.min(initial=np.inf), y.max(initial=-np.inf)
        k_best = int(np.argmax(ratios)) if len(ratios) and ratios.max() > -np.inf else -1
        if k_best < 0:
            self.remember(k, -np.inf, -1, -1, 0.0, 0.0, low, high, at)
            return no_pair(), x, y
        i, j = self.first + k, int(columns[k_best])
        pair = {"value": ratios[k_best], "key": key_of(i, j), "i": i, "j": j, "x": x[k_best], "y": y[k_best]}
        pair |= {"order_i": self.order[k], "order_j": self.all_order[j]}
        self.remember(k, pair["value"], j, pair["order_j"], pair["x"], pair["y"], low, high, at)
        return pair, x, y

    def scan_tight(self, k, at):
        pair, x, y = self.scan(k, at)
        self.scans += 1
        self.reach[k] = -np.inf
        if pair["i"] < 0 or at.b + self.low[k] <= at.floor_b:
            return pair
        dx, dy, value = x - pair["x"], y - pair["y"], pair["value"]
        with np.errstate(all="ignore"):
            right = (dx / dy)[dy > 0].max(initial=-np.inf)
            left = (dx / dy)[dy < 0].min(initial=np.inf)
        second = at.ratio(x, y)[(dx != 0) | (dy != 0)].max(initial=-np.inf)
        doubt = NEAR * ROUNDING * (abs(value) + (abs(at.a) + abs(pair["x"])) / (at.b + pair["y"]))
        if second < value - doubt:
            self.right[k] = 0.5 * (value + max(right, -STEEP))
            self.left[k] = 0.5 * (value + min(left, STEEP))
        return pair

    def remember(self, k, best, partner, partner_order, x, y, low, high, at):
        self.partner[k], self.partner_order[k] = partner, partner_order
        self.low[k], self.high[k], self.top_b[k] = low, high, y
        self.right[k] = self.left[k] = best
        self.top_a[k] = -np.inf if low == np.inf else np.inf if at.b + low <= at.floor_b else x

    def evaluate(self, k, at):
        """Value of the top, and how far the row reaches."""
        top_a, top_b, low, high = self.top_a[k], self.top_b[k], self.low[k], self.high[k]
        if top_a == -np.inf:
            return -np.inf, -np.inf
        owned = self.partner[k] >= 0
        if top_a == np.inf or at.b + low <= at.floor_b:
            return float(at.ratio(top_a, top_b)) if owned and top_a != np.inf else -np.inf, np.inf
        top = (at.a + top_a) / (at.b + top_b)
        if owned and self.right[k] < top < self.left[k]:
            return top, -np.inf
        size = abs(at.a) + abs(top_a)
        reach = top + ROUNDING * (size + abs(top) * at.b) / (at.b + top_b)
        for there, change, end in (
            (high > top_b, self.right[k] * (high - top_b), high),
            (low < top_b, -self.left[k] * (top_b - low), low),
        ):
            if there:
                ratio = (at.a + top_a + change) / (at.b + end)
                reach = max(reach, ratio + ROUNDING * (size + abs(change) + abs(ratio) * at.b) / (at.b + end))
        return top if owned else -np.inf, reach

    def form_and_look(self, merge, at, resum):
        """The first half of a level: this block's part of the row just formed, and a look at its rows."""
        s, t, new_order = merge["s"], merge["t"], merge["new_order"]
        own, formed, low, high, reach, sums = no_pair(), no_pair(), np.inf, -np.inf, -np.inf, np.zeros(2)
        for k in range(self.n):
            j, order = self.first + k, self.order[k]
            if j == t:
                self.order[k] = self.all_order[j] = DEAD
                self.top_a[k] = self.reach[k] = -np.inf
                self.partner[k] = -1
                continue
            if order == DEAD:
                continue
            if j == s:
                self.matrix[s, s] = self.matrix[s, s] + self.matrix[t, t] + (merge["x"], merge["y"])
                self.order[k] = self.all_order[j] = new_order
                self.top_a[k] = self.reach[k] = -np.inf
            else:
                if self.partner[k] in (s, t):
                    self.partner[k] = -1
                value, self.reach[k] = self.evaluate(k, at)
                reach = max(reach, self.reach[k])
                pair = {"value": value, "key": key_of(j, self.partner[k]), "i": j, "j": self.partner[k]}
                pair |= {"x": self.top_a[k], "y": self.top_b[k]}
                pair |= {"order_i": order, "order_j": self.partner_order[k]}
                own = best_of([own, pair]) if value > -np.inf else own
                if s >= 0:
                    from_s = self.matrix[j, s] if order > merge["order_s"] else self.matrix[s, j]
                    from_t = self.matrix[j, t] if order > merge["order_t"] else self.matrix[t, j]
                    entry = from_s + from_t
                    assert not np.isnan(entry).any(), "an entry that is not up to date is read"
                    self.matrix[s, j] = entry
                    x, y = 2.0 * entry
                    ratio = float(at.ratio(x, y))
                    pair = {"value": ratio, "key": (j, j), "i": s, "j": j, "x": x, "y": y}
                    pair |= {"order_i": new_order, "order_j": order}
                    formed = best_of([formed, pair]) if ratio > -np.inf else formed
                    low, high = min(low, y), max(high, y)
            if resum:
                sums += self.matrix[j, j]
        return {"own": own, "formed": formed, "low": low, "high": high, "reach": reach, "sums": sums}

    def scan_furthest(self, least, at):
        """The second half: scan the rows that reach the best pair, the furthest first."""
        best = no_pair()
        while self.n and self.reach.max() >= least and self.reach.max() > -np.inf:
            pair = self.scan_tight(int(np.argmax(self.reach)), at)
            best = best_of([best, pair])
            least = max(least, pair["value"])
        return best

    def lowest(self, but):
        """The lowest live slot, not that given; DEAD if there is none."""
        live = (self.first + k for k in range(self.n) if self.order[k] != DEAD and self.first + k != but)
        return min(live, default=DEAD)


class MirrorBoundSearch:
    """`merge_ratios`. Entries below the diagonal begin as NaN, as does what a merge leaves out of date."""

    def __init__(self, matrix, share):
        d = len(matrix)
        self.d, self.level, self.exchanges = d, 0, 0
        self.matrix = np.where(np.tri(d, k=-1, dtype=bool)[..., np.newaxis], np.nan, matrix)
        self.order = np.arange(d, 0, -1)
        self.at = Traces(*np.diagonal(matrix, axis1=0, axis2=1).sum(axis=1))
        starts = range(0, d, share)
        self.blocks = [RatioBlock(self.matrix, self.order, first, min(share, d - first)) for first in starts]
        for block in self.blocks:
            for k in range(block.n):
                block.scan(k, self.at, start=block.first + k + 1)

    def advance(self, n_levels):
        """Merge, and return pairs and scores: one launch."""
        at, pairs, scores = self.at, [], []
        merge = {"s": -1, "t": -1, "new_order": 0}
        for done in range(n_levels + 1):
            resum = done > 0 and self.level % RESUM_EVERY == 0
            records = [block.form_and_look(merge, at, resum) for block in self.blocks]
            self.exchanges += 1
            formed = best_of(record["formed"] for record in records)
            best = best_of(record["own"] for record in records)
            low, high = min(r["low"] for r in records), max(r["high"] for r in records)
            reach, sums = max(r["reach"] for r in records), sum(r["sums"] for r in records)
            if merge["s"] >= 0:
                block = self.blocks[merge["s"] // self.blocks[0].n]
                found = formed if formed["i"] >= 0 else {"x": 0.0, "y": 0.0, "order_j": -1, **no_pair()}
                where = merge["s"] - block.first
                numbers = (found["value"], found["j"], found["order_j"], found["x"], found["y"])
                block.remember(where, *numbers, low, high, at)
            if done == n_levels:
                if resum:
                    at.a, at.b = sums
                break
            if formed["i"] >= 0:
                best = best_of([best, formed | {"key": key_of(merge["s"], formed["j"])}])
            if reach >= best["value"] and reach > -np.inf:
                best = best_of([best, *(block.scan_furthest(best["value"], at) for block in self.blocks)])
                self.exchanges += 1
            if resum:
                at.a, at.b = sums
            if best["i"] < 0:
                best = self.first_two()
            s, t = best["key"]
            orders = {best["i"]: best["order_i"], best["j"]: best["order_j"]}
            at.add(best["x"], best["y"])
            self.level += 1
            merge = {"s": s, "t": t, "order_s": orders[s], "order_t": orders[t], "new_order": self.d + self.level}
            merge |= {"x": best["x"], "y": best["y"]}
            pairs.append((s, t))
            scores.append(at.score())
        return np.array(pairs), np.array(scores)

    def first_two(self):
        i = min(block.lowest(-1) for block in self.blocks)
        j = min(block.lowest(i) for block in self.blocks)
        owner, other = (i, j) if self.order[j] < self.order[i] else (j, i)
        x, y = 2.0 * self.matrix[owner, other]
        orders = {"order_i": self.order[i], "order_j": self.order[j]}
        return {"value": -np.inf, "key": (i, j), "i": i, "j": j, "x": x, "y": y} | orders

    @property
    def scans(self):
        return sum(block.scans for block in self.blocks)


def x_log_x(x):
    return x * np.log(np.maximum(x, np.finfo(float).tiny))


def describe(state):
    mass = state.sum()
    return x_log_x(state).sum() - x_log_x(mass), mass


class SumBlock:
    """The slots ``first .. first + n - 1`` of `merge_sums`."""

    def __init__(self, states, first):
        self.first, self.n, self.states = first, len(states), states.copy()
        self.term, self.mass = np.array([describe(state) for state in states]).T
        self.gain, self.partner = np.full(self.n, -np.inf), np.full(self.n, -1)
        self.partner_order = np.full(self.n, -1)
        self.order = np.zeros(self.n, dtype=int)

    def gains(self, state):
        term, mass = describe(state)
        return x_log_x(self.states + state).sum(axis=1) - x_log_x(self.mass + mass) - (self.term + term)

    def best_partner(self, state, below):
        """The best slot of this block for a row of this order, as (gain, slot, order)."""
        gains = np.where(self.order < below, self.gains(state), -np.inf)
        k = int(np.argmax(gains))
        return (gains[k], self.first + k, self.order[k]) if gains[k] > -np.inf else (-np.inf, -1, -1)

    def form_and_look(self, merge, resum, compared):
        s, t = merge["s"], merge["t"]
        if s >= 0 and self.first <= t < self.first + self.n:
            k = t - self.first
            self.order[k], self.gain[k], self.partner[k] = DEAD, -np.inf, -1
        if s >= 0 and self.first <= s < self.first + self.n:
            k = s - self.first
            self.order[k], self.states[k] = merge["new_order"], merge["state"]
            self.term[k], self.mass[k] = describe(merge["state"])
            self.gain[k], self.partner[k] = -np.inf, -1
        live = self.order != DEAD
        self.partner[live & ((self.partner == s) | (self.partner == t))] = -1
        own = no_pair()
        for k in np.flatnonzero(self.partner >= 0):
            i, j = self.first + int(k), int(self.partner[k])
            orders = {"order_i": self.order[k], "order_j": self.partner_order[k]}
            own = best_of([own, {"value": self.gain[k], "key": key_of(i, j), "i": i, "j": j} | orders])
        sums = self.term[live].sum() if resum else 0.0
        return {"own": own, "stale": self.stale(compared), "sum": sums}

    def stale(self, compared):
        """The largest bound of a row that has lost its partner, as (bound, row, order)."""
        left = (self.partner < 0) & (self.gain > -np.inf) & ~np.isin(self.first + np.arange(self.n), compared)
        if not left.any():
            return -np.inf, -1, -1
        k = int(np.argmax(np.where(left, self.gain, -np.inf)))
        return self.gain[k], self.first + k, self.order[k]

    def take(self, row, found):
        if self.first <= row < self.first + self.n:
            k = row - self.first
            self.gain[k], self.partner[k], self.partner_order[k] = found


def choose(stale, least):
    """Rows and orders of those that reach, the largest bounds first."""
    chosen = sorted((one for one in stale if one[0] >= least and one[1] >= 0), key=lambda one: (-one[0], one[1]))
    return [one[1:] for one in chosen]


class MirrorPartnerSearch:
    """`merge_sums`: nodes are written once, so that no block reads what another writes at the same time."""

    def __init__(self, states, offset, share):
        d = len(states)
        self.d, self.level, self.offset, self.scans, self.exchanges = d, 0, offset, 0, 0
        self.nodes = np.full((2 * d - 1, states.shape[1]), np.nan)
        self.nodes[:d] = states
        self.blocks = [SumBlock(states[first : first + share], first) for first in range(0, d, share)]
        for block in self.blocks:
            block.order[:] = d - block.first - np.arange(block.n)
        self.score = offset + sum(block.term.sum() for block in self.blocks)
        for i in range(d):
            self.compare([(i, d - i)])

    def node(self, slot, order):
        return order - 1 if order > self.d else slot

    def compare(self, rows):
        """Find the best partners of rows among the slots of each block, then of all of them; blocks remember them."""
        found = []
        for row, order in rows:
            state = self.nodes[self.node(row, order)]
            partners = [block.best_partner(state, order) for block in self.blocks]
            found.append(max(partners, key=lambda one: (one[0], -one[1])))
            for block in self.blocks:
                block.take(row, found[-1])
        return found

    def advance(self, n_levels):
        pairs, scores, stale, least = [], [], [], np.inf
        merge = {"s": -1, "t": -1, "new_order": 0}
        for done in range(n_levels + 1):
            resum = done > 0 and self.level % RESUM_EVERY == 0
            stale = [one for one in stale if one[1] not in (merge["s"], merge["t"])]
            eager = choose(stale, least)[: MOST_SCANNED - 1]
            rows = [(merge["s"], merge["new_order"]), *eager] if merge["s"] >= 0 else []
            records = [block.form_and_look(merge, resum, [row for row, _ in rows]) for block in self.blocks]
            found = self.compare(rows)
            self.scans += len(eager)
            self.exchanges += 1
            if resum:
                self.score = self.offset + sum(record["sum"] for record in records)
            best = best_of(record["own"] for record in records)
            stale = [record["stale"] for record in records]
            while True:
                for (row, order), partner in zip(rows, found, strict=True):
                    if partner[1] >= 0:
                        pair = {"value": partner[0], "key": key_of(row, partner[1]), "i": row, "j": partner[1]}
                        best = best_of([best, pair | {"order_i": order, "order_j": partner[2]}])
                reach = max(one[0] for one in stale)
                if done == n_levels or reach == -np.inf or reach < best["value"]:
                    break
                rows = choose(stale, best["value"])[:MOST_SCANNED]
                self.scans += len(rows)
                found = self.compare(rows)
                stale = [block.stale([row for row, _ in rows]) for block in self.blocks]
                self.exchanges += 1
            if done == n_levels:
                break
            s, t = best["key"]
            orders = {best["i"]: best["order_i"], best["j"]: best["order_j"]}
            self.level += 1
            state = self.nodes[self.node(s, orders[s])] + self.nodes[self.node(t, orders[t])]
            assert not np.isnan(state).any(), "a node is read before it is written"
            self.nodes[self.d + self.level - 1] = state
            self.score += best["value"]
            least = EAGER * best["value"]
            merge = {"s": s, "t": t, "new_order": self.d + self.level, "state": state}
            pairs.append((s, t))
            scores.append(self.score)
        return np.array(pairs), np.array(scores)
