"""Libraries that only some parts need."""

from __future__ import annotations

import importlib
from typing import Any

from bagwise.errors import BagwiseError


def require(module: str, extra: str, purpose: str) -> Any:
    """Import a module of an optional dependency, or say how to install it.

    Parameters
    ----------
    module : str
        Name of the module, such as ``"PIL.Image"``.
    extra : str
        The extra of bagwise that installs it.
    purpose : str
        What needs it, as the subject of a sentence: ``"Reading images"``.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        if error.name is None or error.name.split(".")[0] != package:
            raise  # the library is there, but something it needs is not
        raise BagwiseError(f'{purpose} needs {package}. Install it with: pip install "bagwise[{extra}]"') from error
