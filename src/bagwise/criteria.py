"""Criteria for merging words: pass one, or its short name, to `merge_words` or `WordMerger`."""

from bagwise.merging import criteria as _criteria
from bagwise.merging.criteria import *  # noqa: F403

__all__ = list(_criteria.__all__)
