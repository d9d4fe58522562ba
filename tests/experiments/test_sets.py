"""Data sets of the experiments, from archives of the same form made on the spot."""

import io
import json
import zipfile

import numpy as np
import pytest
from experiments.running import Options

from experiments import sets

WORDS = {
    "grain": "harvest crop tonnes farmers silo",
    "ship": "harvest port tonnes vessel crew",
    "earn": "profit quarter dividend shares results",
    "acq": "merger stake bid takeover board",
}


@pytest.fixture
def reuters(tmp_path):
    """Forty documents on each of four topics, of which grain and ship share words; some have two topics."""
    rng = np.random.default_rng(0)

    def document(number, topics, has_topics="YES"):
        words = [word for topic in topics for word in WORDS[topic].split()]
        text = " ".join(rng.choice(words, 12))
        part = "TRAIN" if number % 4 else "TEST"
        return {"topics": topics, "has_topics": has_topics, "lewis": part, "title": words[0], "body": text}

    documents = [document(k, [topic]) for topic in WORDS for k in range(40)]
    documents += [document(k, ["grain", "ship"]) for k in range(5)]
    documents += [document(k, ["grain"], "BYPASS") for k in range(3)]
    (tmp_path / "reuters21578").mkdir()
    with zipfile.ZipFile(tmp_path / "reuters21578" / "reuters21578.zip", "w") as archive:
        archive.writestr("reuters21578.jsonl", "\n".join(map(json.dumps, documents)))
    return Options(tmp_path, tmp_path / "out")


def test_documents_with_exactly_one_of_two_topics(reuters):
    words = sets.reuters(reuters, ("grain", "ship"))
    assert words.X.shape[0] == 80
    assert np.bincount(words.y).tolist() == [40, 40]
    assert words.train.sum() == 60
    assert words.classes == ("grain", "ship")


def test_topics_with_the_same_words_are_alike(reuters):
    assert sets.alike_topics(reuters, 1, at_least=20) == [("grain", "ship")]
    pairs = sets.alike_topics(reuters, 5, at_least=20)
    assert sorted(topic for pair in pairs for topic in pair) == sorted(WORDS)
    assert sets.alike_topics(reuters, 5, at_least=41) == []


def test_what_was_made_is_read_again(reuters):
    made = sets.reuters(reuters, ("grain", "earn"))
    (reuters.data / "reuters21578" / "reuters21578.zip").unlink()
    read = sets.reuters(reuters, ("grain", "earn"))
    assert (made.X != read.X).nnz == 0
    np.testing.assert_array_equal(made.y, read.y)
    np.testing.assert_array_equal(made.train, read.train)
    assert made.classes == read.classes


def test_newsgroups_do_not_tell_their_names(tmp_path):
    (tmp_path / "newsgroups_3pairs").mkdir()
    with zipfile.ZipFile(tmp_path / "newsgroups_3pairs" / "newsgroups_3pairs.zip", "w") as archive:
        for group, word in zip(sets.NEWSGROUPS["Sci"], ("circuit", "patient"), strict=True):
            for part in ("train", "test"):
                for k in range(4):
                    text = f"Newsgroups: {group}giveaway\nSubject: {word}\n\n{word} and more\n"
                    archive.writestr(f"{part}/{group}/{k}.txt", text)
    words = sets.newsgroups(Options(tmp_path, tmp_path / "out"), "Sci", None)
    assert words.X.shape == (16, 3)  # subject, circuit and patient; the rest are stop words
    assert words.train.sum() == 8
    np.testing.assert_array_equal(np.asarray(words.X.sum(axis=1)).ravel(), 3)


@pytest.mark.parametrize("points", [False, True])
def test_images_become_counts_of_words_and_of_fewer_words(tmp_path, points):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    (tmp_path / "caltech101_4").mkdir()
    with zipfile.ZipFile(tmp_path / "caltech101_4" / "caltech101_4.zip", "w") as archive:
        for name in ("Faces_easy", "BACKGROUND_Google", "Motorbikes"):
            for k in range(3):
                content = io.BytesIO()
                pixels = np.kron(rng.integers(0, 255, (24, 24)), np.ones((6, 6))).astype(np.uint8)
                image.fromarray(pixels).save(content, "JPEG")
                archive.writestr(f"{name}/image_{k:04d}.jpg", content.getvalue())
    options = Options(tmp_path, tmp_path / "out", quick=True)
    words = sets.caltech(options, ("Faces_easy", "BACKGROUND_Google"), points)
    assert words.X.shape == (6, 100)
    assert words.classes == ("BACKGROUND_Google", "Faces_easy")
    assert set(words.fewer) == {2, 5, 10, 20, 50}
    totals = np.asarray(words.X.sum(axis=1)).ravel()
    assert totals.min() > 0
    for size, X in words.fewer.items():
        assert X.shape == (6, size)
        np.testing.assert_array_equal(np.asarray(X.sum(axis=1)).ravel(), totals)
