"""Other numbers of groups: classifiers derived for them, and what is left out of a model that needs no larger ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import check_integer
from bagwise.app.model.parts import Head
from bagwise.errors import BagwiseError
from bagwise.merging.hierarchy import Hierarchy
from bagwise.runtime import merges_of

if TYPE_CHECKING:
    from bagwise.app.model.model import Model

__all__ = ["check_flattened", "trim_parameters", "with_derived_head", "word_mass"]

# Most groups whose numbers take two bytes.
_MOST_GROUPS = 1 << 16


def word_mass(model: Model) -> NDArray[np.float64]:
    """Return how much each word counts: occurrences times weights, as far as the model has them."""
    mass = np.ones(model.hierarchy.n_words) if model.word_totals is None else np.maximum(model.word_totals, 0.0)
    return mass if model.word_weights is None else mass * model.word_weights


def derive_head(model: Model, head: Head, labels: NDArray[np.int64], n: int) -> Head:
    r"""Derive a classifier for n groups from that for other groups, most often parts of these.

    If every part p of a group always had the same share :math:`s_p` of its sum, features of parts would be s_p f, or
    :math:`\sqrt{s_p} f` after square roots, and the weight :math:`\sum_p s_p w_p`, or :math:`\sum_p \sqrt{s_p} w_p`,
    would give the same scores. Where groups were edited, p is what a group shares with one of the classifier's, and
    :math:`w_p` the weight of that: sums of words keep it; square roots of sums share it among the parts, each
    :math:`\sqrt{r_p} w` with its share :math:`r_p` of the classifier's group. Shares are those of all occurrences, see
    `word_mass`. The intercept stays.

    Parameters
    ----------
    model : Model
        Cut at n groups.
    head : Head
    labels : ndarray of shape (d,)
        The group of each word that the head is for.
    n : int
    """
    coarse, mass, n_fine = model.hierarchy.cut(n), word_mass(model), int(labels.max()) + 1
    pairs, parts = np.unique(labels * n + coarse, return_inverse=True)
    fine, whole = pairs // n, pairs % n  # the groups that each part is in, of the head and of the model
    masses: NDArray[np.float64] = np.bincount(parts, mass).astype(np.float64)
    shares, n_classes = _shares(masses, whole, n), len(model.classes)
    factors = np.sqrt(shares * _shares(masses, fine, n_fine)) if "power" in model.normalize else shares
    weights = head.coef.astype(np.float64).reshape(model.layout.width(n_classes), n_fine)[:, fine] * factors
    coef = np.stack([np.bincount(whole, row, n) for row in weights]).astype(np.float32)
    return Head(coef.reshape(n_classes, -1), head.intercept)


def _shares(masses: NDArray[np.float64], groups: NDArray[np.int64], n: int) -> NDArray[np.float64]:
    """Return the share of each part in its group; in a group without occurrences all parts count the same."""
    totals, equal = np.bincount(groups, masses, n)[groups], 1 / np.bincount(groups, minlength=n)[groups]
    return np.where(totals > 0, masses / np.where(totals > 0, totals, 1), equal)


def with_derived_head(model: Model) -> None:
    """Add the classifier of a model that has just been cut, if it has none; ``provenance["derived_head"]`` says so.

    It is derived from that for the smallest number of groups that is not below n. An edited model also has those of
    before, for groups that were edited, or else the largest of them. One that was derived for another cut is left out,
    unless larger ones were trimmed.
    """
    n, before = model.n_groups, model.provenance.get("derived_head")
    derived_for = before.get("n_groups") if isinstance(before, dict) else None
    if derived_for == n:
        return
    heads = {size: head for size, head in model.heads.items() if size != derived_for or size == model.flattened}
    told = {name: value for name, value in model.provenance.items() if name != "derived_head"}
    sources = {size: (head, model.hierarchy) for size, head in heads.items()}
    larger = min((size for size in heads if size > n), default=None)
    if model.unedited is not None:
        sources = {size: (head, model.unedited.hierarchy) for size, head in model.unedited.trained.items()} | sources
        larger = min((size for size in sources if size >= n), default=max(sources, default=None))
    if n not in heads and larger is not None:
        head, hierarchy = sources[larger]
        heads[n] = derive_head(model, head, hierarchy.cut(larger), n)
        told["derived_head"] = {"n_groups": n, "from": larger}
    model._set(heads=dict(sorted(heads.items())), provenance=told)


def trim_parameters(model: Model) -> dict[str, Any]:
    """Return the parameters of a model without what its number of groups does not need; see `Model.trim`."""
    n, hierarchy = model.n_groups, model.hierarchy
    changes: dict[str, Any] = {
        name: {size: one for size, one in getattr(model, name).items() if size <= n}
        for name in ("heads", "calibration")
    }
    if hierarchy.min_groups <= n < (model.flattened or hierarchy.n_words) and n <= _MOST_GROUPS:
        n_done = hierarchy.n_words - n
        merges = np.concatenate([merges_of(hierarchy.cut(n)), hierarchy.merges[n_done:]])
        scores = np.concatenate([np.full(n_done, np.nan), hierarchy.scores[n_done:]])
        changes |= {"hierarchy": Hierarchy(hierarchy.n_words, merges, scores, hierarchy.criterion), "flattened": n}
    changes |= without_edits(model)
    return model.parameters() | changes


def without_edits(model: Model) -> dict[str, Any]:
    """Return the parameters of a model that keeps its groups, but not what they were, or can be merged again from."""
    told = {} if not model.edits else {"provenance": {**model.provenance, "n_edits": len(model.edits)}}
    return {"edits": (), "unedited": None, "group_statistics": None, **told}


def check_flattened(hierarchy: Hierarchy, flattened: Any) -> None:
    """Raise an error unless the merges that lead to a number of groups say nothing but which groups these are."""
    if flattened is None:
        return
    n = check_integer(flattened, "flattened", 1)
    n_done = hierarchy.n_words - n
    sound = max(1, hierarchy.min_groups) <= n < hierarchy.n_words and n <= _MOST_GROUPS
    if not sound or not np.isnan(hierarchy.scores[:n_done]).all():
        raise BagwiseError(
            f"flattened must be a number of groups below that of the words, {hierarchy.n_words}, up to which the "
            f"hierarchy has no scores; got {n}."
        )
    if not np.array_equal(merges_of(hierarchy.cut(n)), hierarchy.merges[:n_done]):
        raise BagwiseError(f"The first {n_done} merges must join the words of each of {n} groups to its first word.")
