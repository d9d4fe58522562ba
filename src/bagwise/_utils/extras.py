"""Optional dependencies."""

from __future__ import annotations

import importlib
from typing import Any

from bagwise.errors import BagwiseError


def require(module: str, extra: str, purpose: str) -> Any:
    """Import a module such as ``"PIL.Image"``; if it is missing, the error names the extra of bagwise that installs it.

    `purpose` begins the sentence of the error, such as ``"Reading images"``.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        if error.name is None or error.name.split(".")[0] != package:
            raise  # the library is there, but something it needs is not
        raise BagwiseError(f'{purpose} needs {package}. Install it with: pip install "bagwise[{extra}]"') from error
