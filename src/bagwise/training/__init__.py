"""From a folder to an answer: learn a model, evaluate it, compare criteria, and tell what was found."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
