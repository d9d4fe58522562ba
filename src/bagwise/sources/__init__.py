"""Collections of things: images, texts, videos and tables, in folders, archives and files."""

import lazy_loader as _lazy

_attached, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name == "ArchiveLimits":  # of earlier versions
        from bagwise.sources.limits import former_limits

        return former_limits
    return _attached(name)
