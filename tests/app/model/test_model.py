"""`Model`: what it computes is what its parts compute one by one, and nothing else is taken."""

import dataclasses
import json
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from bagwise import Bags, BagwiseError, Hierarchy, Model, open_collection
from bagwise.app.model import Head, PathErrors
from bagwise.codebooks import encode_bags
from bagwise.descriptors import LBPD5, Patches, SentenceVectors, WordCounts
from bagwise.sources.collection import Collection
from model_cases import MADE, image_model, random_hierarchy, text_model


def make_bags(random, lengths=(5, 0, 9, 1), width=4):
    return Bags.from_list(
        [random.normal(size=(n, width)) for n in lengths], [random.random((n, 2)) for n in lengths], n_features=width
    )


@pytest.fixture(scope="module")
def pictured():
    return image_model(np.random.default_rng(0))


@pytest.fixture(scope="module")
def worded():
    return text_model(np.random.default_rng(0))


def table_model(d=6, n=3, **more):
    random = np.random.default_rng(0)
    return Model(
        modality="table",
        hierarchy=random_hierarchy(d, random),
        n_groups=n,
        classes=["a", "b"],
        heads={n: Head(random.normal(size=(2, n)), [0, 0.1])},
        **more,
    )


def plain_features(model, bag, positions):
    """Features of one bag, vector by vector, as the definition says."""
    lookup = {}
    for group, words in enumerate(model.hierarchy.groups(model.n_groups)):
        lookup |= dict.fromkeys(words.tolist(), group)
    cells = [(g, r, c) for g, (rows, columns) in enumerate(model.pyramid) for r in range(rows) for c in range(columns)]
    row = np.zeros((len(cells), model.n_groups))
    for vector, (x, y) in zip(bag.astype(float), positions, strict=True):
        word = int(np.argmin(((model.codebook.astype(float) - vector) ** 2).sum(axis=1)))
        for g, (rows, columns) in enumerate(model.pyramid):
            cell = (g, min(int(y * rows), rows - 1), min(int(x * columns), columns - 1))
            row[cells.index(cell), lookup[word]] += 1
    row = row.ravel()
    for step in model.normalize:
        if step == "power":
            row = np.sqrt(row)
        elif row.any():
            row = row / np.linalg.norm(row, 1 if step == "l1" else 2)
    return row


@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 9),
    pyramid=st.sampled_from([None, 5, 8, [(1, 1), (1, 1)], [(2, 3)]]),
    normalize=st.sampled_from([(), ("l1", "power"), ("power", "l2")]),
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    data=st.data(),
)
def test_features_are_the_definition(seed, d, pyramid, normalize, lengths, data):
    random = np.random.default_rng(seed)
    n = data.draw(st.integers(1, d))
    model = Model(
        modality="images",
        hierarchy=random_hierarchy(d, random),
        n_groups=n,
        codebook=random.normal(size=(d, 3)),
        pyramid=pyramid,
        normalize=normalize,
    )
    bags = make_bags(random, lengths, 3)
    expected = [plain_features(model, bag, bags.positions_of(i)) for i, bag in enumerate(bags)]
    np.testing.assert_allclose(model.transform(bags).toarray(), expected, atol=1e-6)


def test_all_ways_to_give_images_agree(pictured, tmp_path):
    from PIL import Image

    random = np.random.default_rng(1)
    images = [random.integers(0, 256, (8, 6)).astype(np.uint8) for _ in range(5)]
    for number, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    bags = pictured.descriptor.transform(images)
    histograms = pictured.histograms(images)
    ways = {
        "threads": pictured.histograms(images, n_jobs=2),
        "generator": pictured.histograms(image for image in images),
        "array": pictured.histograms(np.stack(images)),
        "collection": pictured.histograms(open_collection(tmp_path)),
        "bags": pictured.histograms(bags),
        "batches": pictured.histograms([bags[:2], bags[2:]]),
        "describing": pictured.histograms(pictured.descriptor.iter_transform(images, batch_size=2)),
        "histograms": pictured.histograms(histograms),
        "dense": sp.csr_array(pictured.histograms(histograms.toarray())),
        "one by one": sp.vstack([pictured.histograms([image]) for image in images]),
    }
    for name, found in ways.items():
        assert (found != histograms).nnz == 0, name
    whole = encode_bags(bags, pictured.codebook, pyramid=5)
    np.testing.assert_array_equal(histograms.toarray(), whole)
    assert histograms.dtype == np.float32


