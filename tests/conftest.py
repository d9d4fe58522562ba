import importlib
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings

from compiled import remove_stale
from slow import CHECKS, SLOW

# `make test` draws the same examples every time; `make properties` fresh ones and more of them, `make test-fast` fewer.
# Compiling makes first calls slow, so there is no deadline.
FACTORS = {"test": 0.7, "fast": 0.2, "fuzz": 10}
settings.register_profile("test", deadline=None, derandomize=True, database=None)
settings.register_profile("fast", settings.get_profile("test"))
settings.register_profile("fuzz", deadline=None, print_blob=True)
settings.load_profile("test")

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: left out of `make test-fast`")
    config.addinivalue_line("markers", "cuda: needs CuPy and a CUDA device, skipped without")
    if not hasattr(config, "workerinput"):  # before there are workers
        remove_stale()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if "not slow" in config.getoption("markexpr") and collection_path.is_relative_to(HERE):
        name = collection_path.relative_to(HERE).as_posix() + "/" * collection_path.is_dir()
        return True if name in SLOW else None  # not even imported
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        name = item.nodeid.removeprefix(f"{HERE.name}/").partition("[")[0]
        whole = tuple(entry for entry in SLOW if "::" not in entry)
        if name in SLOW or name.startswith(whole) or item.name.startswith(CHECKS):
            item.add_marker("slow")
    without = None if _has_device() else pytest.mark.skip(reason="no CUDA device, or no CuPy")
    for item in items:
        if without is not None and item.get_closest_marker("cuda"):
            item.add_marker(without)
    factor = FACTORS[config.getoption("--hypothesis-profile") or "test"]
    functions = {id(test): test for test in (getattr(item, "function", None) for item in items)}
    for test in functions.values():
        if factor != 1 and is_hypothesis_test(test):
            _scale_examples(test, factor)


def _has_device() -> bool:
    """Whether tests marked `cuda` can run."""
    try:
        import cupy
    except ImportError:
        return False
    try:
        return cupy.cuda.runtime.getDeviceCount() > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


@pytest.fixture(params=["numpy", pytest.param("cupy", marks=pytest.mark.cuda)])
def xp(request):
    """The array modules that code with a `device` runs on: NumPy always, CuPy where there is a device."""
    return importlib.import_module(request.param)


@pytest.fixture(scope="module")
def browser():
    """Chromium."""
    from browsing import CHROMIUM, playwright  # deferred: tests on a CUDA device run without what commands need

    with playwright().sync_playwright() as running:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-smooth-scrolling"]  # the wheel moves a page at once
        started = running.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield started
        started.close()


def _scale_examples(test, factor: float) -> None:
    """Multiply the number of examples of a test; a number given by its decorator would win over the profile's."""
    test = getattr(test, "__func__", test)
    drawn = test._hypothesis_internal_use_settings or settings()
    more = max(round(factor * drawn.max_examples), 1)
    test._hypothesis_internal_use_settings = settings(drawn, max_examples=more)
