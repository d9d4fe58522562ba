"""The explorer: a model and its items in the browser, served on this machine. Needs ``bagwise[app]``."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
