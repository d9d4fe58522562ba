import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bagwise._utils.text import how_many
from bagwise.app.report import ClassCount, Comparison, ConfusionMatrix, CriterionResult, MergingCurve, WordGroup
from bagwise.app.report.charts import NARROW, WIDE, comparison_chart, heat_map, level_from, merging_chart, series_style
from bagwise.app.report.sentences import (
    Name,
    about_classes,
    about_comparison,
    about_confusion,
    about_curve,
    about_groups,
    about_pair,
    about_timings,
    interval,
    most_confused,
    what_errors_mean,
)
from bagwise.display.svg import N_LEVELS, bar, linear_axis, log_axis, thinned
from bagwise.display.texts import percent
from report_helpers import Page

shares = st.floats(0, 1)
values = st.floats(-1e9, 1e9)


@st.composite
def curves(draw):
    sizes = sorted(draw(st.sets(st.integers(1, 10**6), min_size=1, max_size=60)))
    errors = draw(st.lists(shares, min_size=len(sizes), max_size=len(sizes)))
    spread = draw(st.sampled_from([[], errors]))
    levels = sorted(draw(st.sets(st.integers(1, 10**6), max_size=20)))
    criterion = draw(st.lists(values, min_size=len(levels), max_size=len(levels)))
    n_groups = draw(st.none() | st.integers(1, 10**6))
    auto = draw(st.none() | st.sampled_from(sizes))
    test_sizes = sorted(draw(st.sets(st.sampled_from(sizes) | st.integers(1, 10**6), max_size=20)))
    test = draw(st.lists(shares, min_size=len(test_sizes), max_size=len(test_sizes)))
    more = (None, test_sizes, test, 50)
    return MergingCurve(sizes, errors, spread, "", n_groups, auto, "<name>", levels, criterion, *more)


def numbers_in(chart):
    """All places of a chart, in pixels."""
    found = []
    for element in ET.fromstring(chart).iter():
        for key in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy"):
            if key in element.attrib:
                found.append(float(element.attrib[key]))
    return np.array(found)


@given(curves(), st.sampled_from([WIDE, NARROW]))
def test_a_merging_chart_labels_all_errors_inside_its_frame(curve, layout):
    chart = merging_chart(curve, layout=layout)
    Page(chart)
    root = ET.fromstring(chart)
    labels = [element.text for element in root.iter("text")]
    for size, error in zip(curve.sizes, curve.errors, strict=True):
        assert any(text.startswith(f"{how_many(size, 'groups')}: error {percent(error)}") for text in labels)
    for size, error in zip(curve.test_sizes, curve.test_errors, strict=True):
        own = [text for text in labels if text.startswith(f"{how_many(size, 'groups')}: ")]
        assert any(re.search(f"test (error )?{percent(error)}$", text) for text in own)
    drawn = [element.attrib["class"] for element in root.iter("path")]
    assert drawn.count("curve test") == bool(curve.test_sizes)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    places = numbers_in(chart)
    assert places.min() >= 0
    assert places.max() <= max(width, height)
    if curve.n_groups is not None:
        assert any(text.startswith("model") and text.endswith(how_many(curve.n_groups, "groups")) for text in labels)


def test_a_point_stands_where_its_value_is():
    curve = MergingCurve([1, 10, 100], [0.0, 0.5, 1.0])
    root = ET.fromstring(merging_chart(curve))
    knots = [element for element in root.iter("circle") if element.attrib["class"] == "knot"]
    across = np.array([float(knot.attrib["cx"]) for knot in knots])
    down = np.array([float(knot.attrib["cy"]) for knot in knots])
    np.testing.assert_allclose(np.diff(across), np.diff(across)[0], atol=0.11)
    np.testing.assert_allclose(np.diff(down), np.diff(down)[0], atol=0.11)
    assert np.diff(down)[0] < 0 < np.diff(across)[0]


@given(st.integers(1, 30), st.integers(1, 12))
def test_a_comparison_has_a_line_for_each_criterion(n_criteria, n_sizes):
    rng = np.random.default_rng(n_criteria)
    criteria = [CriterionResult(f"c{i} <&>", rng.random(n_sizes).tolist()) for i in range(n_criteria)]
    chart = comparison_chart(Comparison("x", range(1, n_sizes + 1), criteria))
    root = ET.fromstring(chart)
    groups = [element for element in root.iter("g") if element.attrib["class"].startswith("series")]
    assert [group.attrib["aria-label"].split(":")[0] for group in groups] == [f"c{i} <&>" for i in range(n_criteria)]
    assert len({series_style(i) for i in range(min(n_criteria, 18))}) == min(n_criteria, 18)
    legend = [element.text for element in root.iter("text") if element.attrib["class"] == "legend"]
    assert legend == [f"c{i} <&>" for i in range(n_criteria)]
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert 0 <= numbers_in(chart).min() <= numbers_in(chart).max() <= max(width, height)


