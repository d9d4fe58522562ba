"""Descriptors: from images to bags of vectors, or to histograms of patterns."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