def test_sparse_is_dense_and_float64_is_float32(worded):
    counts = np.random.default_rng(0).integers(0, 4, (7, 8))
    dense = worded.transform(counts)
    sparse = worded.transform(sp.csr_matrix(counts))
    assert isinstance(dense, np.ndarray)
    assert sp.issparse(sparse)
    assert dense.dtype == sparse.dtype == np.float32
    np.testing.assert_array_equal(sparse.toarray(), dense)
    np.testing.assert_array_equal(worded.transform(counts.astype(np.float32)), dense)
    np.testing.assert_array_equal(worded.predict(sparse_counts := sp.csc_array(counts)), worded.predict(counts))
    np.testing.assert_allclose(worded.decision_function(sparse_counts), worded.decision_function(counts), atol=1e-12)


def test_texts_are_counted_as_word_counts_does(worded, tmp_path):
    texts = ["The cat ran, the dog!", "", "dog dog dog a the cat"]
    counter = WordCounts(vocabulary=list(worded.word_names), ngram_range=(1, 2), stop_words=["a"])
    expected = counter.transform(texts).toarray()
    np.testing.assert_array_equal(worded.histograms(texts).toarray(), expected)
    np.testing.assert_array_equal(worded.transform(texts).toarray(), worded.transform(expected))
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    np.testing.assert_array_equal(worded.histograms(open_collection(tmp_path)).toarray(), expected)


def test_tables_are_words_already():
    model = table_model(word_names=list("uvwxyz"))
    X = np.random.default_rng(0).random((4, 6))
    ids, labels = [str(i) for i in range(4)], [()] * 4
    expected = model.transform(X)
    for table in (X.tolist(), pd.DataFrame(X, columns=list("uvwxyz")), Collection.from_matrix(X, ids, labels)):
        np.testing.assert_array_equal(model.transform(table), expected)
    with pytest.raises(BagwiseError, match="'z' is missing"):
        model.transform(pd.DataFrame(X, columns=list("uvwxya")))
    with pytest.raises(BagwiseError, match="their order differs"):
        model.transform(Collection.from_matrix(X, ids, labels, feature_names=list("zyxwvu")))


def test_patterns_need_no_codebook():
    random = np.random.default_rng(0)
    images = [random.integers(0, 9, (12, 12)) for _ in range(3)]
    hierarchy = Hierarchy(1 << 16, [[0, k] for k in range((1 << 16) - 1, 9, -1)], np.zeros((1 << 16) - 10))
    model = Model(modality="images", hierarchy=hierarchy, n_groups=10, descriptor=LBPD5(), normalize=())
    counts = LBPD5().transform(images)
    expected = np.zeros((3, 10))
    np.add.at(expected.T, hierarchy.cut(10), counts.toarray().T)
    for way in (images, counts, LBPD5().iter_transform(images, batch_size=2)):
        np.testing.assert_array_equal(model.transform(way).toarray(), expected)
    with pytest.raises(BagwiseError, match="takes images or counts of patterns, got Bags"):
        model.transform(make_bags(random))


def test_cuts_are_models_made_with_that_size(pictured):
    bags = make_bags(np.random.default_rng(2))
    histograms = pictured.histograms(bags)
    for n in range(1, 13):
        cut = pictured.cut(n)
        derived = {"derived_head": {"n_groups": n, "from": 2 if n == 1 else 4}} if n in (1, 3) else {}
        assert cut.heads.keys() == {2, 4} | ({n} if derived else set())
        made = dataclasses.replace(pictured, n_groups=n, heads=cut.heads, provenance={**pictured.provenance, **derived})
        assert cut == made
        np.testing.assert_array_equal(cut.lookup, pictured.hierarchy.cut(n))
        expected = cut.transform(bags).toarray()
        np.testing.assert_array_equal(made.transform(bags).toarray(), expected)
        np.testing.assert_array_equal(pictured.group(histograms, n).toarray(), expected)
        assert expected.shape[1] == 5 * n == len(cut.feature_names())
    assert pictured.cut(2).cut(4) == pictured.cut(3).cut(4) == pictured != pictured.cut(2)
    assert pictured.n_groups == 4


