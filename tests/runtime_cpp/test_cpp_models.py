"""The C++ runtime gives the classes, scores and explanations of `Model`, from the same pixels, texts and rows."""

import dataclasses
import re
import subprocess
import sys

import numpy as np
import pytest

from bagwise import Hierarchy, Model
from bagwise.runtime import hash_words, split_text
from model_cases import MADE
from runtime_cpp import binding
from runtime_cpp.binding import Refused
from runtime_cpp.cases import BROKEN, IMAGES, SHAPES, TEXTS, image_model, picture, text_model


def as_cpp(cpp, model, tmp_path, **options):
    return cpp.model(model.save(tmp_path / "m.bagwise"), **options)


def assert_same(model, ours, items):
    np.testing.assert_allclose([ours.features(item) for item in items], dense(model.transform(items)), atol=1e-6)
    np.testing.assert_allclose([ours.scores(item) for item in items], model.decision_function(items), atol=1e-6)
    assert ours.predict(items) == model.predict(items).tolist()


def dense(matrix):
    return matrix.toarray() if hasattr(matrix, "toarray") else matrix


def assert_same_explanation(why, ours, item, places):
    for k in range(len(why.classes)):
        intercept, groups, terms, found = ours.explain(item, k)
        assert intercept == pytest.approx(why.intercept_of(k))
        np.testing.assert_allclose(groups, why.contributions(k), atol=1e-9)
        expected = sorted((term.word, term.group, term.contribution) for term in why.words(k))
        assert [term[:2] for term in terms] == [term[:2] for term in expected]
        np.testing.assert_allclose([term[2] for term in terms], [term[2] for term in expected], atol=1e-9)
        expected = [tuple(place) for place in why.places(k)]
        found = [places(place) for place in found]
        assert len(found) == len(expected)
        if found:
            np.testing.assert_allclose(np.array(found, float), np.array(expected, float), rtol=1e-6, atol=1e-4)
            assert intercept + sum(place[-1] for place in found) == pytest.approx(why.score_of(k), abs=1e-6)


@pytest.mark.parametrize("name", IMAGES)
def test_images_get_the_classes_of_the_library(cpp, name, tmp_path):
    model, random = image_model(name), np.random.default_rng(1)
    ours = as_cpp(cpp, model, tmp_path)
    images = [picture(shape, random, color=True) for shape in SHAPES]
    assert_same(model, ours, images)
    rgba = np.dstack([images[2], np.full(images[2].shape[:2], 9)])
    assert ours.scores(rgba).tolist() == ours.scores(images[2]).tolist()
    grey = [image[:, :, 0] for image in images]
    if ours.needs_color:
        with pytest.raises(Refused, match="needs RGB images"):
            ours.classify(grey[0])
    else:
        assert_same(model, ours, grey)
    for image in images[:2]:
        why = model.explain([image])[0]
        assert_same_explanation(why, ours, image, lambda place: [place[key] for key in ("x", "y", "side", "weight")])
    np.testing.assert_allclose(ours.probabilities(images[0]), model.predict_proba(images[:1])[0], atol=1e-6)
    assert ours.top(images[0], 9) == np.argsort(-model.decision_function(images[:1])[0], kind="stable").tolist()
    assert [ours.group_name(g) for g in (1, 2)] == [None, "ééé"]


@pytest.mark.parametrize("name", ["default", "pyramid", "smoothed colours", "rg", "patches None"])
def test_words_and_classifiers_of_8_bits_give_the_classes_of_the_library(cpp, name, tmp_path):
    model, random = image_model(name).quantize(), np.random.default_rng(1)
    ours = as_cpp(cpp, model, tmp_path)
    assert model.save(tmp_path / "m.bagwise").stat().st_size < image_model(name).save(tmp_path / "w").stat().st_size
    assert_same(model, ours, [picture(shape, random, color=True) for shape in SHAPES])


def test_threads_and_larger_images_before_change_nothing(cpp, tmp_path):
    model, random = image_model("pyramid"), np.random.default_rng(2)
    one = as_cpp(cpp, model, tmp_path)
    many = as_cpp(cpp, model, tmp_path, n_threads=3)
    images = [picture(shape, random, color=True) for shape in SHAPES[::-1] + SHAPES]
    assert [many.scores(image).tolist() for image in images] == [one.scores(image).tolist() for image in images]
    fresh = [as_cpp(cpp, model, tmp_path).scores(image).tolist() for image in images[:4]]
    assert [many.scores(image).tolist() for image in images[:4]] == fresh


