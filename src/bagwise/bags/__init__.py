"""Ragged sets of vectors, one bag an item, in memory or in files that are mapped."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
