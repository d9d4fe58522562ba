"""A report of scikit-learn's digits, whose 64 pixels are the words, and a parser of pages."""

import json
import re
import time
from html.parser import HTMLParser

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import confusion_matrix

from bagwise import merge_words
from bagwise.app.report import Baseline, ClassCount, ConfusionMatrix, Example, MergingCurve, ReportData, WordGroup
from bagwise.display import Tree, TreeRow, thumbnail

SIZES = (2, 3, 5, 7, 10, 15, 20, 30, 40, 64)
N_FOLDS = 5


def merged(X, labels):
    """Sums over groups of words."""
    return X @ np.eye(labels.max() + 1)[labels]


def digits_report(n_groups=20):
    """Fit, test and describe the digits."""
    X, y = load_digits(return_X_y=True)
    X, learned = X / 16, np.arange(len(X)) < 1200
    names = [str(digit) for digit in range(10)]
    started = time.perf_counter()
    hierarchy = merge_words(X[learned], y[learned], criterion="csm")
    merging_seconds = time.perf_counter() - started
    errors = np.array([_errors_of_folds(merged(X[learned], hierarchy.cut(n)), y[learned]) for n in SIZES])
    means, spread = errors.mean(axis=1), errors.std(axis=1, ddof=1) / np.sqrt(N_FOLDS)
    best = int(means.argmin())
    auto = SIZES[int(np.flatnonzero(means <= means[best] + spread[best])[0])]

    labels = hierarchy.cut(n_groups)
    Z = merged(X, labels)
    started = time.perf_counter()
    model = RidgeClassifier().fit(Z[learned], y[learned])
    answers = model.predict(Z[~learned])
    classifying_seconds = time.perf_counter() - started
    matrix = confusion_matrix(y[~learned], answers)
    counts = zip(names, np.bincount(y[learned]).tolist(), np.bincount(y[~learned]).tolist(), strict=True)
    return ReportData(
        "Handwritten digits",
        facts={"source": "scikit-learn's digits", "items": len(X), "words": 64, "criterion": "csm", "tested": True},
        classes=[ClassCount(*of_class) for of_class in counts],
        curve=MergingCurve(
            SIZES, means.tolist(), spread.tolist(), f"{N_FOLDS}-fold cross-validation", n_groups, auto, "csm",
            range(1, 64), hierarchy.scores[::-1].tolist(), 64,
        ),
        confusion=ConfusionMatrix(names, matrix, f"{(~learned).sum()} digits that were held out"),
        groups=_groups(X, Z, labels, model, names),
        examples=_examples(X[~learned], Z[~learned], y[~learned], answers, model),
        timings={"merging": merging_seconds, "classifying": classifying_seconds},
        versions={"bagwise": "0", "numpy": np.__version__},
        notes=["A few digits are ambiguous even for people."],
        tree=digits_tree(hierarchy, n_groups, names),
        baselines=[Baseline("all pixels", 0.1, 0.01, 64), Baseline("most frequent class", 0.9, None, 0, 0.875)],
    )  # fmt: skip


def digits_tree(hierarchy, n_groups, classes):
    order, totals = hierarchy.leaf_order(), np.full(hierarchy.n_words, 1 / hierarchy.n_words)
    rows = [
        TreeRow.of(hierarchy.cut(n)[order], totals, np.arange(n) % len(classes), lambda k: f"group {k}")
        for n in (1, 2, n_groups)
    ]
    return Tree(rows, hierarchy.n_words, classes, n_groups)


def _errors_of_folds(Z, y):
    folds = np.arange(len(y)) % N_FOLDS
    return [
        1 - RidgeClassifier().fit(Z[folds != f], y[folds != f]).score(Z[folds == f], y[folds == f])
        for f in range(N_FOLDS)
    ]