def test_predictions_are_the_largest_scores(pictured):
    bags = make_bags(np.random.default_rng(3), [3] * 20)
    for n in (2, 4):
        model, head = pictured.cut(n), pictured.heads[n]
        scores = model.transform(bags).toarray().astype(float) @ head.coef.astype(float).T + head.intercept
        np.testing.assert_allclose(model.decision_function(bags), scores, atol=1e-12)
        np.testing.assert_array_equal(model.predict(bags), np.array(model.classes)[scores.argmax(axis=1)])
    with pytest.raises(BagwiseError, match=r"has classifiers for 2, 4 groups, not for 5\. Cut it"):
        pictured.cut(5).predict(bags)
    with pytest.raises(BagwiseError, match="fitted without classes"):
        dataclasses.replace(pictured, heads={}, classes=()).predict(bags)


def test_names_follow_words_and_cells(pictured, worded):
    one, two = pictured.cut(1), pictured.cut(2)
    best = [two.classes[two.head.coef[:, number::2].mean(axis=1).argmax()] for number in (0, 1)]
    assert two.group_names().tolist() == [f"{best[0]} #0", f"{best[1]} #1"]
    assert one.group_names().tolist() == ["all words"]
    assert one.feature_names().tolist()[:2] == ["1x1_r0c0_group0", "2x2_r0c0_group0"]  # whatever the classifier
    assert dataclasses.replace(two, heads={}, calibration={}).group_names().tolist() == ["group0", "group1"]
    names = worded.cut(8).group_names()
    assert names.tolist() == list(worded.word_names)
    assert worded.cut(1).group_names().tolist() == ["all words"]
    assert worded.cut(1).describe_groups()[0].title == "all words"
    assert table_model().cut(6).feature_names().tolist() == [f"x{k}" for k in range(6)]


def test_models_describe_themselves(pictured, worded):
    info = json.loads(json.dumps(pictured.info()))
    assert info == pictured.info()
    assert info["heads"] == [2, 4]
    assert info["descriptor"]["name"] == "Patches"
    assert repr(pictured) == "<Model: images, 12 words merged into 4 groups, 3 classes>"
    assert repr(dataclasses.replace(worded, classes=(), heads={})) == "<Model: texts, 8 words merged into 3 groups>"


def test_models_cannot_be_changed_but_copied(pictured):
    with pytest.raises(dataclasses.FrozenInstanceError):
        pictured.n_groups = 3
    with pytest.raises(ValueError, match="read-only"):
        pictured.codebook[0, 0] = 1
    copy = pickle.loads(pickle.dumps(pictured))
    assert copy == pictured
    assert copy.descriptor.get_params() == pictured.descriptor.get_params()
    assert pictured != 3


def test_what_was_given_does_not_change_a_model():
    words, options = np.zeros((3, 2), np.float32), {"list": [1]}
    model = Model(
        modality="images",
        hierarchy=Hierarchy(3, [], []),
        n_groups=3,
        codebook=words,
        options=options,
        provenance={"n": np.int64(3)},
    )
    words[0, 0] = 5
    options["list"].append(2)
    assert model.codebook[0, 0] == 0
    assert model.options == {"list": [1]}
    assert model.provenance == {"n": 3}
    assert type(model.provenance["n"]) is int


HIERARCHY = Hierarchy(3, [[0, 1]], [0.5])
SOUND = {"modality": "images", "hierarchy": HIERARCHY, "n_groups": 2, "codebook": np.zeros((3, 2))}
TEXT = {"modality": "texts", "hierarchy": HIERARCHY, "n_groups": 2, "word_names": ["a", "b", "c"]}
TABLE = {"modality": "table", "hierarchy": HIERARCHY, "n_groups": 2}


