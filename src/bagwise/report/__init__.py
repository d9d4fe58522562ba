"""Pages people look at: what was fitted, what a search found, how criteria compare."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
