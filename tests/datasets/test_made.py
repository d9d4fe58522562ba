"""Data that are made by code: equal for equal seeds, of the shapes they promise, and learnable."""

import re
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import cross_val_score
from sklearn.naive_bayes import MultinomialNB

from bagwise import BagwiseError, WordMerger, datasets, open_collection

MADE = {
    "photos": lambda **options: datasets.make_photos(10, size=(32, 40), **options),
    "corpus": lambda **options: datasets.make_corpus(30, **options),
    "cells": lambda **options: datasets.make_cells(35, n_genes=120, **options),
}


def held(bunch):
    """What a data set holds, as bytes."""
    data = bunch.get("images", bunch.get("data"))
    data = data.toarray() if sp.issparse(data) else np.asarray(data)
    return data.tobytes()


@pytest.mark.parametrize("name", MADE)
def test_equal_seeds_give_equal_bytes(name):
    make = MADE[name]
    assert held(make()) == held(make(random_state=0)) == held(make(random_state=np.random.default_rng(0)))
    assert held(make(random_state=1)) != held(make())


@pytest.mark.parametrize("name", MADE)
def test_bunches_and_pairs_agree(name):
    bunch, (X, y) = MADE[name](), MADE[name](return_X_y=True)
    assert held({"data": X}) == held(bunch)
    np.testing.assert_array_equal(y, bunch.target)
    counts = Counter(bunch.target.tolist())
    assert sorted(counts) == list(range(len(bunch.target_names)))
    assert max(counts.values()) - min(counts.values()) <= 1
    assert "synthetic" in bunch.DESCR


@pytest.mark.parametrize(
    ("make", "options", "named"),
    [
        (datasets.make_photos, {"n_samples": 0}, "n_samples"),
        (datasets.make_photos, {"size": (10, 10)}, "size"),
        (datasets.make_photos, {"size": 64}, "size"),
        (datasets.make_photos, {"mixed": 1.5}, "mixed"),
        (datasets.make_corpus, {"n_sentences": (5, 2)}, "n_sentences"),
        (datasets.make_corpus, {"n_sentences": 5}, "n_sentences"),
        (datasets.make_corpus, {"noise": float("nan")}, "noise"),
        (datasets.make_cells, {"n_genes": 10}, "n_genes"),
        (datasets.make_cells, {"n_samples": 2.5}, "n_samples"),
        (datasets.load_digit_images, {"scale": 0}, "scale"),
    ],
)
def test_parameters_are_checked(make, options, named):
    with pytest.raises(BagwiseError, match=f"^{named} must be"):
        make(**options)


def test_texts_have_the_words_of_their_topics():
    corpus = datasets.make_corpus(60, noise=0)
    counter = CountVectorizer(vocabulary=list(corpus.word_topics), token_pattern=r"[a-z]+")
    counts = counter.transform(corpus.data).toarray()
    on_topics = np.zeros((len(counts), len(corpus.topic_names)))
    np.add.at(on_topics.T, list(corpus.word_topics.values()), counts.T)
    np.testing.assert_array_equal(on_topics > 0, corpus.topics > 0)
    assert on_topics.sum() == counts.sum()
    of_subjects = [name.partition(":")[0] for name in corpus.topic_names]
    for topics, subject in zip(corpus.topics, corpus.target, strict=True):
        assert {of_subjects[k] for k in np.flatnonzero(topics)} == {corpus.target_names[subject]}
    assert not any(re.search(r"\ba [aeio]", text) or re.search(r"\b[NVAC]\b", text) for text in corpus.data)


def test_every_word_belongs_to_one_topic_and_none_is_common():
    corpus = datasets.make_corpus(6)
    by_topic = Counter(corpus.word_topics.values())
    assert set(by_topic.values()) == {24}  # none was listed twice
    assert len(by_topic) == len(corpus.topic_names) == 18
    assert not set(corpus.word_topics) & set(datasets.corpus._COMMON.split())


