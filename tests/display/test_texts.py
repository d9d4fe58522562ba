import os
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise._utils.text import count, how_many
from bagwise.app.report.markdown import escaped
from bagwise.display.texts import clean, number, one_line, percent, percent_of, plain, seconds

TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@given(st.text(st.characters()))
def test_clean_texts_can_be_encoded_and_hide_nothing(text):
    shown = clean(text)
    shown.encode("utf-8")
    assert clean(shown) == shown
    assert not {unicodedata.category(character) for character in shown if character not in "\n\t"} & {"Cc", "Cs"}
    assert not {unicodedata.bidirectional(character) for character in shown} & TURNING
    assert "\n" not in one_line(text)
    assert one_line(text).strip()


@given(st.binary(max_size=20))
def test_bytes_of_names_can_be_read_off(name):
    shown = clean(os.fsdecode(name))
    wrong = [byte for byte in os.fsdecode(name) if 0xDC80 <= ord(byte) <= 0xDCFF]
    assert shown.count("\\x") >= len(wrong)


@given(st.text(st.characters(codec="utf-8")))
def test_markdown_of_a_text_has_no_markup(text):
    shown = escaped(text)
    assert "<" not in shown
    assert "\n" not in shown
    for i, character in enumerate(shown):
        if character in "*_`[]|$":
            assert shown[i - 1] == "\\"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0 ms"),
        (0.0123, "12.3 ms"),
        (0.9996, "1 s"),
        (1.5, "1.5 s"),
        (59.96, "1 min 00 s"),
        (61, "1 min 01 s"),
        (3599.6, "1 h 00 min"),
        (90000, "25 h 00 min"),
    ],
)
def test_times_have_fitting_units(value, shown):
    assert seconds(value).replace("\u202f", " ") == shown


def test_numbers_for_people():
    assert percent(0.1825).replace("\u202f", " ") == "18.2 %"
    assert [percent(x)[:-2] for x in (0, 1e-9, 0.9999, 1)] == ["0.0", "<0.1", ">99.9", "100.0"]
    assert percent_of(1, 0) == "–"
    assert [count(999), count(1000)] == ["999", "1,000"]
    assert [how_many(1, "classes"), how_many(2, "classes"), how_many(0, "words")] == ["1 class", "2 classes", "0 words"]
    assert number(-1.5) == "−1.5"
    assert [plain(True), plain(3), plain(0.25), plain("x")] == ["yes", "3", "0.25", "x"]