@pytest.mark.parametrize(
    ("sound", "changes", "message"),
    [
        (SOUND, {"modality": "sounds"}, "Unknown modality: 'sounds'"),
        (SOUND, {"modality": ["images"]}, "Unknown modality"),
        (SOUND, {"hierarchy": [[0, 1]]}, "must be a Hierarchy"),
        (SOUND, {"hierarchy": Hierarchy(0, [], [])}, "must be a Hierarchy of 1 to"),
        (TABLE, {"hierarchy": Hierarchy(2**21, [], [])}, "at most 1048576 groups"),
        (TABLE, {"hierarchy": Hierarchy(2**40, [], [])}, "must be a Hierarchy of 1 to 2147483647"),
        (SOUND, {"n_groups": 1}, "n_groups must be from 2 to 3"),
        (SOUND, {"n_groups": 4}, "n_groups must be from 2 to 3"),
        (SOUND, {"n_groups": 2.0}, "n_groups must be an integer"),
        (SOUND, {"n_groups": True}, "n_groups must be an integer"),
        (SOUND, {"codebook": None}, "A model of images needs a codebook"),
        (SOUND, {"codebook": np.zeros((2, 2))}, "codebook must have one entry per word of the hierarchy, 3; got 2"),
        (SOUND, {"codebook": np.zeros((3, 0))}, "at least one feature"),
        (SOUND, {"codebook": np.full((3, 2), np.nan)}, "codebook must be finite"),
        (SOUND, {"codebook": np.zeros(3)}, "codebook must have two dimensions"),
        (SOUND, {"descriptor": SentenceVectors()}, "stores descriptors of this library that are not fitted"),
        (SOUND, {"descriptor": Patches(patch=0)}, "patch of Patches must be an integer from 1"),
        (SOUND, {"descriptor": LBPD5()}, "A model of images by LBPD5 has no codebook"),
        (SOUND, {"descriptor": LBPD5(), "codebook": None}, "has 65536 words and no pyramid"),
        (SOUND, {"modality": "videos", "descriptor": Patches()}, "Patches describes images"),
        (SOUND, {"word_names": ["a", "b", "c"]}, "Words of images have no names"),
        (SOUND, {"word_totals": [1, 2]}, "word_totals must have one entry per word"),
        (SOUND, {"tokenizer": {"lowercase": True}}, "Only texts have a tokenizer"),
        (SOUND, {"pyramid": 7}, "is not a pyramid"),
        (SOUND, {"pyramid": [[100, 100]]}, "at most 1024 cells, this one has 10000"),
        (SOUND, {"normalize": ("l3",)}, "Unknown step: 'l3'"),
        (SOUND, {"classes": "ab"}, "classes must be a list of strings"),
        (SOUND, {"classes": ["a", "a"]}, "classes must be unique, but 'a'"),
        (SOUND, {"classes": ["a", 1]}, "entry 1 is 1"),
        (SOUND, {"heads": [1]}, "heads must be a mapping"),
        (SOUND, {"classes": ["a", "b"], "heads": {2: "head"}}, r"Head of shape \(2, 2\).*got str"),
        (SOUND, {"classes": ["a", "b"], "heads": {2: Head(np.zeros((2, 3)), [0, 0])}}, r"got one of shape \(2, 3\)"),
        (SOUND, {"classes": ["a"], "heads": {2: Head(np.zeros((1, 2)), [0])}}, "at least two classes"),
        (SOUND, {"classes": ["a", "b"], "heads": {1: Head(np.zeros((2, 1)), [0, 0])}}, "from 2 to 3"),
        (SOUND, {"path": [0.1]}, "path must be PathErrors"),
        (SOUND, {"options": [1]}, "options must be a mapping"),
        (SOUND, {"options": {"a": np.nan}}, "options must consist of JSON values"),
        (SOUND, {"provenance": {"a": object()}}, "there is an object of type object"),
        (TEXT, {"word_names": None}, "needs word_names"),
        (TEXT, {"word_names": ["a", "b"]}, "word_names must have one entry per word"),
        (TEXT, {"word_names": ["a", "b", "b"]}, "word_names must be unique, but 'b'"),
        (TEXT, {"codebook": np.zeros((3, 2))}, "A model of texts has no codebook"),
        (TEXT, {"pyramid": 5}, "have no positions, so there is no pyramid"),
        (TEXT, {"tokenizer": ["lowercase"]}, "tokenizer must be a mapping"),
        (TEXT, {"tokenizer": {"tokenizer": "eval"}}, "Unknown option of the tokenizer"),
        (TEXT, {"tokenizer": {"lowercase": 1}}, "lowercase of the tokenizer must be true or false"),
        (TEXT, {"tokenizer": {"ngram_range": (2, 1)}}, "ngram_range of the tokenizer must be"),
        (TEXT, {"tokenizer": {"ngram_range": (1, 10**9)}}, "ngram_range of the tokenizer must be"),
        (TEXT, {"tokenizer": {"token_pattern": "(a"}}, "token_pattern of the tokenizer must be a regular expression"),
        (TEXT, {"tokenizer": {"token_pattern": "(a)(b)"}}, "characters and one group"),
        (TEXT, {"tokenizer": {"token_pattern": "(?:" * 300 + ")" * 300}}, "token_pattern of the tokenizer must be"),
        (TEXT, {"tokenizer": {"stop_words": "german"}}, "stop_words of the tokenizer must be null"),
        (TEXT, {"tokenizer": {"analyzer": str.split}}, "there is an object of type"),
        (TEXT, {"tokenizer": {"strip_accents": True}}, "strip_accents of the tokenizer must be"),
        (TABLE, {"descriptor": Patches()}, "Patches describes images, but the model takes table"),
    ],
)
def test_parts_that_do_not_fit_are_refused(sound, changes, message):
    Model(**sound)
    with pytest.raises(BagwiseError, match=message):
        Model(**{**sound, **changes})


