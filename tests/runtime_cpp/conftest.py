"""Builds of the C++ runtime, kept between runs by what they are built from."""

import hashlib
import os
from pathlib import Path

import pytest

from bagwise._io.locks import locked
from runtime_cpp import binding

SANITIZED = ("-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror")


def built(source, *flags, shared):
    if binding.compiler() is None:
        pytest.skip("there is no C++ compiler: the C++ runtime is not tested")
    files = sorted({*binding.SOURCES.glob("bagwise*"), Path(binding.__file__), source})
    content = b"".join(file.read_bytes() for file in files) + repr((flags, binding.compiler())).encode()
    folder = binding.SOURCES.parents[1] / "build" / "tests-cpp"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{source.stem}-{hashlib.sha256(content).hexdigest()[:16]}"
    lock = folder / f"lock-{source.stem}"
    lock.touch()
    with locked(lock):  # another worker may build it
        if not target.exists():
            for old in folder.glob(f"{source.stem}-*"):
                old.unlink(missing_ok=True)
            os.replace(binding.build(folder / f"{source.stem}-part", *flags, source=source, shared=shared), target)
    return target


@pytest.fixture(scope="session")
def cpp():
    """The C interface."""
    library = built(binding.SOURCES / "bagwise_c.cpp", *binding.PLAIN, shared=True)
    return binding.Runtime(library)


@pytest.fixture(scope="session")
def driver():
    """A program that loads models and classifies items, with sanitizers."""
    return built(Path(__file__).with_name("driver.cpp"), *SANITIZED, shared=False)
