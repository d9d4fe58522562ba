"""Criteria for merging, and the table of their short names: the one place where a criterion is registered."""

from __future__ import annotations

from bagwise.errors import BagwiseError, unknown_name
from bagwise.merging.criteria.base import AdditiveScore, Criterion, TraceRatio
from bagwise.merging.criteria.classifier import ClassifierLoss
from bagwise.merging.criteria.clusters import Clusters
from bagwise.merging.criteria.information import InformationLoss, SampleInformationLoss
from bagwise.merging.criteria.neighbor_graphs import (
    LocalDiscriminant,
    LocalityPreserving,
    MarginalFisher,
    NonparametricDiscriminant,
)
from bagwise.merging.criteria.others import Linkage, Margin
from bagwise.merging.criteria.posterior import ClassPosterior, GaussianLikelihood, MultinomialPosterior
from bagwise.merging.criteria.separability import ClassSeparability, GraphPair, SemiSupervised

# Criteria that work with their default parameters are found here by their names.
NAMED_CRITERIA: dict[str, type[Criterion]] = {
    criterion.name: criterion
    for criterion in (
        ClassSeparability,
        NonparametricDiscriminant,
        MarginalFisher,
        LocalDiscriminant,
        LocalityPreserving,
        SemiSupervised,
        InformationLoss,
        SampleInformationLoss,
        Clusters,
        ClassPosterior,
        MultinomialPosterior,
        GaussianLikelihood,
        ClassifierLoss,
        Margin,
        Linkage,
    )
}
# What `bagwise.criteria` offers.
__all__ = ["AdditiveScore", "Criterion", "GraphPair", "TraceRatio"]
__all__ += sorted(criterion.__name__ for criterion in NAMED_CRITERIA.values())


def resolve_criterion(criterion: object, *, has_labels: bool = True, of_ratios: bool = False) -> Criterion:
    """Turn a name or an object into a criterion, and check its parameters.

    "auto" is AIB with labels and clusters without; `of_ratios`, with options that only trace ratios have, CSM and LPP.

    >>> resolve_criterion("auto"), resolve_criterion("auto", has_labels=False)
    (InformationLoss(), Clusters())
    """
    if isinstance(criterion, str) and criterion.lower() == "auto":
        of_words = (ClassSeparability, LocalityPreserving) if of_ratios else (InformationLoss, Clusters)
        return of_words[0 if has_labels else 1]()
    if isinstance(criterion, Criterion):
        criterion._validate_params()
        return criterion
    if isinstance(criterion, str) and criterion.lower() in NAMED_CRITERIA:
        return NAMED_CRITERIA[criterion.lower()]()
    if isinstance(criterion, type) and issubclass(criterion, Criterion):
        raise BagwiseError(f"criterion is the class {criterion.__name__}; pass an object, {criterion.__name__}(...).")
    raise unknown_name("criterion", criterion, ("auto", *NAMED_CRITERIA), "an object from bagwise.criteria")
