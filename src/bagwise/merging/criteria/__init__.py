"""Criteria for merging, and the table of their short names."""

from __future__ import annotations

from bagwise.errors import BagwiseError, unknown_name
from bagwise.merging.criteria.base import AdditiveScore, Criterion, TraceRatio
from bagwise.merging.criteria.class_neighbors import LocalDiscriminant, MarginalFisher
from bagwise.merging.criteria.class_separability import ClassSeparability
from bagwise.merging.criteria.graph_pair import GraphPair
from bagwise.merging.criteria.information import InformationLoss, SampleInformationLoss
from bagwise.merging.criteria.linkage import Linkage
from bagwise.merging.criteria.locality import LocalityPreserving
from bagwise.merging.criteria.margin import Margin
from bagwise.merging.criteria.nonparametric import NonparametricDiscriminant
from bagwise.merging.criteria.posterior import ClassPosterior, GaussianLikelihood, MultinomialPosterior
from bagwise.merging.criteria.semi_supervised import SemiSupervised

__all__ = [
    "AdditiveScore",
    "ClassPosterior",
    "ClassSeparability",
    "Criterion",
    "GaussianLikelihood",
    "GraphPair",
    "InformationLoss",
    "Linkage",
    "LocalDiscriminant",
    "LocalityPreserving",
    "Margin",
    "MarginalFisher",
    "MultinomialPosterior",
    "NonparametricDiscriminant",
    "SampleInformationLoss",
    "SemiSupervised",
    "TraceRatio",
]

# A criterion that works with its default parameters is found here by its name.
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
        ClassPosterior,
        MultinomialPosterior,
        GaussianLikelihood,
        Margin,
        Linkage,
    )
}


def resolve_criterion(criterion: object) -> Criterion:
    """Turn a name or an object into a criterion."""
    if isinstance(criterion, Criterion):
        return criterion
    if isinstance(criterion, str) and criterion.lower() in NAMED_CRITERIA:
        return NAMED_CRITERIA[criterion.lower()]()
    if isinstance(criterion, type) and issubclass(criterion, Criterion):
        raise BagwiseError(f"criterion is the class {criterion.__name__}; pass an object, {criterion.__name__}(...).")
    raise unknown_name("criterion", criterion, NAMED_CRITERIA, "an object from bagwise.criteria")
