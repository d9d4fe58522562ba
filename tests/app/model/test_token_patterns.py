"""Regular expressions in files: a list of them is accepted, which find all tokens in linear time."""

import re

import numpy as np
import pytest

from bagwise import BagwiseError, Model, runtime
from changed_files import change_header
from model_cases import text_model

LISTED = [
    *(r"(?u)\b\w\w+\b", r"\b\w+\b", r"\w+", r"\w\w+", r"\S+", r"[^\s]+", r"[a-z]{3,}", r"\b[a-zA-Z]{3,}\b"),
    *(r"\b\w{2,15}\b", r"(?u)\b[^\W\d_]+\b", r"[\w']+", r"\b[\w'-]+\b", r"\w+(?:'\w+)?", r"\w+(?:[-']\w+)*"),
    *(r"\b\w+(?:-\w+)*\b", r"(?u)\w{99,}"),
]
OTHERS = [
    *(r"(?:a+)+b", r"(a|b|ab)*c", r"(?:.*)*x", r"(?:\w+\s?)*$", r"\w+\w+", r".*.*x", r"(?:a{1,9})+b", r"a+b", r"\w+x"),
    *(r"\w+$", r"(\w)\1+", r"(?=.*x)\w+", r"(?i)\w+", r"(?s)\w+", r"\w+\b", r"\b\w+", r"\w{100,}", r"\w{0,}", r"\w*"),
    *(r"\w\S+", r"\w+ ", r"(?u)", r"\b\b", r"\b\w+(?:-\w+)*\b+", r"\w+\n", "\\w+\n", r"(?u)(?u)\w+", ""),
]
EVERY = [
    border + pattern + border
    for border in ("", r"\b")
    for pattern in (
        *(one + times for one in runtime.CHARACTERS for times in ("+", f"{one}+", "{2,}", "{50,}", "{2,15}")),
        *runtime.COMPOUNDS,
    )
]


@pytest.mark.parametrize("pattern", LISTED)
def test_patterns_that_people_use_are_accepted(pattern):
    assert runtime.is_accepted_pattern(pattern)


@pytest.mark.parametrize("pattern", OTHERS)
def test_other_patterns_are_not(pattern):
    assert not runtime.is_accepted_pattern(pattern)


@pytest.mark.parametrize("pattern", EVERY)
def test_every_accepted_pattern_takes_linear_time(pattern):
    assert runtime.is_accepted_pattern(pattern)
    for text in ("a" * 20_000 + "!", "a-" * 10_000 + "1", "a'" * 10_000 + " ", "aé1 " * 5_000, "a" + "-" * 20_000):
        re.findall(pattern, text)  # would take minutes in quadratic time


def test_a_file_with_another_pattern_is_loaded_only_by_those_who_trust_it(tmp_path):
    path = text_model(np.random.default_rng(0)).save(tmp_path / "m.bagwise")
    change_header(path, lambda header: header["tokenizer"].update(token_pattern=r"(?:a+)+b"))
    for load, error in ((Model.load, BagwiseError), (runtime.load, runtime.ModelFileError)):
        with pytest.raises(error, match=r"m.bagwise .*token_pattern '\(\?:a\+\)\+b' is not one of.*trust_pattern"):
            load(path)
        load(path, trust_pattern=True)
    trusted = Model.load(path, trust_pattern=True)
    trusted.transform(["aab"])
    with pytest.warns(UserWarning, match=r"token_pattern .* of this model is not one of .* trust_pattern=True"):
        trusted.save(tmp_path / "again.bagwise")
    change_header(path, lambda header: header["tokenizer"].update(token_pattern=r"\S+"))
    assert Model.load(path).tokenizer["token_pattern"] == r"\S+"
