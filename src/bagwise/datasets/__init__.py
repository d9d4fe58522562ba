"""Small data that travel with the library, made by code, and data sets of others that scikit-learn downloads."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
