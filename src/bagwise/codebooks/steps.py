"""Names of the steps that normalise histograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bagwise.errors import BagwiseError, unknown_name

__all__ = ["STEPS", "resolve_steps"]

STEPS = ("l1", "power", "l2")


def resolve_steps(steps: Any) -> tuple[str, ...]:
    """Turn the name of a step, several of them, or None into a tuple of names."""
    given = () if steps is None else (steps,) if isinstance(steps, str) else steps
    if not isinstance(given, (Sequence, np.ndarray)):
        raise BagwiseError(f"Steps are a name or a list of names out of {', '.join(STEPS)}; got {steps!r}.")
    for step in given:
        if step not in STEPS:
            raise unknown_name("step", step, STEPS)
    return tuple(given)
