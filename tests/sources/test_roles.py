"""Columns get their roles by what users chose, by their names in any case, then by their values."""

import pytest

from bagwise import BagwiseError
from bagwise.sources.roles import assign_roles, column_of, few_values, like_labels, shortened

LONG = [f"a text of several words, number {k}" for k in range(20)]
FEW = ["spam" if k % 2 else "ham" for k in range(20)]
OF_TEXTS = {"text": None, "label": None, "id": None, "split": None}


def roles(columns, **chosen):
    return assign_roles(list(columns), OF_TEXTS | chosen, values=columns.__getitem__)


def test_names_are_exact_before_they_are_alike():
    assert assign_roles(["LABEL", "label"], {"label": None})["label"] == "label"
    assert assign_roles(["Class", "x"], {"label": None}, words=["Class"])["label"] is None
    assert column_of("A", ["a", "A"]) == "A"
    assert column_of("a", ["A", "A "]) is None
    with pytest.raises(BagwiseError, match="there is no column 'a'; there are 'A', 'A '"):
        assign_roles(["A", "A "], {"text": "a"})


def test_a_column_has_one_role():
    found = assign_roles(["text", "label", "body"], {"text": None, "label": "text"})
    assert (found["text"], found["label"], found.unused) == ("body", "text", ("label",))
    several = assign_roles(["title", "text", "n"], {"text": ["Title", "text"], "label": None})
    assert (several.columns["text"], several["label"], several.unused) == (("title", "text"), None, ("n",))


def test_columns_are_numbered_from_1_without_names():
    numbered = {"1": FEW, "2": LONG}
    assert roles(numbered, text=2, label="1").columns["text"] == ("2",)
    with pytest.raises(BagwiseError, match="no column '3'; there are '1', '2'"):
        roles(numbered, text="3")


def test_one_column_of_long_strings_is_the_text_and_one_of_few_values_the_label():
    found = roles({"v1": FEW, "v2": LONG, "n": range(20)})
    assert (found["text"], found["label"], found.unused) == ("v2", "v1", ("n",))
    assert found.notes == (
        "Texts are in the column 'v2', the only one with long strings; text= chooses another one.",
        "Labels are in the column 'v1', the only other one with few values; label= chooses another one.",
    )
    assert roles({"v1": FEW, "a": LONG, "b": LONG})["text"] is None
    two = roles({"v1": FEW, "v2": LONG, "sentiment": FEW})
    assert two["label"] is None
    assert two.notes[-1].endswith("If 'sentiment' or 'v1' holds the labels, choose it, as in label='sentiment'")
    given = assign_roles(["v1", "v2"], OF_TEXTS, values={"v1": FEW, "v2": LONG}.__getitem__, labelled=True)
    assert (given["label"], len(given.notes)) == (None, 1)


def test_labels_that_are_all_the_same_are_told():
    (note,) = roles({"text": LONG, "label": ["all"] * 20, "mood": FEW}).notes
    assert note == "All items have the same label. If 'mood' holds the labels: label='mood'"


def test_what_may_be_labels():
    columns = {
        "few": [k % 3 for k in range(400)],
        "many": [k % 51 for k in range(400)],
        "lone": list(range(400)),
        "long": ["x" * 200] * 400,
        "nothing": [None] * 400,
        "one": [1] * 400,
        "id": [k % 2 for k in range(400)],
        "lists": [["a", "b"][: k % 3] for k in range(400)],
    }
    assert like_labels(columns, columns.__getitem__) == ["lists", "few"]
    assert [few_values(n, 40) for n in (1, 2, 8, 9)] == [False, True, True, False]


def test_long_names_are_cut_in_messages():
    assert len(shortened(["x" * 500])) < 50
    assert shortened([str(k) for k in range(30)]).endswith("'19' and 10 more")