def _groups(X, Z, labels, model, names):
    frequencies = np.bincount(labels, X.sum(axis=0)) / X.sum()
    groups = []
    for g, frequency in enumerate(frequencies):
        strongest = np.argsort(-np.abs(model.coef_[:, g]))[:4]
        groups.append(
            WordGroup(
                g,
                int((labels == g).sum()),
                float(frequency),
                patches=[thumbnail((labels == g).reshape(8, 8).astype(float), 32)],
                classes=[(names[k], float(model.coef_[k, g])) for k in strongest],
                decides=float(np.abs(model.coef_[:, g]).max() * Z[:, g].std()),
            )
        )
    return groups


def _examples(X, Z, y, answers, model, per_class=2):
    examples = []
    for k in range(10):
        wrong_first = sorted(np.flatnonzero(y == k), key=lambda i: answers[i] == y[i])[:per_class]
        for i in wrong_first:
            added = model.coef_[answers[i]] * Z[i]
            contributions = [(int(g), float(added[g])) for g in np.argsort(-np.abs(added))]
            scores = Z[i] @ model.coef_.T + model.intercept_
            parts = (contributions, scores[answers[i]], model.intercept_[answers[i]])
            rival = np.argsort(-scores)[1]
            picture = thumbnail(X[i].reshape(8, 8), 96)
            more = (str(rival), float(scores[rival]))
            examples.append(Example(f"digit {i}", str(y[i]), str(answers[i]), picture, None, *parts, more))
    return examples


FORBIDDEN = {"link", "iframe", "object", "embed", "base", "form", "foreignobject", "use", "image"}
VOID = {"br", "img", "input", "link", "meta", "hr", "wbr"}


class Page(HTMLParser):
    """Parse a page; check that tags are balanced, ids unique, and that nothing is loaded; collect scripts that run."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.targets, self.tags, self.pictures = [], [], set(), [], []
        self.texts, self.attributes, self.links, self.scripts = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))
        assert self.targets <= set(self.ids)
        self.text = "".join(self.texts)

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        found = dict(attrs)
        assert len(found) == len(attrs)
        assert tag not in FORBIDDEN
        assert not any(name.startswith("on") or name == "style" for name in found)
        if tag == "img":
            assert found["src"].startswith(("data:image/png;base64,", "data:image/jpeg;base64,"))
            assert found["alt"].strip()
            self.pictures.append(found["src"])
        else:
            assert "src" not in found
        if "href" in found:
            assert tag == "a"
            assert found["href"].startswith(("#", "./", "../"))
            if found["href"].startswith("#"):
                self.targets.add(found["href"][1:])
            else:
                self.links.append(found["href"])
        if "aria-labelledby" in found:
            self.targets.add(found["aria-labelledby"])
        if tag == "th":
            assert found["scope"] in {"col", "row"}
        if tag == "meta":
            assert found.get("http-equiv") in {None, "Content-Security-Policy"}
        if "id" in found:
            self.ids.append(found["id"])
        self.tags.append(tag)
        self.attributes.append(found)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" in self.open:
            if self.attributes[-1] == {"type": "application/json", "id": "tree-data"}:
                json.loads(data)
            else:
                assert self.attributes[-1] == {}
                self.scripts.append(data)
        elif "style" not in self.open:
            self.texts.append(data)


def matrix_of(html):
    """The confusion matrix that a page shows, with 0 where a cell is empty."""
    body = re.search(r'<table class="heat.*?<tbody>(.*?)</tbody>', html, re.S)[1]
    rows = [re.findall(r"<td[^>]*>(\d*)</td>", row) for row in body.split("</tr>")[:-1]]
    return np.array([[int(cell or 0) for cell in row] for row in rows])


def scores_of(html):
    """The parts of the score of each example that a page shows, and the score, as numbers."""
    lists = re.findall(r'<ul class="evidence".*?</ul>', html, re.S)
    found = []
    for one in lists:
        *parts, score = re.findall(r'<span class="figure">([^<]*)</span>', one)
        found.append(([float(part.replace("\u2212", "-")) for part in parts], float(score.replace("\u2212", "-"))))
    return found
