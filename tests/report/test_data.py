from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from bagwise.errors import BagwiseError
from bagwise.report import (
    ClassCount,
    Comparison,
    Confusion,
    Example,
    Hit,
    MergingCurve,
    ReportData,
    SearchResults,
    WordGroup,
)


def test_arrays_lists_and_mappings_are_kept_as_tuples():
    lists = MergingCurve([1, 2, 5], [0.3, 0.2, 0.2], [0.1, 0.1, 0.0], criterion_sizes=[1, 2], criterion_values=[0, 1])
    arrays = MergingCurve(
        np.array([1, 2, 5]),
        np.array([0.3, 0.2, 0.2]),
        np.array([0.1, 0.1, 0.0]),
        criterion_sizes=np.arange(1, 3),
        criterion_values=np.arange(2.0),
    )
    assert lists == arrays
    assert isinstance(arrays.sizes, tuple)
    assert type(arrays.sizes[0]) is int
    assert type(arrays.errors[0]) is float
    assert ReportData("x", facts={"a": np.int64(3)}, timings={"b": 1}) == ReportData(
        "x", facts=[("a", 3)], timings=(("b", 1.0),)
    )


def test_data_cannot_be_changed():
    confusion = Confusion(["a", "b"], [[1, 0], [0, 1]])
    with pytest.raises(FrozenInstanceError):
        confusion.protocol = "other"
    with pytest.raises(ValueError, match="read-only"):
        confusion.matrix[0, 0] = 5
    given = np.eye(2, dtype=int)
    kept = Confusion(["a", "b"], given)
    given[0, 0] = 7
    assert kept.matrix[0, 0] == 1


def test_the_best_size_is_the_smallest_with_the_lowest_error():
    curve = MergingCurve([1, 2, 5, 9], [0.5, 0.2, 0.2, 0.3])
    assert curve.best == 2
    assert curve.error_at(9) == 0.3
    assert curve.error_at(4) is None
    assert curve.error_at(None) is None
    assert curve.standard_error_at(9) is None
    assert MergingCurve([], [], criterion_sizes=[1], criterion_values=[1]).best is None


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: MergingCurve([2, 1], [0.1, 0.2]), "sizes must increase, but 1 follows 2"),
        (lambda: MergingCurve([0, 1], [0.1, 0.2]), r"sizes\[0\] must be an integer of at least 1, got 0"),
        (lambda: MergingCurve([1.5], [0.1]), "integer of at least 1, got 1.5"),
        (lambda: MergingCurve([1, 2], [0.1]), "errors must have 2 values, one for each size; got 1"),
        (lambda: MergingCurve([1], [18.2]), "from 0 to 1, got 18.2. Percentages are to be divided by 100"),
        (lambda: MergingCurve([1], [float("nan")]), r"errors\[0\] must be finite, got nan"),
        (lambda: MergingCurve([1, 2], [0.1, 0.1], [0.1]), "standard_errors must be empty or have 2 values, got 1"),
        (lambda: MergingCurve([1], [0.1], [-0.1]), "at least 0, got -0.1"),
        (lambda: MergingCurve([1], [0.1], one_se=2), "one_se must be one of the 1 sizes; got 2"),
        (lambda: MergingCurve([1], [0.1], chosen=0), "chosen must be at least 1, got 0"),
        (lambda: MergingCurve([], []), "needs sizes or criterion_sizes"),
        (lambda: MergingCurve("12", [0.1]), "sizes must be a sequence, got '12'"),
        (lambda: Confusion([], np.zeros((0, 0), dtype=int)), "at least one class"),
        (lambda: Confusion(["a"], [[0.5]]), "whole numbers from 0 on; got float64"),
        (lambda: Confusion(["a"], [[-1]]), "from -1"),
        (lambda: Confusion(["a", "b"], [[1]]), r"each of the 2 classes, got shape \(1, 1\)"),
        (lambda: Confusion(["a", "a"], np.eye(2, dtype=int)), "'a' is there twice"),
        (lambda: ClassCount("a", -1), "n_learned must be at least 0"),
        (lambda: ClassCount(None, 1), "name must be a text, got None"),
        (lambda: WordGroup(0, 1, 2.0), "share must be from 0 to 1, got 2"),
        (lambda: WordGroup(0, 1, 0.5, names=["a", "b"]), "group of 1 words can have at most as many names, got 2"),
        (lambda: WordGroup(0, 1, 0.5, names="word"), "names must be a sequence, got 'word'"),
        (lambda: WordGroup(0, 1, 0.5, patches=[b"GIF89a"]), "PNG or JPEG file, but begins with b'GIF89a'"),
        (lambda: WordGroup(0, 1, 0.5, patches=[np.eye(2)]), "bytes of a PNG or JPEG file, got"),
        (lambda: WordGroup(0, 1, 0.5, patches=b"\x89PNG"), "patches must be a sequence"),
        (lambda: WordGroup(0, 1, 0.5, classes=[("a",)]), r"classes\[0\] must be \(class, weight\), got \('a',\)"),
        (lambda: Example("a", picture=b"<svg/>"), "begins with b'<svg/>'"),
        (lambda: Example("a", evidence=[("x", 1.0)]), r"evidence\[0\]\[0\] must be an integer, got 'x'"),
        (lambda: Hit("a", float("inf")), "score must be finite"),
        (lambda: SearchResults("a", ["hit"]), r"hits\[0\] must be a Hit, got 'hit'"),
        (lambda: ReportData("a", facts={"b": None}), "fact 'b' must be a text or a finite number, got None"),
        (lambda: ReportData("a", facts={"b": [1]}), r"fact 'b' must be a text or a finite number, got \[1\]"),
        (lambda: ReportData("a", curve="x"), "curve must be a MergingCurve or None, got str"),
        (lambda: ReportData("a", groups=[WordGroup(1, 1, 0.5)] * 2), "groups must have different names, but '1'"),
        (lambda: ReportData("a", timings={"b": -1}), "at least 0, got -1"),
        (lambda: ReportData("a", notes="note"), "notes must be a sequence, got 'note'"),
        (lambda: Comparison("a", [], []), "at least one number of words"),
        (lambda: Comparison("a", [1], []), "at least one entry"),
        (lambda: Comparison("a", [1], [("b", [0.1, 0.2], [], 1.0)]), r"criteria\[0\].errors must have 1 values"),
        (lambda: Comparison("a", [1], [("b", [0.1], [], 1)] * 2), "'b' is there twice"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_a_reason(make, said):
    with pytest.raises(BagwiseError, match=said):
        make()
