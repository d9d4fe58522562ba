"""What experiments say of their results: differences, their intervals, and the claims that follow from them."""

import numpy as np
import pytest
from experiments.differences import Difference, always, difference, paired
from experiments.merging_claims import ahead, lowest, worst
from experiments.merging_errors import Errors
from experiments.running import Results

from experiments import manifold_protocol, wide_lbp

MACHINE = {"date": "2026-01-01", "commit": "abc", "cpu": "one", "cores": 2}


def kept(tmp_path, cells):
    results = Results(tmp_path / "made_up.json")
    for key, result in cells.items():
        results.keep(key, result, 1.0, MACHINE)
    return results


def flat(error, sizes=(2, 5)):
    return {"linear": {str(size): error for size in sizes}}


def test_differences_are_of_tasks_that_both_have(tmp_path):
    results = kept(tmp_path, {
        "t1/a": {"csm": flat(0.1)}, "t2/a": {"csm": flat(0.2)}, "t3/a": {"csm": flat(0.9)},
        "t1/b": {"nda": flat(0.2)}, "t2/b": {"nda": flat(0.4)},
    })  # fmt: skip
    errors = Errors(results)
    gap = errors.difference(("csm", "linear", 2), ("nda", "linear", 2))
    assert gap.n == 2
    assert gap.mean == pytest.approx(-15)
    assert gap.error == pytest.approx(5)
    assert gap.below is None  # from two tasks nothing is told
    assert errors.mean("csm", "linear", 5) == pytest.approx(40)
    assert errors.difference(("csm", "linear", 2), ("aib", "linear", 2)) is None
    assert errors.mean_difference(("csm", "linear"), ("nda", "linear"), (2, 5)) == gap


def test_means_over_fewer_tasks_say_so_or_are_left_out(tmp_path):
    results = kept(tmp_path, {
        "t1/a": {"csm": flat(0.1), "pca": flat(0.1, (2, 5))}, "t2/a": {"csm": flat(0.3), "pca": flat(0.5, (2,))},
        "t1/b": {"mme": flat(0.2)},
    })  # fmt: skip
    errors = Errors(results)
    (table,) = errors.tables("some", {"linear": "linear SVM"}, ("csm", "mme", "pca", "aib"), (2, 5))
    assert [row[0] for row in table.rows] == ["CSM", "MME [1 of 2]", "PCA"]
    assert table.rows[0][1:3] == ["20.00 ± 14.14", "20.00 ± 14.14"]
    assert table.rows[1][1:3] == ["20.00", "20.00"]
    assert table.rows[2][1:3] == ["30.00 ± 28.28", None]  # one of the tasks is too small for five
    (curves,) = errors.plots("some", {"linear": "linear SVM"}, ("csm", "mme", "pca"))
    assert {name: list(sizes) for name, (sizes, _, _) in curves.series.items()} == {
        "CSM": [2, 5], "MME [1 of 2]": [2, 5], "PCA": [2]
    }  # fmt: skip


def test_differences_within_their_interval_are_left_open():
    assert Difference(-3.5, 1.0, 10).below is True
    assert Difference(3.5, 1.0, 10).below is False
    assert Difference(-3.0, 1.0, 10).below is None  # the interval of 99 % from ten is 3.25 wide on either side
    assert Difference(-9.0, 1.0, 3).below is None
    assert Difference(-9.0, np.inf, 1).below is None
    assert Difference(0.2, 0.1, 10).less_than(1) is True
    assert Difference(1.1, 0.1, 10).less_than(1) is None
    assert Difference(-0.2, 0.1, 10).within(1) is True
    assert Difference(-0.8, 0.1, 10).within(1) is None
    assert Difference(-2.0, 0.1, 10).within(1) is False


def test_the_interval_of_a_difference_is_that_of_a_paired_test():
    from scipy.stats import ttest_rel

    rng = np.random.default_rng(0)
    first, second = rng.random((2, 7))
    gap = paired(dict(enumerate(first)), dict(enumerate(second)) | {9: 0.0})
    assert gap == difference(first - second)
    interval = ttest_rel(first, second).confidence_interval(0.99)
    np.testing.assert_allclose([gap.mean - gap.margin, gap.mean + gap.margin], interval)
    assert paired({1: 0.0}, {2: 0.0}) is None