@given(st.lists(values, min_size=1, max_size=2000), st.integers(8, 400))
def test_thinning_keeps_ends_and_extremes(heights, limit):
    kept = thinned(range(len(heights)), heights, limit)
    assert kept == sorted(set(kept))
    assert len(kept) <= limit
    assert {0, len(heights) - 1} <= set(kept)
    assert min(heights) == min(heights[i] for i in kept)
    assert max(heights) == max(heights[i] for i in kept)
    assert len(heights) > limit or len(kept) == len(heights)


@given(st.lists(values, min_size=1, max_size=20), st.booleans())
def test_an_even_axis_holds_its_values_between_its_ticks(heights, zero):
    axis = linear_axis(heights, 100, 0, zero=zero)
    assert len(axis.ticks) >= 2
    assert list(axis.ticks) == sorted(set(axis.ticks))
    slack = 1e-6 * max(1.0, abs(axis.high), abs(axis.low))
    assert axis.low - slack <= min(heights)
    assert max(heights) <= axis.high + slack
    assert axis(axis.low) == pytest.approx(100)
    assert axis(axis.high) == pytest.approx(0)


@given(st.sets(st.integers(1, 10**9), min_size=1, max_size=10))
def test_a_logarithmic_axis_has_ticks_apart(sizes):
    axis = log_axis(sorted(sizes), 0, 700)
    places = [axis(tick) for tick in axis.ticks]
    assert all(min(sizes) <= tick <= max(sizes) for tick in axis.ticks)
    assert len(places) == 1 or min(np.diff(places)) >= 44


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_confusions_are_those_of_the_matrix(n, limit, seed):
    matrix = np.random.default_rng(seed).integers(0, 4, (n, n))
    confusion = ConfusionMatrix([f"c{i}" for i in range(n)], matrix)
    pairs = most_confused(confusion, n=n * n)
    assert [pair.times for pair in pairs] == sorted(
        (matrix[i, k] for i in range(n) for k in range(n) if i != k and matrix[i, k]), reverse=True
    )
    assert all(pair.times == matrix[int(pair.true[1:]), int(pair.predicted[1:])] for pair in pairs)
    heat = heat_map(confusion, limit)
    rows = [int(name[1:]) for name in heat.classes]
    others = 0 if heat.others is None else heat.others
    np.testing.assert_array_equal(heat.counts.sum(axis=1) + others, matrix[rows].sum(axis=1))
    assert len(rows) == min(n, limit)
    np.testing.assert_array_equal(heat.levels == 0, heat.counts == 0)
    part = heat.counts / np.maximum(matrix[rows].sum(axis=1), 1)[:, None]
    for level in range(1, N_LEVELS + 1):
        assert np.all(part[heat.levels == level] >= level_from(level) - 1e-12)
        assert np.all(part[heat.levels < level] <= level_from(level) + 1e-12)


def said(sentences):
    whole = ["".join(f"“{part}”" if isinstance(part, Name) else part for part in parts) for parts in sentences]
    return " ".join(whole).replace("\u202f", " ")


def test_the_best_size_is_the_smallest_with_the_lowest_error():
    curve = MergingCurve([1, 2, 5, 9], [0.5, 0.2, 0.2, 0.3])
    assert curve.best == 2
    assert curve.error_at(9) == 0.3
    assert curve.error_at(4) is None
    assert curve.error_at(None) is None
    assert curve.standard_error_at(9) is None
    assert MergingCurve([], [], criterion_sizes=[1], criterion_values=[1]).best is None


def test_sentences_about_a_curve():
    curve = MergingCurve([10, 50, 1000], [0.3, 0.182, 0.176], [0.01, 0.008, 0.008], auto=50, n_groups=50)
    assert said(about_curve(curve)) == (
        "The error with 50 groups is about as low as the lowest: 18.2 %, against 17.6 % with 1,000. "
        "With 10 groups, the smallest size tried, the error is 30.0 %."
    )
    best = MergingCurve([10, 50, 1000], [0.3, 0.19, 0.176], [0.01, 0.008, 0.008], auto=1000, n_groups=20)
    assert said(about_curve(best)).startswith("The error is lowest with 1,000 groups: 17.6 %, with a standard error")
    assert "The model has 20 groups; the error was not measured at this size." in said(about_curve(best))
    assert about_curve(MergingCurve([], [], criterion_sizes=[1], criterion_values=[1])) == []


