"""Charts, trees of groups and pictures: what notebooks, reports and the explorer draw with."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
