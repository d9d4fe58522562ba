"""What merging is compared with: mRMR, hashing, divisive clustering (DITC), the confidence-weighted classifier."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
