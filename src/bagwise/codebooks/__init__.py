"""Codebooks: learning words from vectors, and turning bags of vectors into histograms of words."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
