"""Regular expressions in files: those are accepted that find all tokens in linear time."""

import re

import numpy as np
import pytest

from bagwise import BagwiseError, Model, runtime
from changed_files import change_header
from models.make_models import text_model

SAFE = [
    *(r"(?u)\b\w\w+\b", r"\b\w+\b", r"\w+", r"\w\w+", r"(\w+)", r"\b(\w+)\b", r"(?:\w+)", r"\S+", r"[^\s]+", r"[^,]+"),
    *(r"[a-z]{3,}", r"\b[a-zA-Z]{3,}\b", r"\b\w{2,15}\b", r"\b\d{4}\b", r"(?u)\b[^\W\d_]+\b", r"\b[^\d\W]+\b"),
    *(r"\w+|\$[\d\.]+|\S+", r"\d+(?:\.\d+)?|\w+", r"https?://\S+|\w+", r"\b\w\w+\b|!|\?|\"|\'", r"\w+|[^\w\s]"),
    *(r"\w+(?:'\w+)?", r"\w+(?:[-']\w+)*", r"\b\w+(?:-\w+)*\b", r"\b[a-z]+(?:'[a-z]+)?\b", r"[\w']+", r"\b[\w'-]+\b"),
    *(r"[#@]?\w+", r"[A-Za-z0-9_\-]+", r"\b[A-Za-z][A-Za-z0-9]*\b", r"(?:\d{1,3}\.){3}\d{1,3}", r"[äöüßa-z]+", "."),
    *(r"[一-鿿]|\w+", r"x?(\w)\w", r"(a)|b", r"\b(?:he|she|her|his)\b", r"<[^>]{0,5}|\w+", r"\b.+\b", r"\w+?"),
    *(r"(?:a|aa)+", r"(?:\w+\s?)*", r"\$?\d+(?:,\d+)*(?:\.\d+)?%?", r"\b[A-Za-z][\w-]*\b", r"\b\w{2,}(?:['-]\w+)*\b"),
]
UNSAFE = [
    *(
        r"(?:a+)+b",
        r"(a|b|ab)*c",
        r"(?:a|aa)+b",
        r"(?:.*)*x",
        r"(?:\w+\s?)*$",
        r"(?:a*)*",
        r"(?:x?y?)*z",
        r"((a+)|b)*c",
    ),
    *(r"\w+\w+\w+x", r"\d+\d+", r".*.*x", r"[\s\S]*x", r"\w+[\w'-]*\w+", r"(?:a{1,9})+b", r"(?:(?:a{1,9})+)+b"),
    *(
        r"a+b",
        r"[a-z]+\b",
        r"\b\w(?:\w-\w)*\b",
        r"\w+$",
        r"(?:ab?)+?c",
        r"(\w)\1+",
        r"(?=.*x)\w+",
        r"(?i)a+",
        r"(?s).+",
    ),
    *(r"(?:\b\w+\b\s*)+x", r"(?:a?){30}a{30}", r"(?:a{1000}){1000}", r"a{1,60000}b", r"(?:a[ab]|[ab]a)" * 9),
    *("(?:" * 90 + "a" + "){8}" * 90, r"(?i:a)+", r"[éa]+[é]+", r"(?>a+)+b"),
    *(
        r"\b[a-z]*[a-z]*\b",
        r"\b.+(?:-.+)*\b",
        r"\b[a-z]+(?:[a-z]x)*\b",
        r"\b.{0,20}.{0,20}.*\b",
        r"(?:a+){2,}",
        r"a{0,99}b{0,99}c",
    ),
    *(
        "(?:a" * 90 + "){0,8}" * 90 + "b",
        "(?:(?:a|b)" * 90 + "){1,2}" * 90,
        r"\b\w+(?:-\w+){9,}\b",
        "|".join([r".{0,9}.{0,9}.{0,6}x"] * 40),
    ),
]


@pytest.mark.parametrize("pattern", SAFE)
def test_patterns_that_people_use_are_safe(pattern):
    assert runtime.unsafe_reason(pattern) == ""
    for text in ("a" * 20_000 + "!", "a-" * 10_000 + "1", "a'" * 10_000 + " ", "é1 " * 7_000, "a" + "-" * 20_000):
        re.findall(pattern, text)  # would take minutes in quadratic time


@pytest.mark.parametrize("pattern", UNSAFE)
def test_patterns_that_may_take_long_are_not(pattern):
    assert runtime.unsafe_reason(pattern)


def test_a_file_with_an_unsafe_pattern_is_loaded_only_by_those_who_trust_it(tmp_path):
    path = text_model(np.random.default_rng(0)).save(tmp_path / "m.bagwise")
    change_header(path, lambda header: header["tokenizer"].update(token_pattern=r"(?:a+)+b"))
    for load, error in ((Model.load, BagwiseError), (runtime.load, runtime.ModelFileError)):
        with pytest.raises(error, match=r"m.bagwise .*token_pattern '\(\?:a\+\)\+b' may take very long.*trust_pattern"):
            load(path)
        load(path, trust_pattern=True)
    trusted = Model.load(path, trust_pattern=True)
    trusted.transform(["aab"])
    with pytest.warns(UserWarning, match=r"token_pattern of this model may take very long .* trust_pattern=True"):
        trusted.save(tmp_path / "again.bagwise")
    change_header(path, lambda header: header["tokenizer"].update(token_pattern=r"\S+"))
    assert Model.load(path).tokenizer["token_pattern"] == r"\S+"
