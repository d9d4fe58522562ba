"""Criteria for merging words: pass one, or its short name, to `merge_words` or `WordMerger`."""

from bagwise.merging.criteria import (
    ClassSeparability,
    Criterion,
    GraphPair,
    LocalDiscriminant,
    LocalityPreserving,
    MarginalFisher,
    NonparametricDiscriminant,
    SemiSupervised,
    TraceRatio,
)

__all__ = [
    "ClassSeparability",
    "Criterion",
    "GraphPair",
    "LocalDiscriminant",
    "LocalityPreserving",
    "MarginalFisher",
    "NonparametricDiscriminant",
    "SemiSupervised",
    "TraceRatio",
]
