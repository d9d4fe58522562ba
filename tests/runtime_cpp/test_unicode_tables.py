"""The generated tables of Unicode are those of this Python."""

import importlib.util
import unicodedata

import pytest

from runtime_cpp.binding import SOURCES


def test_tables_are_current():
    spec = importlib.util.spec_from_file_location("unicode_tables", SOURCES / "unicode_tables.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    source = made.HEADER.read_text("utf-8")
    if f"// Unicode {unicodedata.unidata_version}:" not in source:
        pytest.skip(f"this Python has Unicode {unicodedata.unidata_version}, the header another")
    assert made.with_tables(source) == source, "run: python runtime/cpp/unicode_tables.py"