def test_merging_finds_subjects_of_words():
    corpus = datasets.make_corpus()
    counter = CountVectorizer(vocabulary=list(corpus.word_topics))
    X = counter.transform(corpus.data)
    assert 0.9 < cross_val_score(MultinomialNB(), X, corpus.target).mean() < 1
    labels = WordMerger(6).fit(X, corpus.target).labels_
    subjects = np.array(list(corpus.word_topics.values())) // 3
    assert adjusted_rand_score(subjects, labels) > 0.9


def test_merging_finds_modules_of_genes():
    cells = datasets.make_cells()
    assert (cells.data.data > 0).all()
    assert cells.data.nnz < 0.5 * np.prod(cells.data.shape)
    assert len(set(cells.feature_names)) == len(cells.feature_names) == cells.data.shape[1]
    merger = WordMerger(20).fit(cells.data, cells.target)
    # the last three are active anywhere, and tell no cell type
    known = np.isin(cells.modules, np.arange(len(cells.module_names) - 3))
    assert adjusted_rand_score(cells.modules[known], merger.labels_[known]) > 0.9
    variances, means = cells.data.toarray().var(axis=0), cells.data.mean(axis=0)
    assert (variances > means).mean() > 0.9  # more than of Poisson counts


def test_photos_are_told_by_their_colours():
    images, y = datasets.make_photos(60, size=(32, 40), mixed=0, return_X_y=True)
    assert images.dtype == np.uint8
    assert cross_val_score(LogisticRegression(C=100), images.mean(axis=(1, 2)) / 255, y).mean() > 0.9


@pytest.mark.parametrize(
    ("name", "file", "modality"),
    [
        ("photos", "photos", "images"),
        ("photos", "photos.zip", "images"),
        ("corpus", "corpus", "texts"),
        ("corpus", "corpus.zip", "texts"),
        ("corpus", "corpus.csv", "texts"),
        ("cells", "cells.npz", "table"),
    ],
)
def test_files_hold_the_data(name, file, modality, tmp_path):
    bunch = MADE[name]()
    options = {"mode": "rgb"} if modality == "images" else {}
    opened = open_collection(datasets.write_dataset(bunch, tmp_path / file), **options)
    assert opened.modality == modality
    order = np.argsort([item.id.rpartition("/")[2] for item in opened], kind="stable")
    if file.endswith((".csv", ".npz")):
        order = np.arange(len(opened))
    assert [opened.labels[k] for k in order] == [bunch.target_names[k] for k in bunch.target]
    if modality == "table":
        assert (bunch.data != opened.X).nnz == 0
        assert opened.feature_names == bunch.feature_names
    else:
        contents = [content for _, content in opened.load()]
        for k, one in zip(order, bunch.get("images", bunch.get("data")), strict=True):
            np.testing.assert_array_equal(contents[k], one)


def test_digits_have_splits(tmp_path):
    digits = datasets.load_digit_images(scale=1)
    digits.images, digits.target, digits.splits = digits.images[:40], digits.target[:40], digits.splits[:40]
    first, second = (datasets.write_dataset(digits, tmp_path / name) for name in ("a.zip", "b.zip"))
    assert first.read_bytes() == second.read_bytes()
    opened = open_collection(first)
    assert Counter(opened.splits) == Counter(digits.splits) == {"train": 30, "test": 10}
    np.testing.assert_array_equal(opened[0].load(), digits.images[0])


def test_files_that_cannot_hold_them_are_refused(tmp_path):
    photos = MADE["photos"]()
    with pytest.raises(BagwiseError, match=r"Images are written to a folder, .zip; got"):
        datasets.write_dataset(photos, tmp_path / "photos.csv")
    with pytest.raises(BagwiseError, match=r"A table is written to .npz, .h5ad"):
        datasets.write_dataset(MADE["cells"](), tmp_path / "cells")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "mine").touch()
    with pytest.raises(BagwiseError, match="not an empty folder"):
        datasets.write_dataset(photos, tmp_path / "photos")
    with pytest.raises(BagwiseError, match="must be a Bunch"):
        datasets.write_dataset({"data": [1]}, tmp_path / "x.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
