"""Compact, discriminative bags of words.

The public names are listed in ``__init__.pyi`` and loaded when first used, so that ``import bagwise`` is cheap.
"""

import lazy_loader as _lazy

__version__ = "0.4.0"

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
__all__ = [name for name in __all__ if name != "nn"] + ["__version__"]  # `import *` does without PyTorch
