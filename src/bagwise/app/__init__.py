"""The application: a source in; a model, an index, a report or an explorer out.

The library, everything outside this package, never imports it.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
