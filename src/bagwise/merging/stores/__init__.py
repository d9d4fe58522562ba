"""Where the statistics A and B of a trace-ratio criterion are kept while words are merged."""

from bagwise.merging.stores.dense import DenseStore, check_fits, check_memory

__all__ = ["DenseStore", "check_fits", "check_memory"]