def test_other_cuts_have_their_own_classifiers(cpp, tmp_path):
    model, random = image_model("default"), np.random.default_rng(3)
    images = [picture(shape, random, color=True) for shape in SHAPES[:3]]
    assert_same(model.cut(4), as_cpp(cpp, model, tmp_path, n_groups=4), images)
    trimmed = model.trim()
    assert_same(trimmed.cut(4), as_cpp(cpp, trimmed, tmp_path, n_groups=4), images)
    without = as_cpp(cpp, model, tmp_path, n_groups=5)
    np.testing.assert_allclose(without.features(images[0]), dense(model.cut(5).transform(images[:1]))[0], atol=1e-6)
    assert (without.classify(images[0]), without.n_classes) == (0, 0)
    with pytest.raises(Refused, match="no classifier for 5 groups"):
        without.explain(images[0], 0)
    with pytest.raises(Refused, match="can be cut at 1 to 60 groups, got 61"):
        as_cpp(cpp, model, tmp_path, n_groups=61)
    with pytest.raises(Refused, match="it is compact: it always has 7 groups, not 4"):
        as_cpp(cpp, model.compact(), tmp_path, n_groups=4)


PATTERNS = [r"(?u)\b\w\w+\b", r"\w+", r"(?u)\b\w+\b", r"\w\w+", r"\b\w{3,}\b", r"\S+"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_texts_get_the_classes_of_the_library(cpp, pattern, tmp_path):
    for model in (text_model(pattern=pattern), text_model(3, pattern, binary=True, stop_words=("cat", "привет"))):
        for one in (model, model.compact()):
            ours = as_cpp(cpp, one, tmp_path)
            assert_same(one, ours, TEXTS)
            for broken in BROKEN:
                text = broken.decode("utf-8", "replace")
                np.testing.assert_allclose(ours.scores(broken), one.decision_function([text])[0], atol=1e-9)
        ours = as_cpp(cpp, model, tmp_path)
        assert [ours.word_name(w) for w in range(ours.n_words)] == list(model.word_names)
        for text in TEXTS[:4]:
            content = text.encode()
            assert_same_explanation(
                model.explain(text), ours, text, lambda place, content=content: spans(content, place)
            )


def test_n_grams_of_characters_are_those_of_the_library(cpp, tmp_path):
    texts = [*TEXTS, "日本語 \n\n で\u3000\u3000a \t\tcat İstanbul Σ", " ", "\n", "\n\n", "ΣΑΣ  ΣΑΣ "]
    grams = {text.lower()[k : k + n] for text in map(collapsed, texts) for n in (1, 2, 3) for k in range(0, 40, n)}
    names = sorted(name for name in grams if name and name.isprintable())
    for options in ({}, {"lowercase": False, "binary": True}):
        model = text_model(3, names=tuple(names), analyzer="char", token_pattern=None, **options)
        ours = as_cpp(cpp, model, tmp_path)
        assert_same(model, ours, texts)
        for broken in BROKEN:
            text = broken.decode("utf-8", "replace")
            np.testing.assert_allclose(ours.scores(broken), model.decision_function([text])[0], atol=1e-9)
        for text in texts[:4]:
            content = text.encode()
            found = [spans(content, place) for place in ours.explain(text, 0)[3]]
            whole = model.explain(text).places(model.classes[0])
            for a, b, weight in whole:
                assert weight == pytest.approx(sum(w for start, end, w in found if a <= start and end <= b), abs=1e-9)


def collapsed(text):
    return re.sub(r"\s\s+", " ", text)


def spans(content, place):
    return [len(content[: place[key]].decode()) for key in ("start", "end")] + [place["weight"]]


def test_characters_are_split_and_lowered_as_in_python(cpp, tmp_path):
    """Characters at the borders of all tables, beside letters and sigmas, in a model whose words are hashes."""

    def kinds(code):
        c = chr(code)
        return c.isalnum(), c.isspace(), ord(c.lower()[0]) - code, f"A{c}Σ".lower()[-1], f"1{c}Σ".lower()[-1]

    held = (
        [kinds(code) for code in range(0xD800)] + [(False,)] * 0x800 + [kinds(code) for code in range(0xE000, 0x20000)]
    )
    borders = {near for code in range(1, len(held)) if held[code] != held[code - 1] for near in (code - 1, code)}
    characters = [chr(code) for code in sorted(borders) if not 0xD800 <= code < 0xE000]
    texts = [" ".join(f"A{c}Σ Σ{c}B the{c}dog" for c in characters[k::7]) for k in range(7)]
    hashes = np.unique(hash_words({word for text in texts for word in split_text(text, {})}))
    model = Model(modality="texts", hierarchy=Hierarchy(len(hashes), [], []), n_groups=len(hashes), word_hashes=hashes)
    model = dataclasses.replace(model, normalize=())
    ours = as_cpp(cpp, model, tmp_path)
    np.testing.assert_array_equal([ours.features(text) for text in texts], dense(model.transform(texts)))


@pytest.mark.parametrize("name", ["texts", "weighted texts", "compact texts", "edited", "odd"])
def test_other_models_of_texts(cpp, name, tmp_path):
    model = MADE[name]()
    ours = as_cpp(cpp, model, tmp_path)
    assert_same(model, ours, [*TEXTS, "the cat the dog home ran sat"])
    assert ours.classes == [name.partition("\0")[0] for name in model.classes]  # C ends texts there


@pytest.mark.parametrize("name", ["table", "measurements"])
def test_rows_get_the_classes_of_the_library(cpp, name, tmp_path):
    model, random = MADE[name](), np.random.default_rng(0)
    rows = random.integers(-2, 4, (20, model.hierarchy.n_words)) * random.choice([1.0, 1e30, 1e-30, 0], (20, 1))
    ours = as_cpp(cpp, model, tmp_path)
    np.testing.assert_allclose([ours.features(row) for row in rows], model.transform(rows), rtol=1e-6)
    if model.heads:
        rows = rows[np.abs(rows).max(axis=1) < 100]
        assert_same(model, ours, rows)
        for row in rows[:5]:
            why = model.explain(row[np.newaxis])[0]
            names = {f"x{k}": k for k in range(len(row))}
            for k in range(2):
                expected = [(names[column.name], column.weight) for column in why.places(k)]
                found = [(place["word"], place["weight"]) for place in ours.explain(row, k)[3]]
                assert [one[0] for one in found] == [one[0] for one in expected]
                np.testing.assert_allclose([one[1] for one in found], [one[1] for one in expected], atol=1e-9)
    for row, message in ((rows[0][:-1], "one per column; got"), (rows[0] * np.nan, "finite numbers, but column 0")):
        with pytest.raises(Refused, match=message):
            ours.classify(row)


def test_items_that_do_not_fit_are_refused(cpp, tmp_path):
    pictured, worded = as_cpp(cpp, image_model("default"), tmp_path), as_cpp(cpp, text_model(), tmp_path)
    for channels in (0, 2, 5, -1):
        found = cpp.image(pictured._workspace, b"123456789", 1, 1, channels, 0)
        assert found == -1
        assert re.search(r"has 1, 3 or 4 channels.*got 1 x 1 x", cpp.error(pictured._workspace).decode())
    for width, height, stride in ((-1, 3, 0), (1 << 20, 1, 0), (2, 2, 1)):
        assert cpp.image(pictured._workspace, b"123456789", width, height, 1, stride) == -1
    assert cpp.image(worded._workspace, b"1", 1, 1, 1, 0) == -1
    assert cpp.error(worded._workspace) == b"This model takes texts, got an image."
    assert cpp.text(pictured._workspace, b"1", 1) == -1
    with pytest.raises(Refused, match="There are classes 0 to 2; got 3"):
        worded.explain("the cat", 3)


LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
from runtime_cpp.binding import Refused, Runtime
import numpy as np
runtime, content = Runtime(sys.argv[1]), Path(sys.argv[2]).read_bytes()
model, image = runtime.model(content), np.arange(64 * 64, dtype=np.uint8).reshape(64, 64)
model.classify(image)
used = 1024 * int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmSize")))
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20),) * 2)
try:
    runtime.model(content, n_threads=256)
except AssertionError as error:
    print(error)
print(runtime.image(model._workspace, image.ctypes.data, 12_000, 12_000, 1, 0))  # refused before a pixel is read
print(runtime.error(model._workspace).decode(), runtime.explain(model._workspace, 0))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory")
def test_without_memory_nothing_ends_the_process(cpp, tmp_path):
    path = image_model("smoothed").save(tmp_path / "m.bagwise")
    command = [sys.executable, "-c", LITTLE_MEMORY, cpp.path, path]
    done = subprocess.run(command, capture_output=True, text=True, cwd=binding.SOURCES.parents[1] / "tests")
    assert done.returncode == 0, done.stderr
    threads, failed, told = done.stdout.splitlines()
    assert "Of 256 threads only" in threads
    assert (failed, told) == ("-1", "There is not enough memory. 0")
