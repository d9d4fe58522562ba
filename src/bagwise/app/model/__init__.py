"""`Model`: from items to compact features and classes; its file, and its export to ONNX."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
