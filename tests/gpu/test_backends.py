"""The seam between packages and `bagwise.gpu`: the same functions on both sides, which load no library for devices."""

import importlib
import inspect
import re
import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest

from bagwise import BagwiseError
from bagwise._utils import backends
from bagwise._utils.backends import BACKENDS, backend


def parameters_of(function):
    """Names of the parameters that every implementation takes, in their order."""
    names = inspect.signature(function.__init__ if inspect.isclass(function) else function).parameters
    return [name for name in names if name not in ("self", "xp", "where")]


@pytest.mark.parametrize("name", sorted(BACKENDS))
@pytest.mark.parametrize("place", [0, 1], ids=["host", "gpu"])
def test_both_sides_have_the_functions_of_the_protocol(name, place):
    protocol = getattr(backends, name.capitalize())
    wanted = {key: value for key, value in vars(protocol).items() if inspect.isfunction(value) and key[0] != "_"}
    wanted.pop("__init__", None)
    assert wanted
    module = importlib.import_module(BACKENDS[name][place])
    for key, function in wanted.items():
        found = getattr(module, key)
        if found is np.ascontiguousarray:
            continue
        common, given = parameters_of(function), parameters_of(found)
        if len(common) <= 2:  # given by position
            common, given = common[:0], given[len(common) :]
        assert given[: len(common)] == common, (key, common, given)


def test_a_backend_is_chosen_by_the_device_or_by_the_arrays():
    for name, (host, _) in BACKENDS.items():
        for arguments in ((), ("cpu",), (None, np.ones(3)), (None, [1, 2])):
            assert backend(name, *arguments).__name__ == host
    with pytest.raises(BagwiseError, match="device must be 'cpu', 'cuda' or None"):
        backend("kernels", "gpu")


def test_sources_have_the_kernels_that_are_launched():
    for path in sorted(files("bagwise.gpu").iterdir(), key=str):
        text = path.read_text("utf-8") if path.name.endswith(".py") else ""
        for source in re.findall(r'Source\(\s*"(\w+)"', text):
            code = (files("bagwise.gpu") / "cu" / f"{source}.cu").read_text("utf-8")
            launched = set(re.findall(r'_SOURCE\.(?:launch|function)\(f?"(\w+)', text))
            assert launched, path
            for kernel in launched:
                assert re.search(rf"__global__ void (__launch_bounds__\([\d, ]+\) )?{kernel}\(", code), (source, kernel)


def test_it_is_imported_without_libraries_for_devices():
    modules = [gpu for _, gpu in BACKENDS.values()]
    code = f"import sys, importlib; [importlib.import_module(m) for m in {modules}]; print('cupy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
