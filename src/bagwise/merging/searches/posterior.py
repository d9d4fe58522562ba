"""The search for the posterior form of UVD: all pairs are scored anew at each level."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from bagwise.merging.searches.base import Search

_FLOOR = 1e-6


class PosteriorSearch(Search):
    """Merge, at each level, the pair after which the training labels are most probable.

    Each word has a Gaussian per class with a Normal-Gamma prior; a sample's class probabilities come from
    the product of its words' predictive densities. What a merge changes in the log-densities is kept for every pair;
    the probabilities couple all words, so all pairs are scored anew at each level.

    Memory d² n C / 2 numbers, time O(d³ n C).
    """

    def __init__(self, values: NDArray[np.float64], codes: NDArray[np.intp]) -> None:
        super().__init__(len(values))
        self._codes = codes
        self._values = np.array(values, dtype=np.float64)
        self._live = list(range(self.n_words))
        self._scored = 0
        self._densities = self._log_densities(self._values)
        prior = np.log(np.bincount(codes) / len(codes))
        self._log_joint = prior + self._densities.sum(axis=0)
        # changes[s] holds, for all t > s, what merging s and t changes
        self._changes = {s: self._change(s, np.arange(s + 1, self.n_words)) for s in range(self.n_words - 1)}
        self.start_score = float(self._label_log_probability(self._log_joint[np.newaxis])[0])

    def _log_densities(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predictive log-density of each sample's value under each class, words x samples x classes."""
        mu0 = values.mean(axis=1, keepdims=True)
        b0 = np.maximum(values.var(axis=1, keepdims=True), _FLOOR)
        densities = np.empty((*values.shape, int(self._codes.max()) + 1))
        for c in range(densities.shape[2]):
            own = values[:, self._codes == c]
            n = own.shape[1]
            mean = own.mean(axis=1, keepdims=True)
            squares = ((own - mean) ** 2).sum(axis=1, keepdims=True)
            kappa, a = 1.0 + n, 1.0 + n / 2
            mu = (mu0 + n * mean) / kappa
            b = b0 + squares / 2 + n * (mean - mu0) ** 2 / (2 * kappa)
            nu, scale = 2 * a, b * (kappa + 1) / (a * kappa)
            constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi * scale)
            densities[:, :, c] = constant - (nu + 1) / 2 * np.log1p((values - mu) ** 2 / (nu * scale))
        return densities

    def _change(self, s: int, others: NDArray[np.int64]) -> NDArray[np.float64]:
        merged = self._log_densities(self._values[others] + self._values[s])
        return merged - self._densities[others] - self._densities[s]

    def _label_log_probability(self, log_joint: NDArray[np.float64]) -> NDArray[np.float64]:
        """``Σ_i log p(y_i | x_i)`` for each of several joints, k x samples x classes."""
        own = np.take_along_axis(log_joint, self._codes[np.newaxis, :, np.newaxis], axis=2)[..., 0]
        largest = log_joint.max(axis=2)
        total = largest + np.log(np.exp(log_joint - largest[..., np.newaxis]).sum(axis=2))
        return (own - total).sum(axis=1)

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        for k in range(len(pairs)):
            s, t, scores[k] = self._search()
            pairs[k] = s, t
            self._merge(s, t)

    def _search(self) -> tuple[int, int, float]:
        best = (-1, -1, -np.inf)
        for position, s in enumerate(self._live[:-1]):
            others = np.array(self._live[position + 1 :])
            values = self._label_log_probability(self._log_joint + self._changes[s][others - s - 1])
            self._scored += len(others)
            first = int(np.argmax(values))
            if values[first] > best[2]:
                best = (s, int(others[first]), float(values[first]))
        return best

    def _merge(self, s: int, t: int) -> None:
        self._log_joint = self._log_joint + self._changes[s][t - s - 1]
        self._values[s] += self._values[t]
        self._densities[s] = self._log_densities(self._values[s : s + 1])[0]
        self._live.remove(t)
        self._changes.pop(t, None)
        others = np.array([word for word in self._live if word != s], dtype=np.int64)
        if len(others) == 0:
            return
        change = self._change(s, others)
        for position, word in enumerate(others.tolist()):
            if word < s:
                self._changes[word][s - word - 1] = change[position]
        later = others > s
        if later.any():
            self._changes[s][others[later] - s - 1] = change[later]

    @property
    def work(self) -> dict[str, int]:  # noqa: D102
        return {"pairs_evaluated": self._scored}
