"""Collections of things: images, texts, videos and tables, in folders, archives and files."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