def test_sentences_say_which_error_to_quote():
    cross = MergingCurve([10, 50], [0.3, 0.2], [0.01, 0.02], "5-fold cross-validation", n_groups=50)
    (meaning,) = what_errors_mean(cross)
    assert meaning.term == "Cross-validation"
    assert "This is the error to quote: 20.0 % ± 2.0 % with 50 groups." in said(meaning.sentences)
    tested = replace(cross, test_sizes=[10, 50], test_errors=[0.31, 0.21], n_test=100)
    first, second = what_errors_mean(tested)
    assert "to quote" not in said(first.sentences)
    assert "100 items that took no part in training" in said(second.sentences)
    assert "This is the error to quote: 21.0 % with 50 groups, with a 95 % confidence interval from" in said(
        second.sentences
    )
    assert "agree within what chance explains" in said(second.sentences)
    for error, word in ((0.5, "higher"), (0.01, "lower")):
        far = replace(tested, test_errors=[0.3, error])
        assert f"It is {word} than by cross-validation, 20.0 %," in said(what_errors_mean(far)[1].sentences)
    few = what_errors_mean(replace(tested, test_seen=0.05))[1]
    assert "5.0 % of them are training items or copies of such" in said(few.sentences)
    assert "error to quote: 21.0 %" in said(few.sentences)
    assert "is not known" in said(what_errors_mean(replace(tested, test_seen=None))[1].sentences)
    first, second = what_errors_mean(replace(tested, test_seen=1.0))
    assert "error to quote: 20.0 %" in said(first.sentences)
    assert second.term == "Training items"
    assert "The model was learned from these items. Their error is not to be quoted" in said(second.sentences)
    alone = MergingCurve([], [], n_groups=50, test_sizes=[10], test_errors=[0.2], n_test=3)
    assert [meaning.term for meaning in what_errors_mean(alone)] == ["Test"]
    assert what_errors_mean(MergingCurve([], [], criterion_sizes=[1], criterion_values=[1])) == []


@given(st.integers(1, 500), st.data())
def test_an_interval_holds_the_error_and_shrinks(n, data):
    error = data.draw(st.integers(0, n)) / n
    low, high = interval(error, n)
    assert 0 <= low <= error <= high <= 1
    assert low < high
    narrower = interval(error, 10 * n)
    assert low <= narrower[0] <= narrower[1] <= high
    ends = stats.binomtest(round(error * n), n).proportion_ci(method="wilson")
    np.testing.assert_allclose((low, high), (ends.low, ends.high), atol=1e-6)


def confusion(*rows):
    return ConfusionMatrix([str(i) for i, _ in enumerate(rows)], np.array(rows))


def test_sentences_about_counts():
    assert said([about_confusion(confusion([3, 1], [0, 0]))]) == "1 of 4 items was misclassified: 25.0 %."
    assert said([about_confusion(confusion([7]))]) == "0 of 7 items were misclassified: 0.0 %."
    assert said([about_confusion(confusion([0]))]) == "No items were classified."
    pair = most_confused(confusion([3, 1], [0, 0]))[0]
    assert said([about_pair(pair)]) == "“0” classified as “1”: 1 of 4 items, 25.0 %."
    counts = [ClassCount("x", 3, 2), ClassCount("y", 4, 1)]
    assert said(about_classes(counts)) == (
        "Trained on 7 items of 2 classes, tested on 3 items. "
        "The smallest class is “x” (3 items), the largest “y” (4 items)."
    )
    assert said(about_classes([ClassCount("x", 1)])) == "Trained on 1 item of 1 class."
    results = [CriterionResult("csm", [0.5], seconds=1.5), CriterionResult("aib", [0.5], seconds=3.0)]
    assert said(about_comparison(Comparison("", [2], results))) == (
        "With 2 groups, “csm” and “aib” have the lowest error, 50.0 %. “csm” was fastest (1.5 s), “aib” slowest (3 s)."
    )
    timings = {"a": 1.0, "b": 2.5}
    assert said([about_timings(timings)]) == "2 steps took 3.5 s in total; the slowest was “b” (2.5 s)."
    groups = [WordGroup(0, 3, 0.5), WordGroup(1, 1, 0.25), WordGroup(2, 1, 0.25)]
    assert said(about_groups(groups, groups)) == "3 groups of 5 words, the most frequent first."
    decided = [replace(group, decides=0.5) for group in groups]
    assert said(about_groups(decided[:2], decided)).startswith(
        "3 groups of 5 words, those that decide most first; after 2 of them, the others are only listed. Without "
    )
    decided = [replace(group, classes=[("x", 1.0)]) for group in decided]
    assert "contribution to the score of a class, for the class where that is largest" in said(
        about_groups(decided, decided)
    )


@given(st.floats(-10, 10), st.floats(0, 10), st.booleans())
def test_bars_stay_inside(value, largest, signed):
    root = ET.fromstring(bar(value, largest, signed=signed))
    for rect in root.iter("rect"):
        start, width = float(rect.attrib["x"]), float(rect.attrib["width"])
        assert 0 <= start <= start + width <= 100.1
