"""Other numbers of groups: classifiers derived for them, and what is left out of a model that needs no larger ones."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import as_count
from bagwise.errors import BagwiseError
from bagwise.merging.hierarchy import Hierarchy
from bagwise.model.parts import Head
from bagwise.runtime import merges_of

if TYPE_CHECKING:
    from bagwise.model.model import Model

__all__ = ["check_flattened", "trim_parameters", "with_derived_head", "word_mass"]

# Most groups whose numbers take two bytes.
_MOST_GROUPS = 1 << 16


def word_mass(model: Model) -> NDArray[np.float64]:
    """Return how much each word counts: occurrences times weights, as far as the model has them."""
    mass = np.ones(model.hierarchy.n_words) if model.word_totals is None else np.maximum(model.word_totals, 0.0)
    return mass if model.word_weights is None else mass * model.word_weights


def derive_head(model: Model, larger: int, n: int) -> Head:
    r"""Derive a classifier for n groups from that for a larger number of groups, of which each is a part of one.

    If every part g of a group always had the same share s_g of its sum, features of parts would be s_g f, or
    :math:`\sqrt{s_g} f` after square roots, and the weight :math:`\sum_g s_g w_g`, or :math:`\sum_g \sqrt{s_g} w_g`,
    would give the same scores. Shares are those of all occurrences, see `word_mass`. The intercept stays.
    """
    fine, coarse = model.hierarchy.cut(larger), model.hierarchy.cut(n)
    whole = np.empty(larger, dtype=np.int64)
    whole[fine] = coarse  # the group that each part is in
    parts = np.bincount(fine, word_mass(model), larger)
    totals = np.bincount(whole, parts, n)
    equal = 1 / np.bincount(whole, minlength=n)  # in a group without occurrences all parts count the same
    shares = np.where(totals[whole] > 0, parts / np.where(totals > 0, totals, 1)[whole], equal[whole])
    factors = np.sqrt(shares) if "power" in model.normalize else shares
    head, n_classes = model.heads[larger], len(model.classes)
    weights = head.coef.astype(np.float64).reshape(n_classes * model.n_cells, larger) * factors
    coef = np.stack([np.bincount(whole, row, n) for row in weights]).astype(np.float32)
    return Head(coef.reshape(n_classes, -1), head.intercept)


def with_derived_head(model: Model) -> None:
    """Add the classifier of a model that has just been cut, if it has none; ``provenance["derived_head"]`` says so.

    One that was derived for another cut is left out, unless larger ones were trimmed.
    """
    n, before = model.n_groups, model.provenance.get("derived_head")
    derived_for = before.get("n_groups") if isinstance(before, dict) else None
    if derived_for == n:
        return
    heads = {size: head for size, head in model.heads.items() if size != derived_for or size == model.flattened}
    told = {name: value for name, value in model.provenance.items() if name != "derived_head"}
    larger = min((size for size in heads if size > n), default=None)
    if n not in heads and larger is not None:
        heads[n] = derive_head(model, larger, n)
        told["derived_head"] = {"n_groups": n, "from": larger}
    model._set(heads=dict(sorted(heads.items())), provenance=told)


def trim_parameters(model: Model) -> dict[str, Any]:
    """Return the parameters of a model without what its number of groups does not need; see `Model.trim`."""
    n, hierarchy = model.n_groups, model.hierarchy
    changes: dict[str, Any] = {
        name: {size: one for size, one in getattr(model, name).items() if size <= n}
        for name in ("heads", "calibration")
    }
    if model.tables is not None:  # groups of tables are no cut of the hierarchy, which has no classifiers
        changes["heads"] = {size: head for size, head in changes["heads"].items() if size == n}
    elif hierarchy.min_groups <= n < (model.flattened or hierarchy.n_words) and n <= _MOST_GROUPS:
        n_done = hierarchy.n_words - n
        merges = np.concatenate([merges_of(hierarchy.cut(n)), hierarchy.merges[n_done:]])
        scores = np.concatenate([np.full(n_done, np.nan), hierarchy.scores[n_done:]])
        changes |= {"hierarchy": Hierarchy(hierarchy.n_words, merges, scores, hierarchy.criterion), "flattened": n}
    return {one.name: getattr(model, one.name) for one in dataclasses.fields(model) if one.init} | changes


def check_flattened(hierarchy: Hierarchy, flattened: Any) -> None:
    """Raise an error unless the merges that lead to a number of groups say nothing but which groups these are."""
    if flattened is None:
        return
    n = as_count(flattened, "flattened", least=1)
    n_done = hierarchy.n_words - n
    sound = max(1, hierarchy.min_groups) <= n < hierarchy.n_words and n <= _MOST_GROUPS
    if not sound or not np.isnan(hierarchy.scores[:n_done]).all():
        raise BagwiseError(
            f"flattened must be a number of groups below that of the words, {hierarchy.n_words}, up to which the "
            f"hierarchy has no scores; got {n}."
        )
    if not np.array_equal(merges_of(hierarchy.cut(n)), hierarchy.merges[:n_done]):
        raise BagwiseError(f"The first {n_done} merges must join the words of each of {n} groups to its first word.")
