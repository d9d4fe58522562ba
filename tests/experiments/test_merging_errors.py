"""What the experiments on merging say, from made-up results, finished or not."""

import importlib

import numpy as np
import pytest
from experiments.__main__ import EXPERIMENTS
from experiments.differences import Difference, always, difference, paired
from experiments.merging_claims import ahead, better_than_all, lowest, worst
from experiments.merging_errors import WHOLE, Errors
from experiments.papers import PAPERS
from experiments.reducing import SIZES
from experiments.running import Options, Results

from experiments import merging_caltech, merging_kernels, merging_scene15, merging_text, merging_unsupervised
from result_pages import page_of

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


def test_only_what_is_lower_is_better_than_all_words(tmp_path):
    levels = made({"csm": 0.1, "aib": 0.3})
    for key in list(levels):
        levels[key]["all"] = {"linear": {"30": 0.2}}
    errors = Errors(kept(tmp_path, levels))
    assert better_than_all(errors, "csm", ("aib",), "linear", (2, 5)).supported is True
    assert better_than_all(errors, "aib", ("csm",), "linear", (2, 5)).supported is False


def made_up_cell(rng, methods, classifiers):
    def line(method):
        return {str(size): float(rng.random()) for size in ((1000,) if method in WHOLE else SIZES)}

    return {method: {name: line(method) for name in classifiers} for method in methods}


def every_cell(module, options):
    """A made-up result for each cell, in the form that its function would give."""
    rng = np.random.default_rng(0)
    three = ("linear", "neighbors", "intersection")
    found = {}
    for cell in module.cells(options):
        if module is merging_unsupervised:
            found[cell.key] = made_up_cell(rng, module.METHODS, ("neighbors",))
        elif module is merging_kernels:
            kernel = cell.arguments["kernel"]
            linear = kernel == "linear"
            methods = ("all_histograms", "csm_histograms") if linear else (f"csm_{kernel}",)
            found[cell.key] = made_up_cell(rng, methods, ("linear", *module.KERNELS) if linear else (kernel,))
        else:
            found[cell.key] = made_up_cell(rng, module.GROUPS[cell.arguments["group"]], three)
    return found


@pytest.mark.parametrize(
    "module", [merging_caltech, merging_scene15, merging_unsupervised, merging_kernels, merging_text]
)
@pytest.mark.parametrize("part", [1.0, 0.5, 0.1, 0.0])
def test_sections_can_be_written_from_any_part_of_the_cells(module, part, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.sets.alike_topics", lambda options, n_pairs: [("grain", "ship")])
    cells = every_cell(module, Options(tmp_path, tmp_path, repeats=3))
    names = sorted(cells)
    chosen = np.random.default_rng(1).permutation(len(names))[: int(np.ceil(part * len(names)))]
    results = kept(tmp_path, {names[k]: cells[names[k]] for k in chosen})
    assert (len(results) > 0) == (part > 0)
    sections, text = page_of(module, results, tmp_path)
    if part == 1:
        assert all(section.claims and section.tables and section.curves for section in sections
                   if section.title != "Without labels, 15 scenes at once")  # fmt: skip
        assert text.count("![") == sum(len(section.curves) for section in sections)


def test_every_experiment_says_whose_it_is():
    for name in EXPERIMENTS:
        module = importlib.import_module(f"experiments.{name}")
        assert module.PAPER in PAPERS
        assert module.TITLE
