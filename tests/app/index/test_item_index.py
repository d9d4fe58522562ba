"""Searching items by words, groups, classes, or words and classes."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagIndex, BagwiseError, Model
from bagwise._io.tensors import FileKind
from bagwise.app import FitOptions, ItemIndex, evaluate_model, run_fit
from bagwise.app.index.index_changes import with_model
from bagwise.app.index.index_files import FILE
from bagwise.app.index.index_words import IndexedWords
from bagwise.app.index.item_index import index_of_fit
from bagwise.app.index.shared_terms import search_shared
from bagwise.app.model.files import model_bytes
from bagwise.app.training.item_answers import HELD_OUT, NEW, TRAINING
from bagwise.metrics import average_precision
from bagwise.retrieval.blends import BlendSettings
from bagwise.retrieval.blocks import InvertedBlock
from bagwise.sources import Collection

N_CLASSES, N_WORDS = 8, 60


def scene(n=30, seed=0):
    """Counts of items of eight classes. Words that tell classes apart are few, most are common to all."""
    random = np.random.default_rng(seed)
    rates = np.full((N_CLASSES, N_WORDS), 1.0)
    for k in range(N_CLASSES):
        rates[k, 5 * k : 5 * k + 5] = 4.0
    codes = np.repeat(np.arange(N_CLASSES), n)
    uneven = random.gamma(2.0, 0.5, (len(codes), N_WORDS))  # items of a class differ
    return random.poisson(rates[codes] * uneven).astype(np.float64), codes


def collection(X, codes, name="item"):
    return Collection.from_matrix(X, [f"{name}{i}" for i in range(len(X))], [(f"class{code}",) for code in codes])


def fitted_to(X, codes):
    return run_fit(collection(X, codes), FitOptions(n_groups=20, folds=0, n_jobs=1)).model


@pytest.fixture(scope="module")
def known():
    X, codes = scene()
    return fitted_to(X, codes), X, codes


@pytest.fixture(scope="module")
def partly_known():
    """A model of the first five classes, and an index of all."""
    X, codes = scene()
    model = fitted_to(X[codes < 5], codes[codes < 5])
    return ItemIndex.build(model, collection(X, codes), X), codes


def precision(index, codes, queries, their_codes, by):
    found = index.search(queries, len(index), by=by)
    place = {name: i for i, name in enumerate(index.ids)}
    ranks = [[codes[place[hit.id]] == code for hit in hits] for hits, code in zip(found, their_codes, strict=True)]
    return np.mean([average_precision(row, interpolated=False) for row in ranks])


def test_classes_are_used_where_they_fit_and_words_where_not(partly_known):
    index, codes = partly_known
    queries, their_codes = scene(10, seed=1)
    unseen = their_codes >= 5
    new, old = ((queries[rows], their_codes[rows]) for rows in (unseen, ~unseen))
    by_words, by_classes, by_both = (precision(index, codes, *new, by) for by in ("words", "classes", "both"))
    assert by_classes < by_words - 0.1  # scores of other classes ruin the ranking
    assert by_both > max(by_words - 0.03, by_classes + 0.1)
    by_words, by_classes, by_both = (precision(index, codes, *old, by) for by in ("words", "classes", "both"))
    assert by_words < by_classes - 0.1
    assert by_both > by_classes - 0.1
    weights = index.class_weights(queries)
    assert weights[unseen].mean() < weights[~unseen].mean() - 0.3
    assert (index.class_weights(queries, by="words") == 0).all()


def test_known_classes_are_found_by_their_scores(known):
    model, X, codes = known
    index = ItemIndex.build(model, collection(X, codes), X)
    queries, their_codes = scene(5, seed=2)
    by_words, by_classes, by_both = (
        precision(index, codes, queries, their_codes, by) for by in ("words", "classes", None)
    )
    assert by_words < by_classes - 0.1
    assert by_both == pytest.approx(by_classes, abs=0.03)


def test_a_query_of_common_words_is_compared_by_words():
    """As a text such as "the of and": its neighbours are certain of their classes, the query is not."""
    random, codes = np.random.default_rng(3), np.repeat(np.arange(N_CLASSES), 12)
    rates = np.full((N_CLASSES, N_WORDS), 2.0)  # the last 20 words are the same in all classes
    rates[:, : 5 * N_CLASSES] = 12 * np.repeat(np.eye(N_CLASSES), 5, axis=1)
    X = random.poisson(rates[codes]).astype(np.float64)
    index = ItemIndex.build(fitted_to(X, codes), collection(X, codes), X)
    common, telling = np.zeros((1, N_WORDS)), np.zeros((N_CLASSES, N_WORDS))
    common[0, 40:] = 1
    for k in range(N_CLASSES):
        telling[k, 5 * k : 5 * k + 3] = 1
    ignored = dataclasses.replace(index.blend, settings=BlendSettings(own_certainty=0.0))
    assert dataclasses.replace(index, blend=ignored).class_weights(common)[0] > 0.9
    assert index.class_weights(common)[0] < 0.4
    assert (index.class_weights(telling) > 0.9).all()


def test_similarities_are_at_most_1(known):
    model, X, codes = known
    for by in ("words", "groups", "classes", "both"):
        index = ItemIndex.build(model, collection(X, codes), X, by=by)
        scores = [hit.score for hits in index.search(X, k=5) for hit in hits]
        assert 0 <= min(scores) <= max(scores) <= 1
    index = ItemIndex.build(model, collection(X, codes), X, by="words")
    assert index.index.search(np.sqrt(X / X.sum(axis=1, keepdims=True)), 1)[0].max() > 1  # by rounding errors
    assert [hits[0].id for hits in index.search(X, k=1)] == list(index.ids)


@pytest.mark.parametrize("by", ["words", "groups", "classes", "both"])
def test_an_empty_index_says_so(known, by):
    model, X, _ = known
    index = ItemIndex.build(model, Collection.from_matrix(X[:0], [], []), X[:0], by=by)
    for ask in (index.search, index.class_weights):
        with pytest.raises(BagwiseError, match="The index is empty"):
            ask(X[:1])


def test_an_item_of_the_index_is_found_first(known):
    model, X, codes = known
    with pytest.raises(BagwiseError, match="k must be at least 1, got 0"):
        ItemIndex.build(model, collection(X, codes), X).search(X[:1], k=0)
    for rows in (X, sp.csr_array(X)):
        index = ItemIndex.build(model, collection(X, codes), rows)
        for number, hits in enumerate(index.search(rows[:40], k=4)):
            assert (hits[0].id, hits[0].score) == (f"item{number}", 1.0)
            assert all(0 <= hit.score <= 1 for hit in hits)


@pytest.mark.parametrize("by", ["words", "groups", "classes", "both"])
def test_a_saved_index_finds_the_same(known, tmp_path, by):
    model, X, codes = known
    settings = BlendSettings(slope=7.0)
    index = ItemIndex.build(model, collection(X, codes), X, by=by, settings=settings)
    again = ItemIndex.load(index.save(tmp_path / "one.index"))
    assert again.search(X[:6] + 1, k=5) == index.search(X[:6] + 1, k=5)
    assert (again.by, again.described, again.score_name) == (index.by, index.described, index.score_name)
    if by in ("classes", "both"):
        assert again.blend.settings == settings
        np.testing.assert_array_equal(again.class_weights(X[:6]), index.class_weights(X[:6]))
    other = ItemIndex.build(model, collection(X, codes), X, by=by, settings=settings).save(tmp_path / "two.index")
    assert other.read_bytes() == (tmp_path / "one.index").read_bytes()


def test_metrics_compare_relative_frequencies_of_words(known):
    model, X, codes = known
    shares = X / X.sum(axis=1, keepdims=True)
    index = ItemIndex.build(model, collection(X, codes), X, metric="chi2")
    assert (index.by, index.described) == ("words", "words, metric chi2")
    wanted = ((shares[0] - shares) ** 2 / np.where(shares[0] + shares > 0, shares[0] + shares, 1)).sum(axis=1)
    found = index.search(X[:1], k=5)[0]
    np.testing.assert_allclose([hit.score for hit in found], np.sort(wanted)[:5], atol=1e-6)
    alone = ItemIndex.build(model, collection(X, codes), X, by="words")
    wanted = np.sqrt(shares[0]) @ np.sqrt(shares).T
    np.testing.assert_allclose([hit.score for hit in alone.search(X[:1], 5)[0]], np.sort(wanted)[::-1][:5], atol=1e-6)


@pytest.fixture(scope="module")
def without_classes():
    """A model of items without classes, the items and their codes."""
    X, codes = scene()
    rows = Collection.from_matrix(X, [str(i) for i in range(len(X))], [()] * len(X))
    return run_fit(rows, FitOptions(n_groups=10, folds=0, n_jobs=1)).model, rows, X, codes


def test_without_classes_words_and_groups_are_compared(without_classes, tmp_path):
    model, rows, X, _ = without_classes
    index = ItemIndex.build(model, rows, X)
    assert (index.by, index.described, index.class_weights(X[:2]).tolist()) == ("both", "words and groups", [0, 0])
    words = np.sqrt(X / X.sum(axis=1, keepdims=True))
    groups = np.sqrt(model.group(X, normalize=("l1",)))
    weight = index.blend.word_weight
    formula = {"words": words @ words.T, "groups": groups @ groups.T}
    formula["both"] = weight * formula["words"] + (1 - weight) * formula["groups"]
    loaded = ItemIndex.load(index.save(tmp_path / "items.index"))
    for by, wanted in formula.items():
        for one in (index, loaded, ItemIndex.build(model, rows, sp.csr_array(X))):
            for row, hits in zip(wanted[:4], one.search(X[:4], 6, by=by), strict=True):
                np.testing.assert_allclose([hit.score for hit in hits], np.sort(row)[::-1][:6], atol=1e-6)
        assert [hit.id for hit in index.similar(3, 5, by=by)] == [hit.id for hit in index.search(X[3:4], 5, by=by)[0]]
        found, shared = search_shared(index, 3, 5, by)
        np.testing.assert_allclose(
            [sum(t.contribution for t in terms) for terms in shared], [hit.score for hit in found]
        )
        kinds = {term.kind for terms in shared for term in terms}
        assert kinds == ({"word", "group"} if by == "both" else {by[:-1]})
    of_groups = search_shared(index, 3, 5, "both", model)[1]  # words without names: all by groups
    assert {term.kind for terms in of_groups for term in terms} == {"group"}
    np.testing.assert_allclose(
        [sum(t.contribution for t in terms) for terms in of_groups], [hit.score for hit in index.similar(3, 5)]
    )
    with pytest.raises(BagwiseError, match="needs a model with a classifier, but <Model: table"):
        ItemIndex.build(model, rows, X, by="classes")
    with pytest.raises(BagwiseError, match="compares items by both, so it cannot be searched by 'classes'"):
        index.search(X[:1], by="classes")


def test_without_classes_items_come_and_go(without_classes):
    model, rows, X, _ = without_classes
    index = ItemIndex.build(model, rows, X)
    few = ItemIndex.build(model, rows[:100], X[:100]).with_map()
    grown = few.add(rows[100:], X[100:])
    assert grown.search(X[:5], 9) == index.search(X[:5], 9)
    assert grown.remove([str(i) for i in range(100, len(X))]).search(X[:5], 9) == few.search(X[:5], 9)
    assert len(grown.map) == len(X)


def test_edited_groups_are_compared(without_classes):
    model, rows, X, _ = without_classes
    index = ItemIndex.build(model, rows, X)
    edited = model.apply([{"edit": "join", "n_groups": 10, "groups": [0, 1, 2, 3]}])
    wanted = ItemIndex.build(edited, rows, X)
    found = with_model(index, edited)
    assert found.model is edited
    for ours, theirs in zip(found.search(X[:9], 5), wanted.search(X[:9], 5), strict=True):
        assert [hit.id for hit in ours] == [hit.id for hit in theirs]
        np.testing.assert_allclose([hit.score for hit in ours], [hit.score for hit in theirs], atol=1e-6)
    assert with_model(index, model.rename_groups({0: "first"})).index is index.index


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"blend": {"word_weight": 1.5}}, "word_weight must be a number from 0 to 1; got 1.5"),
        ({"blend": {"word_weight": True}}, "got True"),
        ({"blend": None}, "its blend is None; expected object"),
        ({"by": "classes"}, "it has the tensors"),
    ],
)
def test_damaged_blends_of_groups_are_refused(without_classes, tmp_path, change, told):
    model, rows, X, _ = without_classes
    path = ItemIndex.build(model, rows, X).save(tmp_path / "items.index")
    header, tensors = FILE.load(path, lambda *parts: parts)
    FileKind(FILE.name, None, None).save(path, header | change, tensors)
    with pytest.raises(BagwiseError, match=told):
        ItemIndex.load(path)


def test_groups_of_a_file_are_those_of_its_model(without_classes, tmp_path):
    model, rows, X, _ = without_classes
    index = dataclasses.replace(ItemIndex.build(model, rows, X), model=model.cut(9))
    with pytest.raises(BagwiseError, match="it has 70 columns; expected 69 for the words and groups of its model"):
        ItemIndex.load(index.save(tmp_path / "items.index"))


def test_items_are_numbered_from_0(known, tmp_path):
    model, X, codes = known
    index = ItemIndex.build(model, collection(X, codes), X, by="groups")
    other = BagIndex("hellinger").add(np.ones((len(X), 20)), np.arange(len(X)) + 1)
    path = dataclasses.replace(index, index=other).save(tmp_path / "my.index")
    with pytest.raises(BagwiseError, match="is damaged: its items are numbered"):
        ItemIndex.load(path)


def test_the_classifier_of_the_most_groups_is_used(known):
    model, X, codes = known
    index = ItemIndex.build(model, collection(X, codes), X, by="classes")
    cut = ItemIndex.build(model.cut(10), collection(X, codes), X, by="classes")
    assert cut.search(X[:5]) == index.search(X[:5])
    found = index.search(X[:5], k=1)
    scores = np.exp(8 * model.cut(max(model.heads)).decision_function(X))
    chances = scores / scores.sum(axis=1, keepdims=True)
    wanted = (chances[:5] @ chances.T).max(axis=1)
    np.testing.assert_allclose([hits[0].score for hits in found], wanted, atol=1e-5)


def test_what_to_compare_by_is_checked(known):
    model, X, codes = known
    with pytest.raises(BagwiseError, match=r"Unknown by: 'size'.*'auto', 'both'"):
        ItemIndex.build(model, collection(X, codes), X, by="size")
    with pytest.raises(BagwiseError, match="metric='chi2' is for by='words' and by='groups', not for by='both'"):
        ItemIndex.build(model, collection(X, codes), X, by="both", metric="chi2")
    with pytest.raises(BagwiseError, match=r"Unknown by: 'size'\. Accepted: 'both', 'classes', 'words'\."):
        ItemIndex.build(model, collection(X, codes), X).search(X[:1], by="size")


@pytest.mark.parametrize("by", ["words", "classes", "both"])
def test_items_may_be_indexed_in_several_batches(known, monkeypatch, by):
    model, X, codes = known
    rows = sp.csr_array(X)
    whole = ItemIndex.build(model, collection(X, codes), rows, by=by).search(X[:6] + 1, k=9)
    monkeypatch.setattr("bagwise.app.index.index_features._BATCH", 7)
    assert ItemIndex.build(model, collection(X, codes), rows, by=by).search(X[:6] + 1, k=9) == whole


@pytest.fixture(scope="module")
def validated():
    X, codes = scene(12)
    fit = run_fit(collection(X, codes), FitOptions(n_groups=20, folds=3, n_jobs=1))
    return fit, X, codes


def test_answers_are_those_of_cross_validation_and_of_the_model_for_others(validated, tmp_path):
    fit, _, _ = validated
    others, their_codes = scene(3, seed=5)
    evaluation = evaluate_model(fit.model, collection(others, their_codes, "new"))
    answers = ItemIndex.load(index_of_fit(fit, evaluation, "", FitOptions()).save(tmp_path / "one.index")).answers
    n = len(fit.codes)
    assert answers.sizes == fit.model.path.sizes
    assert answers.protocol == fit.model.path.protocol
    np.testing.assert_array_equal(answers.top.predicted[:, :n], fit.held_out)
    assert answers.origins.tolist() == [HELD_OUT] * n + [NEW] * len(others)
    assert (answers.top.runner_up != answers.top.predicted).all()
    for k, size in enumerate(answers.sizes):
        scores = fit.model.cut(size).decision_function(others)
        order = np.argsort(-scores, axis=1)
        np.testing.assert_array_equal(answers.top.predicted[k, n:], order[:, 0])
        np.testing.assert_array_equal(answers.top.runner_up[k, n:], order[:, 1])
        best = np.take_along_axis(scores, order, axis=1)
        np.testing.assert_allclose(answers.top.score[k, n:], best[:, 0], rtol=1e-3)
        np.testing.assert_allclose(answers.top.margin[k, n:], best[:, 0] - best[:, 1], rtol=1e-3, atol=1e-6)


def test_answers_of_the_model_alone_know_its_training_items(validated):
    fit, X, codes = validated
    both = np.concatenate([X[::2], X[::2] + 1])
    index = ItemIndex.build(fit.model, collection(both, np.tile(codes[::2], 2)), both)
    n = len(X[::2])
    assert index.answers.origins.tolist() == [TRAINING] * n + [NEW] * n
    assert (index.answers.protocol, index.answers.exact) == ("", True)
    predicted = fit.model.cut(10).decision_function(both).argmax(axis=1)
    np.testing.assert_array_equal(index.answers.top.predicted[index.answers.sizes.index(10)], predicted)
    assert [index.answers.sizes[index.answers.nearest(n)] for n in (1, 6, 12, 40, 1000)] == [8, 8, 10, 50, 60]


@pytest.mark.parametrize("by", ["words", "groups", "classes", "both"])
def test_similar_items_are_those_of_a_search(known, by):
    model, X, codes = known
    for rows in (X, sp.csr_array(np.where(X > 2, X, 0))):
        index = ItemIndex.build(model, collection(X, codes), rows, by=by)
        for number in (0, 17, len(X) - 1):
            wanted = index.search(rows[[number]], k=6)[0]
            found = index.similar(number, k=6)
            np.testing.assert_allclose([hit.score for hit in found], [hit.score for hit in wanted], atol=1e-5)
            assert {hit.id for hit in found[:2]} == {hit.id for hit in wanted[:2]}
    with pytest.raises(BagwiseError, match="number must be from 0 to"):
        index.similar(len(X))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer_classes": lambda a: a + 200}, "its answer_classes hold class 2.*; the model has 8"),
        ({"answer_margins": lambda a: a - 100}, "its answer_margins holds -.*; expected at least 0"),
        ({"answer_scores": lambda a: a * np.float16(np.inf)}, "its answer_scores holds .*; expected finite numbers"),
        ({"answer_scores": lambda a: a[:, 1:]}, "its answer_scores has shape"),
        ({"item_origins": lambda a: a + 9}, "its item_origins holds .*; expected at most 3"),
        ({"sizes": lambda sizes: sizes[::-1]}, "sizes .*expected ascending"),
        ({"sizes": lambda sizes: sizes[:-1]}, "it has answers at 5 sizes, named are 4"),
        ({"sizes": lambda sizes: [*sizes[:-1], 61]}, "its model has classifiers at 2, 3"),
        ({"exact": lambda exact: "yes"}, "have exact 'yes'"),
        ({"protocol": lambda protocol: None}, "protocol None"),
    ],
)
def test_damaged_answers_are_refused(validated, tmp_path, change, message):
    fit, X, codes = validated
    path = ItemIndex.build(fit.model, collection(X, codes), X).save(tmp_path / "one.index")
    header, tensors = FILE.load(path, lambda *parts: parts)
    for name, act in change.items():
        place = tensors if name in tensors else header["answers"]
        place[name] = act(place[name])
    kept = {name: value for name, value in header.items() if name not in ("kind", "schema")}
    FileKind(FILE.name, None, None).save(path, kept, tensors)
    with pytest.raises(BagwiseError, match=f"is damaged: .*{message}"):
        ItemIndex.load(path)


def test_answers_before_edits_are_kept_with_edited_models(validated, tmp_path):
    fit, X, codes = validated
    index = ItemIndex.build(fit.model, collection(X, codes), X)
    edited = fit.model.apply([{"edit": "join", "n_groups": 20, "groups": [0, 1]}])
    kept = {60: index.answers.rows[60]}
    other = dataclasses.replace(index, model=edited, answers=index.answers.replaced(kept, "", index.answers))
    path = other.save(tmp_path / "one.index")
    answers = ItemIndex.load(path).answers
    assert (answers.sizes, answers.unedited.sizes) == ((60,), index.answers.sizes)
    for found, wanted in zip(answers.unedited.top.arrays, index.answers.top.arrays, strict=True):
        np.testing.assert_array_equal(found, wanted)
    header, tensors = FILE.load(path, lambda *parts: parts)
    header = {name: value for name, value in header.items() if name not in ("kind", "schema")}
    before = header["answers"]["unedited"]
    some = {name: value for name, value in tensors.items() if name != "unedited_answer_scores"}
    plain = {**tensors, "model": np.frombuffer(model_bytes(fit.model), np.uint8)}
    for told, held, message in (
        (None, tensors, "before edits are None"),
        (before, some, "expected protocol and sizes, all of the tensors"),
        (before, plain, "and 0 edits"),
        ({**before, "sizes": [2]}, tensors, "answers at 5 sizes, named are 1"),
        ({**before, "protocol": "x" * 201}, tensors, "have the protocol"),
        ({**before, "exact": True}, tensors, "expected protocol and sizes"),
    ):
        FileKind(FILE.name, None, None).save(path, {**header, "answers": {**header["answers"], "unedited": told}}, held)
        with pytest.raises(BagwiseError, match=f"is damaged: .*{message}"):
            ItemIndex.load(path)


SHARED = [(by, metric) for by in ("words", "groups") for metric in (None, "chi2", "intersection", "euclidean")]


@pytest.mark.parametrize(("by", "metric"), [*SHARED, ("classes", None), ("both", None)])
def test_what_items_share_adds_up_to_their_scores(known, by, metric):
    model, X, codes = known
    index = ItemIndex.build(model, collection(X, codes), X, by=by, metric=metric)
    queries, _ = scene(1, seed=3)
    power = 2 if metric == "euclidean" else 1
    for wanted in ("words", "classes", "both") if by == "both" else (by,):
        for query in (queries[[2]], X[[7]], 7):
            if isinstance(query, int):
                hits = index.similar(query, 12, by=wanted)
            else:
                hits = index.search(query, 12, by=wanted)[0]
            shared = index.shared(query, [index.ids.index(hit.id) for hit in hits], by=wanted)
            assert search_shared(index, query, 12, wanted) == (hits, shared)
            sums = [sum(one.contribution for one in terms) for terms in shared]
            np.testing.assert_allclose(sums, [hit.score**power for hit in hits], atol=1e-5)
            grouped = index.shared(query, [index.ids.index(hit.id) for hit in hits], by=wanted, cut=model.cut(5))
            for terms, some in zip(grouped, sums, strict=True):
                assert sum(one.contribution for one in terms) == pytest.approx(some, abs=1e-9)
                assert wanted == "groups" or len([one for one in terms if one.kind == "group"]) <= 5
            for terms in shared:
                added = [one.contribution for one in terms]
                assert added == sorted(added, reverse=True)
                kinds = {"words": {"word"}, "groups": {"group"}, "classes": {"class"}, "both": {"word", "class"}}
                assert {one.kind for one in terms} <= kinds[wanted]
    with pytest.raises(BagwiseError, match="One query"):
        index.shared(X[:2], [0])
    with pytest.raises(BagwiseError, match="number must be"):
        index.shared(X[:1], [len(X)])


def test_shared_words_are_in_both_items(known):
    model, X, codes = known
    index = ItemIndex.build(model, collection(X, codes), X, by="words")
    (terms,) = index.shared(X[[3]], [50])
    assert {one.number for one in terms} == set(np.flatnonzero(X[3] * X[50]).tolist())


@pytest.mark.parametrize("metric", ["hellinger", "chi2", "intersection", "euclidean"])
def test_groups_of_any_cut_are_compared_from_the_words_of_an_index(known, metric):
    model, X, codes = known
    index = ItemIndex.build(model, collection(X, codes), X)
    cut = model.cut(9)
    features = IndexedWords.of(index).features(cut, ("l1",))
    ours = index.compared_by_groups(cut, features, metric).search(X[:5], 6)
    built = ItemIndex.build(cut, collection(X, codes), X, by="groups", metric=metric).search(X[:5], 6)
    for one, other in zip(ours, built, strict=True):
        np.testing.assert_allclose([hit.score for hit in one], [hit.score for hit in other], atol=1e-4)
        assert one[0].id == other[0].id


@pytest.mark.parametrize("n", [1, 2, 9, 30, N_WORDS])
@pytest.mark.parametrize("kind", ["counts", "texts"])
def test_features_of_a_cut_are_those_of_the_model(known, kind, n):
    model, X, codes = known
    X = X * (np.random.default_rng(0).random(X.shape) < 0.2)  # sparse enough for inverted lists
    given = {one.name: getattr(model, one.name) for one in dataclasses.fields(model) if one.init}
    if kind == "texts":
        weights = np.random.default_rng(1).random(N_WORDS) + 0.5
        changes = {"term": "log", "norm": "l2", "normalize": (), "word_weights": weights}
        model = Model(**given | {"modality": "texts", "word_names": [f"w{k}" for k in range(N_WORDS)]} | changes)
    index = ItemIndex.build(model, collection(X, codes), sp.csr_array(X), by="words")
    assert all(isinstance(block, InvertedBlock) for block in index.index.blocks())
    cut = model.cut(n)
    features = IndexedWords.of(index).features(cut)
    np.testing.assert_allclose(features.toarray(), cut.group(sp.csr_array(X)).toarray(), atol=2e-6)
