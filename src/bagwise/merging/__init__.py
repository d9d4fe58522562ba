"""Merging words: criteria, searches, the hierarchy they find, and the estimators over them."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
