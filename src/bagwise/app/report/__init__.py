"""Reports of models, comparisons of criteria and results of searches, as HTML pages and Markdown."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
