"""The seam to CUDA devices: where arrays live, what `device` means, memory of a device."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from bagwise import BagwiseError
from bagwise._utils import devices
from bagwise._utils.checks import as_numpy
from bagwise._utils.devices import check_device_memory, device_module, is_on_device, to_device, to_host, where_given


class OnDevice:
    """As little of an array on a device as is looked at."""

    nbytes = 800

    def __dlpack_device__(self):
        return 2, 0

    def get(self):
        return np.arange(3)


class NoDevice(RuntimeError):
    pass


def fake_cupy(n_devices, free=1000, held=0):
    def count():
        if n_devices is None:
            raise NoDevice("cudaErrorNoDevice")
        return n_devices

    runtime = SimpleNamespace(getDeviceCount=count, CUDARuntimeError=NoDevice, memGetInfo=lambda: (free, 10_000))
    pool = SimpleNamespace(free_bytes=lambda: held)
    return SimpleNamespace(cuda=SimpleNamespace(runtime=runtime), get_default_memory_pool=lambda: pool)


@pytest.mark.parametrize("array", [[1.0], np.ones(2), np.ones((2, 2))[:, 0], "text", None])
def test_what_is_on_the_host_is_computed_there(array):
    assert not is_on_device(array)
    assert device_module(None, array) is np
    assert to_host(array) is array


def test_other_devices_are_refused_by_name():
    with pytest.raises(BagwiseError, match=r"device must be 'cpu', 'cuda' or None .* got 'gpu'"):
        device_module("gpu")


@pytest.mark.parametrize("arguments", [("cuda",), (None, OnDevice())])
def test_without_cupy_the_error_names_the_extra(monkeypatch, arguments):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BagwiseError, match=r'needs cupy. Install it with: pip install "bagwise\[gpu\]"'):
        device_module(*arguments)


@pytest.mark.parametrize("n_devices", [None, 0])
def test_without_a_device_the_error_says_so(monkeypatch, n_devices):
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(n_devices))
    with pytest.raises(BagwiseError, match=r"CuPy finds no CUDA device.*device='cpu'"):
        device_module("cuda")
    assert device_module("cpu", OnDevice()) is np


def test_arrays_on_a_device_choose_it(monkeypatch):
    cupy = fake_cupy(1)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert device_module(None, OnDevice()) is device_module("cuda", [1]) is cupy
    assert device_module(None, [1], OnDevice()) is np  # the first decides


def test_results_go_where_the_input_was():
    array, there = np.ones(2), OnDevice()
    assert where_given(there, there) is there
    np.testing.assert_array_equal(where_given(there, array), np.arange(3))
    np.testing.assert_array_equal(as_numpy(there), np.arange(3))
    assert where_given(array, array) is array


def test_memory_of_the_device_is_checked_with_what_will_be_copied(monkeypatch):
    monkeypatch.setattr(devices, "_cupy", lambda: fake_cupy(1, free=1500, held=500))
    check_device_memory(1000, "Sums", arrays=[np.ones(100), OnDevice()])
    with pytest.raises(BagwiseError, match=r"Sums need 1.81 kB on the device; 2.00 kB are free there, .* or wait\."):
        check_device_memory(1008, "Sums", "wait", arrays=[np.ones(100)] * 1)


def test_arrays_of_either_module_stay_or_are_converted(xp):
    held = xp.arange(6.0).reshape(2, 3)
    assert to_device(held, xp) is held
    assert is_on_device(held) is (xp is not np)
    narrow = to_device([[1, 2]], xp, np.float32)
    assert isinstance(narrow, xp.ndarray)
    assert narrow.dtype == np.float32
    turned = to_device(held.T, xp)
    assert turned.flags.c_contiguous
    np.testing.assert_array_equal(to_host(turned), np.arange(6.0).reshape(2, 3).T)
    assert isinstance(to_host(turned), np.ndarray)
    np.testing.assert_array_equal(to_device(held, np), np.arange(6.0).reshape(2, 3))


def test_tensors_come_in_by_dlpack_without_copies(xp):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6.0, requires_grad=True, device="cpu" if xp is np else "cuda")
    found = to_device(tensor, xp)
    assert isinstance(found, xp.ndarray)
    pointer = found.ctypes.data if xp is np else found.data.ptr
    assert pointer == tensor.data_ptr()
    assert device_module(None, tensor) is xp


@pytest.mark.cuda
def test_more_than_the_device_has_is_refused():
    with pytest.raises(BagwiseError, match=r"A few numbers need 9007.20 TB on the device"):
        check_device_memory(1 << 53, "A few numbers")