def test_tables_that_no_runtime_would_hold_are_refused(monkeypatch):
    monkeypatch.setattr("bagwise.app.model.model.MOST_TABLE", 14)
    with pytest.raises(BagwiseError, match="5 cells of 3 words make 15 columns; a model has at most 14"):
        Model(**SOUND, pyramid=5)
    monkeypatch.setattr("bagwise.app.model.model.MOST_TABLE", 2)
    Model(**SOUND)  # one cell is bounded by the words alone


def test_data_that_do_not_fit_are_refused(pictured, worded, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    random = np.random.default_rng(0)
    bags = make_bags(random)
    for model, X, message in [
        (pictured, open_collection(tmp_path), "This model takes images, got a collection of texts"),
        (pictured, np.zeros((8, 6)), r"X has 6 columns, but the histograms of this model 60\. For one of the images"),
        (pictured, make_bags(random, width=3), "X has 3 features, but this model is expecting 4"),
        (pictured, Bags(bags.values, bags.offsets), "needs the positions"),
        (pictured, [], "nothing to describe"),
        (pictured, iter([]), "nothing to describe"),
        (pictured, 3, "Expected a list of images"),
        (dataclasses.replace(pictured, descriptor=None), [np.zeros((8, 6))], "has no descriptor: it takes Bags"),
        (worded, np.zeros((2, 7)), "X has 7 columns"),
        (worded, sp.csr_array(np.full((2, 8), np.inf)), "row 0, column 0 is inf"),
        (worded, "text", "Expected a list of texts"),
        (worded, [3], "A text must be a str"),
        (table_model(), [["a"] * 6], "must be a matrix of real numbers"),
        (table_model(), [1, 2, 3], "must be a matrix of real numbers"),
        (table_model(), [[0, 1, np.nan, 3, 4, 5]], "row 0, column 2 is nan"),
    ]:
        with pytest.raises(BagwiseError, match=message):
            model.transform(X)
    with pytest.raises(BagwiseError, match="columns"):
        pictured.group(np.zeros((2, 12)))
    with pytest.raises(BagwiseError, match="n_groups must be from 1 to 12"):
        pictured.cut(13)


def test_heads_are_finite_and_of_one_shape():
    head = Head([[1, 2], [3, 4]], [0, 1])
    assert head == Head(np.array([[1.0, 2], [3, 4]]), np.array([0, 1]))
    assert head != Head([[1, 2], [3, 4]], [0, 2])
    assert head != 1
    np.testing.assert_array_equal(head.scores(sp.csr_array([[1.0, 1.0]])), [[3, 8]])
    for coef, intercept, message in [
        ([[1, np.nan]], [0], "coef must be finite"),
        ([[1, 2]], [np.inf], "intercept must be finite"),
        ([[1, 2]], [0, 1], "one intercept per class; got 2 for 1"),
        ([1, 2], [0], "two dimensions"),
    ]:
        with pytest.raises(BagwiseError, match=message):
            Head(coef, intercept)


def test_paths_choose_by_one_standard_error():
    path = PathErrors([50, 2, 10], [0.1, 0.3, 0.11], [0.02, 0.5, 0.02], "split")
    assert path.sizes == (2, 10, 50)
    assert path.errors == (0.3, 0.11, 0.1)
    assert (path.best, path.auto) == (50, 10)
    assert path.better_than(2) is None  # differences are unknown
    paired = PathErrors([50, 2, 10, 20], [0.1, 0.3, 0.13, 0.11], [0.2] * 4, "split", [0, 0.02, 0.02, 0.02])
    assert paired.paired_errors == (0.02, 0.02, 0.02, 0)
    assert (paired.best, paired.auto) == (50, 20)
    assert [paired.better_than(size) for size in (2, 10, 20, 50, 7)] == [20, None, None, None, None]
    assert paired.only([50, 2]).paired_errors == (0.02, 0)
    assert paired.only([2, 10]).paired_errors == ()  # differences to a size that is gone
    assert PathErrors([1, 2], [0.2, 0.2], [0, 0]).best == 1
    for arguments, message in [
        (([1], [0.1, 0.2], [0]), "as many errors"),
        (([], [], []), "at least one"),
        (([0], [0.1], [0]), "at least 1"),
        (([1, 1], [0.1, 0.1], [0, 0]), "must differ"),
        (([1], [1.5], [0]), "errors of a path must be numbers from 0 to 1"),
        (([1], [0.5], [np.nan]), "standard_errors of a path"),
        ((3, [0.5], [0]), "sizes must be a list"),
        (([1], [0.5], [0], "", [0, 0]), "as many errors"),
        (([1], [0.5], [0], 3), "protocol must be a str"),
    ]:
        with pytest.raises(BagwiseError, match=message):
            PathErrors(*arguments)


@pytest.mark.parametrize("sparse", [True, False])
def test_weighted_words_are_tf_idf(sparse):
    """The weighting of texts is that of scikit-learn."""
    from sklearn.feature_extraction.text import TfidfTransformer

    from bagwise.codebooks.normalizing import WordWeighting, inverse_document_frequencies

    random = np.random.default_rng(0)
    counts = random.poisson(0.7, (40, 12)).astype(float)
    counts[3] = 0
    expected = TfidfTransformer(sublinear_tf=True).fit(counts)
    weights = inverse_document_frequencies(sp.csr_array(counts) if sparse else counts)
    np.testing.assert_allclose(weights, expected.idf_, rtol=1e-12)
    given = sp.csr_array(counts) if sparse else counts
    found = WordWeighting("log", weights, "l2").apply(given)
    assert sp.issparse(found) == sparse
    found = found.toarray() if sparse else found
    np.testing.assert_allclose(found, expected.transform(counts).toarray(), rtol=1e-12)


def test_roots_before_merging_are_hellinger_normalised():
    from bagwise.codebooks.normalizing import WordWeighting, normalize_rows

    counts = np.random.default_rng(0).poisson(2.0, (5, 2 * 7)).astype(float)
    np.testing.assert_allclose(WordWeighting("sqrt", None, "l2").apply(counts), normalize_rows(counts))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"term": "exp"}, "Unknown term: 'exp'"),
        ({"norm": "l3"}, "Unknown norm: 'l3'"),
        ({"word_weights": -np.ones(8)}, "must not be negative; the smallest is -1"),
        ({"column_shift": np.ones(8)}, "Only the columns of a table are shifted"),
        ({"word_weights": np.ones(7)}, "one entry per word of the hierarchy, 8; got 7"),
        ({"word_weights": np.full(8, np.nan)}, "finite"),
    ],
)
def test_weights_that_cannot_be_are_refused(changes, message):
    with pytest.raises(BagwiseError, match=message):
        dataclasses.replace(MADE["texts"](), **changes)