def test_always():
    assert always([True, True]) is True
    assert always([True, None]) is None
    assert always([None, False]) is False
    assert always([]) is None


def made(levels, n=6):
    """Results in which each method has an error of its own, a little different from task to task."""
    noise = np.random.default_rng(0).normal(0, 0.001, (n, len(levels)))
    return {
        f"task{k}/g": {name: flat(level + noise[k, j]) for j, (name, level) in enumerate(levels.items())}
        for k in range(n)
    }


def test_claims_follow_the_errors(tmp_path):
    errors = Errors(kept(tmp_path, made({"csm": 0.1, "aib": 0.2, "linkage": 0.4, "mrmr": 0.1001, "all": 0.15})))
    sizes = (2, 5)
    assert lowest(errors, "", "csm", ("aib", "linkage"), "linear", sizes).supported is True
    assert lowest(errors, "", "csm", ("aib", "mrmr"), "linear", sizes).supported is None
    assert lowest(errors, "", "aib", ("csm", "linkage"), "linear", sizes).supported is False
    assert lowest(errors, "", "nda", ("csm",), "linear", sizes) is None
    assert worst(errors, ("linkage",), ("csm", "aib"), "linear", sizes).supported is True
    assert worst(errors, ("linkage", "mrmr"), ("csm", "aib"), "linear", sizes).supported is False
    assert ahead(errors, "csm", "aib", "linear", sizes).supported is True
    assert ahead(errors, "aib", "csm", "linear", sizes).supported is False


def test_claims_about_patterns_follow_the_accuracies(tmp_path):
    def said(bsc, vq, n_draws=3):
        results = Results(tmp_path / f"{bsc}-{vq}-{n_draws}.json")
        for draw in range(n_draws):
            for k, (method, value) in enumerate({"bsc": bsc, "vq": vq, "lbp": 70.0}.items()):
                noise = 0.1 * ((draw + k) % 2)
                results.keep(f"{draw:02d}/{method}/0256/cells", value + noise, 1.0, MACHINE)
        return [claim.supported for claim in wide_lbp.sections(results)[0].claims]

    assert said(77.0, 72.0) == [True, True]
    assert said(74.0, 72.0) == [False, True]
    assert said(77.0, 79.0) == [True, False]
    assert said(77.0, 76.9) == [True, None]  # draws differ by as much
    assert said(77.0, 72.0, n_draws=1) == [True, None]


def with_gain(key, *gains):
    """Repetitions in which one criterion of MO-BoF is better by so many %, and all others stay as they are."""
    sign = -1 if key.endswith("davies_bouldin") else 1
    base = dict.fromkeys(manifold_protocol.SHOWN, 2.0)
    return [{"BoF": base, "MO-BoF": base | {key: 2 * (1 + sign * gain / 100)}} for gain in gains]


@pytest.mark.parametrize("key", ["kmeans_nmi", "kmeans_davies_bouldin"])
@pytest.mark.parametrize(
    ("gains", "holds"), [([12.0, 9.0], True), ([9.0, 9.0], False), ([30.0, -1.0], False), ([30.0, 0.0], False)]
)
def test_claims_are_about_every_repetition_and_the_published_gain(key, gains, holds, tmp_path):
    sign = -1 if key.endswith("davies_bouldin") else 1
    published = {key: {"BoF": 1.0, "MO-BoF": 1 + sign * 0.1}}  # a gain of 10 %
    results = Results(tmp_path / "some.json")
    for k, run in enumerate(with_gain(key, *gains)):
        results.keep(f"{k:02d}", run, 1.0, MACHINE)
    (section,) = manifold_protocol.compared("Title", "Text.", published, results)
    (claim,) = section.claims
    assert claim.supported == holds
    assert claim.text.endswith("better every time, on average by 10.0 % or more")
    rows = {row[0]: row for row in section.tables[0].rows}
    assert rows[key.replace("_", " ")][4] == f"{np.mean(gains):+.1f} %"


def test_gains_are_shares_of_what_was_before_whatever_its_sign():
    runs = [{"a": {"silhouette": -0.2, "davies_bouldin": 2.0}, "b": {"silhouette": -0.1, "davies_bouldin": 1.5}}]
    np.testing.assert_allclose(manifold_protocol.gains("silhouette", runs, "a", "b"), [50])
    np.testing.assert_allclose(manifold_protocol.gains("davies_bouldin", runs, "a", "b"), [25])
