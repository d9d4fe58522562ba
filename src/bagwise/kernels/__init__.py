"""Additive kernels between histograms, kernels learned from labels, and the Fisher score."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
