"""Topic models on counts, and what is made of them: tables, scores of documents, a classifier."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
