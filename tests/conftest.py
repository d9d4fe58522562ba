import pytest
from hypothesis import is_hypothesis_test, settings

# `make test` draws the same examples every time; `make fuzz` draws fresh ones, and FUZZ_FACTOR times as many.
# Compiling makes first calls slow, so there is no deadline.
settings.register_profile("test", deadline=None, derandomize=True, database=None)
settings.register_profile("fuzz", deadline=None, print_blob=True)
settings.load_profile("test")

FUZZ_FACTOR = 10


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--hypothesis-profile") == "fuzz":
        functions = [getattr(item, "function", None) for item in items]
        for function in {id(function): function for function in functions if is_hypothesis_test(function)}.values():
            _draw_more(function)


def _draw_more(test) -> None:
    """Multiply the number of examples of a test; a number given by its decorator would win over the profile's."""
    test = getattr(test, "__func__", test)
    drawn = test._hypothesis_internal_use_settings or settings()
    test._hypothesis_internal_use_settings = settings(drawn, max_examples=FUZZ_FACTOR * drawn.max_examples)
