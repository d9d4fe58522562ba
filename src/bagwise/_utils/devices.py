"""Where arrays live: NumPy's on the host, CuPy's on a CUDA device. The one place that resolves `device`.

Functions with a parameter `device` call `device_module` once, convert their arrays by `to_device`, compute with the
array module they got, and give results back where the inputs were, by `where_given`. Nothing here imports CuPy before
a device is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from bagwise._utils.extras import require
from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError

__all__ = [
    "check_device_memory",
    "check_on_device",
    "device_module",
    "free_device_memory",
    "is_on_device",
    "to_device",
    "to_host",
]
__all__ += ["where_given"]

# The code of CUDA in DLPack.
_CUDA = 2
# Fraction of the free memory of a device that may be used.
_FRACTION = 0.9


def is_on_device(array: Any) -> bool:
    """Whether an array, of CuPy, PyTorch or any library that speaks DLPack, lives on a CUDA device."""
    if isinstance(array, np.ndarray):
        return False
    if not hasattr(array, "__dlpack_device__"):
        return type(array).__module__.startswith("cupyx.")  # a sparse matrix
    return int(array.__dlpack_device__()[0]) == _CUDA


def device_module(device: str | None, *arrays: Any) -> Any:
    """Resolve the parameter `device`: the module `numpy`, or `cupy`.

    None computes where the first of the `arrays` lives, which is the host for anything but arrays of CuPy and tensors
    on a CUDA device. "cuda" is the current device of CuPy.

    >>> device_module(None, [1.0]).__name__, device_module("cpu").__name__
    ('numpy', 'numpy')
    """
    if device not in (None, "cpu", "cuda"):
        raise BagwiseError(
            f"device must be 'cpu', 'cuda' or None (where the arrays are), got {device!r}. "
            "One of several devices is chosen by CUDA_VISIBLE_DEVICES, or by cupy.cuda.Device(number).use()."
        )
    if device == "cpu" or (device is None and not (arrays and is_on_device(arrays[0]))):
        return np
    return _cupy()


def _cupy() -> Any:
    cupy = require("cupy", "gpu", "Computing on a CUDA device")
    try:
        n_devices = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BagwiseError(f"CuPy finds no CUDA device ({error}). Use device='cpu', or install a driver.") from error
    if n_devices == 0:
        raise BagwiseError("CuPy finds no CUDA device. Use device='cpu'.")
    return cupy


def to_device(array: Any, xp: Any, dtype: Any = None) -> Any:
    """Return a C-contiguous array of the module `xp`; a copy only if the array lives elsewhere, or its type changes."""
    if xp is np:
        return np.ascontiguousarray(to_host(array), dtype=dtype)
    if not isinstance(array, xp.ndarray) and is_on_device(array):
        if type(array).__module__.startswith("cupyx."):
            raise BagwiseError("Sparse matrices on a device are not accepted. Give SciPy's, or a dense array.")
        array = xp.from_dlpack(array.detach() if hasattr(array, "detach") else array)
    return xp.ascontiguousarray(xp.asarray(to_host(array) if hasattr(array, "detach") else array, dtype=dtype))


def to_host(array: Any) -> Any:
    """Copy what lives on a device, or is a tensor of PyTorch, to an array of NumPy; other things stay as they are."""
    if hasattr(array, "detach") and hasattr(array, "cpu"):
        return array.detach().cpu().numpy()
    if not is_on_device(array):
        return array
    return array.get() if hasattr(array, "get") else np.asarray(array)


def where_given(result: Any, like: Any) -> Any:
    """Return a result where the array `like` lives: on the host unless that is on a device."""
    return result if is_on_device(like) else to_host(result)


def free_device_memory() -> int:
    """Return the free bytes of the current device, those that CuPy holds and does not use among them."""
    cupy = _cupy()
    return int(cupy.cuda.runtime.memGetInfo()[0]) + int(cupy.get_default_memory_pool().free_bytes())


def check_device_memory(need: int, what: str, advice: str = "use device='cpu'", arrays: Iterable[Any] = ()) -> None:
    """Raise an error if `need` bytes exceed 90 % of the free memory of the device; call it before allocating.

    `what` begins the message ("The similarities of 10000 pairs"), `advice` ends it. The bytes of `arrays` that are on
    the host and will be copied are added.
    """
    need += sum(int(array.nbytes) for array in arrays if not is_on_device(array))
    free = free_device_memory()
    if need > _FRACTION * free:
        raise BagwiseError(
            f"{what} need {readable_size(need)} on the device; {readable_size(free)} are free there, of which 90 % may "
            f"be used. Ways out: free memory of the device (cupy.get_default_memory_pool().free_all_blocks(), "
            f"torch.cuda.empty_cache()), or {advice}."
        )


def check_on_device(X: Any, least_samples: int = 1) -> Any:
    """Return data that live on a device as an array of CuPy, C-contiguous: samples x words, finite, float64 or float32.

    A tensor of PyTorch is not copied.
    """
    xp = device_module(None, X)
    X = to_device(X, xp)
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    if X.ndim != 2 or X.shape[0] < least_samples or X.shape[1] < 1:
        raise BagwiseError(f"X must be a matrix of at least {least_samples} samples by words; got shape {X.shape}.")
    if not bool(xp.isfinite(X).all()):
        raise BagwiseError("X must hold finite numbers, but some are NaN or infinite.")
    return X
