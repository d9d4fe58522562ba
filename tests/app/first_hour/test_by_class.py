"""A fit and an evaluation say how well each class is told from the others."""

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support
from sklearn.svm import LinearSVC

from bagwise import Model
from bagwise.app import FitOptions, evaluate_model, run_fit
from bagwise.app.report import ConfusionMatrix
from bagwise.app.report.sentences import most_confused
from bagwise.app.training.method import fitting_svms
from bagwise.distributed.executors import LocalExecutor
from bagwise.sources import Collection
from commands import as_json, bagwise
from small_sources import texts, write_text_folder

NAMES = ("precision", "recall", "f1")


def rows(n_classes, n_each=6, seed=0):
    """Rows of counts that hardly tell their classes, of which one is large."""
    random = np.random.default_rng(seed)
    codes = np.repeat(np.arange(n_classes), [4 * n_each] + [n_each] * (n_classes - 1))
    X = random.poisson(1.0 + (np.arange(20) % n_classes == codes[:, None]))
    return Collection.from_matrix(X, [str(k) for k in range(len(X))], [(f"class {code}",) for code in codes])


@pytest.mark.parametrize("n_classes", [2, 5])
def test_measures_are_those_of_scikit_learn(n_classes):
    items = rows(n_classes)
    fit = run_fit(items, FitOptions(n_groups=4, folds=3))
    size = fit.model.n_groups
    held_out = fit.held_out[fit.model.path.sizes.index(size)]
    for codes, predicted, counts in (
        (fit.codes, held_out, fit.confusion(size)),
        (fit.codes, (at := evaluate_model(fit.model, items)).at(size), at.confusion(size)),
        ([0, 0, 1], [2, 0, 0], np.array([[1, 0, 1], [1, 0, 0], [0, 0, 0]])),  # one without items, one never the answer
    ):
        matrix = ConfusionMatrix([str(k) for k in range(len(counts))], counts)
        wanted = precision_recall_fscore_support(codes, predicted, zero_division=0)
        measured = np.array([[one.precision or 0, one.recall or 0, one.f1 or 0] for one in matrix.by_class()])
        np.testing.assert_allclose(measured, np.transpose(wanted[:3]))
        assert [one.n_items for one in matrix.by_class()] == wanted[3].tolist()
        for name, mean in matrix.means().items():
            average = precision_recall_fscore_support(codes, predicted, average=name, zero_division=0)
            np.testing.assert_allclose([getattr(mean, one) for one in NAMES], average[:3])
    assert matrix.by_class()[1].precision is None
    assert matrix.by_class()[2].recall is None


def test_a_fit_and_an_evaluation_print_them(tmp_path):
    for part, seed in (("train", 0), ("test", 5)):
        write_text_folder(tmp_path / "texts" / part, seed=seed)
    for k, (text, _) in enumerate(texts(4, ["tools"], seed=3)):  # hard ones
        (tmp_path / f"texts/train/birds/hard{k}.txt").write_text(text)
    write_text_folder(tmp_path / "new", seed=9)
    fit = ("fit", tmp_path / "texts", "--out", tmp_path / "m.bagwise", "--no-page", "--no-index", "--force")
    said = as_json(*fit)
    measures = said["by_class"]
    classes = {one["class"]: one for one in measures["classes"]}
    pairs = measures["confused"]
    assert [sum(one["n_items"] for one in classes.values()), classes["birds"]["n_items"]] == [40, 16]
    wrong = sum(one["n_items"] * (1 - one["recall"]) for one in classes.values())
    assert 0 < wrong == pytest.approx(sum(pair["times"] for pair in pairs))
    assert said["test"]["by_class"]["n_groups"] == measures["n_groups"]
    printed = bagwise(*fit).split("Classes with ")[1]
    lines = [line.split() for line in printed.splitlines()[1:]]
    assert lines[0] == ["class", "items", "error", "precision", "recall", "F1"]
    errors = [float(line[2]) for line in lines[1:4]]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(100 * (1 - classes[lines[1][0]]["recall"]), abs=0.06)
    assert [line[0] for line in lines[4:6]] == ["macro", "weighted"]
    assert f"{100 * measures['macro']['f1']:.1f} %" in printed
    assert [str(pairs[0]["times"]), pairs[0]["class"], pairs[0]["predicted"]] in lines
    told = as_json("evaluate", tmp_path / "m.bagwise", tmp_path / "new")["by_class"]
    printed = bagwise("evaluate", tmp_path / "m.bagwise", tmp_path / "new").split("weighted mean")[1]
    assert printed.split()[0] == "36"
    assert f"{100 * told['weighted']['f1']:.1f} %" in printed


def test_of_many_classes_the_worst_are_printed(tmp_path):
    names = ",".join(f"w{k}" for k in range(20))
    items = rows(25, n_each=4)
    lines = [f"{row.labels[0]},{','.join(f'{x:g}' for x in row.load())}" for row in items]
    (tmp_path / "many.csv").write_text("\n".join([f"label,{names}", *lines]))
    printed = bagwise("fit", tmp_path / "many.csv", "--out", tmp_path / "m.bagwise", "--folds", 2, "--no-page")
    assert "(5 classes more: --json)" in printed
    said = bagwise("evaluate", tmp_path / "m.bagwise", tmp_path / "many.csv")
    fit = as_json("evaluate", tmp_path / "m.bagwise", tmp_path / "many.csv")
    matrix = ConfusionMatrix(fit["classes"], np.array(fit["confusion"]))
    assert "Most often confused with " in said
    assert [one["times"] for one in fit["by_class"]["confused"]] == [one.times for one in most_confused(matrix, 10)]


@pytest.mark.parametrize("criterion", ["classifier", "aib"])
def test_balanced_classes_raise_the_recall_of_small_ones(tmp_path, criterion):
    items = rows(3, n_each=10)
    fits = {
        how: run_fit(items, FitOptions(n_groups=4, folds=3, criterion=criterion, class_weight=how))
        for how in (None, "balanced")
    }
    recalls = {how: ConfusionMatrix("abc", fit.confusion(4)).by_class() for how, fit in fits.items()}
    small = {how: np.mean([one.recall for one in classes[1:]]) for how, classes in recalls.items()}
    assert small["balanced"] > small[None]
    model = fits["balanced"].model.save(tmp_path / "m.bagwise")
    assert Model.load(model).options["class_weight"] == "balanced"
    if criterion == "aib":
        model = fits["balanced"].model
        svm = LinearSVC(C=1.0, class_weight="balanced", dual=False, max_iter=3000)
        with fitting_svms():
            svm.fit(model.transform(items).astype(np.float64), fits["balanced"].codes)
        np.testing.assert_allclose(model.head.coef, svm.coef_, rtol=1e-5, atol=1e-5)


def test_balanced_classes_in_partitions(tmp_path):
    """One classifier by liblinear, the other from sums over blocks."""
    items = rows(3, n_each=10)
    how = FitOptions(n_groups=4, folds=0, criterion="aib", class_weight="balanced")
    whole = run_fit(items, how).model
    parts = run_fit(items, how.with_changes(memory_limit=1, partition=7), client=LocalExecutor()).model
    np.testing.assert_allclose(parts.head.coef, whole.head.coef, atol=1e-3)
    plain = run_fit(items, how.with_changes(class_weight=None)).model
    assert abs(plain.head.coef - whole.head.coef).max() > 0.02
