"""What `bagwise export` writes for devices: a folder that builds, and answers as the library does."""

import dataclasses
import os
import subprocess

import numpy as np
import pytest

from bagwise import BagwiseError, Hierarchy, Model
from bagwise.app.model import Head, edge, export_cpp
from bagwise.app.model.files import model_bytes
from bagwise.descriptors import HogLbp
from bagwise.runtime import is_accepted_pattern
from commands import as_json, bagwise
from model_cases import MADE
from runtime_cpp import binding
from runtime_cpp.cases import SHAPES, TEXTS, image_model, picture, text_model
from runtime_cpp.conftest import built
from small_sources import write_records

NAMES = {"CMakeLists.txt", "README.md", "bagwise.h", "bagwise.hpp", "bagwise_c.cpp", "main.cpp"}
LINES = [text.encode("utf-8", "ignore").decode() for text in TEXTS]  # without halves of characters


def named_table():
    names = ["height", 'the "width"', "a, b", "depth", "x", "y"]
    return dataclasses.replace(MADE["measurements"](), word_names=names, calibration={4: 0.7})


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program of an exported folder; models are given to it by their files."""
    folder = export_cpp(named_table(), tmp_path_factory.mktemp("program") / "edge")
    flags = ("-O0", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    return built(folder / "main.cpp", *flags, shared=False)


def run(program, model, tmp_path, content, *options, code=0):
    """Classify what comes by standard input; gives the class and the scores of each item, or what is said."""
    path = export_cpp(model, tmp_path / "edge", force=True) / "model.bagwise"
    command = [program, "--model", path, "--top", "1000", *options]
    done = subprocess.run(list(map(str, command)), input=content, capture_output=True)
    assert done.returncode == code, done.stderr
    if code:
        return done.stderr.decode()
    found = []
    for line in done.stdout.decode("utf-8", "surrogateescape").splitlines():
        _, *fields = line.split("\t")
        scores = dict(zip(fields[::2], map(float, fields[1::2]), strict=True))
        found.append((fields[0], [scores[name] for name in model.classes]))
    return [name for name, _ in found], np.array([scores for _, scores in found])


def pnm(image):
    height, width = image.shape[:2]
    kind = "P5" if image.ndim == 2 else "P6"
    return f"{kind}\n# made up\n{width} {height}\n255\n".encode() + image.tobytes()


def rows(X):
    return "\n".join(",".join(map(repr, row)) for row in X.tolist()).encode()


def agree(model, items, found):
    classes, scores = found
    np.testing.assert_allclose(scores, model.decision_function(items), rtol=1e-4, atol=1e-4)
    assert classes == model.predict(items).tolist()


def test_images_get_the_classes_of_the_library(program, tmp_path):
    random, model = np.random.default_rng(0), image_model("default")
    images = [picture(shape, random, color=True) for shape in SHAPES]
    agree(model, images, run(program, model, tmp_path, b"\n".join(map(pnm, images))))
    grey = [image[:, :, 0] for image in images]
    colored = [np.repeat(image[:, :, np.newaxis], 3, axis=2) for image in grey]
    agree(model, colored, run(program, model, tmp_path, b"".join(map(pnm, grey))))
    needs = image_model("smoothed colours")
    agree(needs, colored, run(program, needs, tmp_path, b"".join(map(pnm, grey))))


@pytest.mark.parametrize("change", [lambda m: m, Model.compact, Model.quantize, lambda m: m.compact().quantize()])
def test_texts_get_the_classes_of_the_library(change, program, tmp_path):
    model = change(text_model(2, stop_words=("the",)))
    agree(model, LINES, run(program, model, tmp_path, "\n".join([*LINES, ""]).encode()))


def test_english_stop_words_go_along(program, tmp_path):
    model = text_model(1, stop_words="english")
    agree(model, LINES, run(program, model, tmp_path, "\n".join([*LINES, ""]).encode()))


def test_rows_get_the_classes_of_the_library(program, tmp_path):
    model, X = named_table(), np.random.default_rng(1).normal(0, 60, (5, 6))
    agree(model, X, run(program, model, tmp_path, rows(X)))
    order = [3, 0, 5, 1, 4, 2]
    quoted = ['"' + model.word_names[k].replace('"', '""') + '"' for k in order]
    wide = rows(np.column_stack([X[:, order], X[:, 0]]))
    agree(model, X, run(program, model, tmp_path, ",".join([*quoted, "other"]).encode() + b"\r\n" + wide))
    _, found = run(program, model, tmp_path, rows(X), "--probabilities")
    np.testing.assert_allclose(found, model.predict_proba(X), rtol=1e-4, atol=1e-5)
    plain = MADE["measurements"]()
    agree(plain, X, run(program, plain, tmp_path, b"a,b,c,d,e,f\n" + rows(X)))


def test_what_the_program_cannot_read_is_named(program, tmp_path):
    table, images = named_table(), image_model("default")
    for model, content, options, said in [
        (table, b"1,2,3", (), "-:1 has 3 fields, expected 6"),
        (table, b"1,2,x,4,5,6", (), "-:1: field 3 is no number: x"),
        (table, b"1,2,nan,4,5,6", (), "field 3 is no number"),
        (table, b"height,depth", (), 'has no column the "width"'),
        (MADE["measurements"](), b"a,b", (), "have no names: give its 6 columns"),
        (table, b"", ("--groups", "3"), "classifier"),
        (table, b"", ("--tops", "3"), "Unknown option --tops"),
        (table, b"", ("--top", "many"), "A number of at least 1 is expected, got many"),
        (table, b"", ("--time",), "--time needs a value"),
        (table, b"", ("gone.csv",), "gone.csv cannot be opened"),
        (MADE["measurements"](), rows(np.ones((1, 6))), ("--probabilities",), "no calibrated probabilities"),
        (images, b"", (), "- has no image"),
        (images, b"\x89PNG", (), "is no PNM file of bytes"),
        (images, b"P6 10 10 65535 ", (), "must have values up to 255, got 65535"),
        (images, b"P6 10 ", (), "its header ends early"),
        (images, b"P6 99999 9 255 ", (), "is too large"),
        (images, b"P5 10 10 255 123", (), "is cut short: 100 bytes"),
    ]:
        assert said in run(program, model, tmp_path, content, *options, code=1)
    gone = subprocess.run([program, "--model", tmp_path / "gone.bagwise"], capture_output=True, text=True, input="")
    assert gone.returncode == 1
    assert "gone.bagwise" in gone.stderr


def test_times_and_memory_are_told(program, tmp_path):
    path = export_cpp(named_table(), tmp_path / "edge") / "model.bagwise"
    done = subprocess.run(
        [program, "--model", path, "--time", "3"], input="1,2,3,4,5,6", capture_output=True, text=True, check=True
    )
    told = dict(line.split() for line in done.stderr.splitlines())
    assert {"load_ms", "item_ms", "item_cpu_ms"} <= told.keys()
    assert float(told["item_ms"]) > 0


def test_an_embedded_model_is_the_file(tmp_path):
    if binding.compiler() is None:
        pytest.skip("there is no C++ compiler: the C++ runtime is not tested")
    model = text_model()
    folder = export_cpp(model, tmp_path / "edge", embed=True)
    assert {path.name for path in folder.iterdir()} == NAMES | {"model_data.h"}
    source = tmp_path / "bytes.cpp"
    source.write_text(
        '#include <cstdio>\n#include "edge/model_data.h"\n'
        "int main() { fwrite(model_data, 1, sizeof model_data, stdout); }"
    )
    binding.build(tmp_path / "bytes", "-Wall", "-Wextra", "-Werror", source=source, shared=False)
    assert subprocess.run([tmp_path / "bytes"], capture_output=True).stdout == model_bytes(model)


def images_by(descriptor, width):
    return Model(
        modality="images",
        hierarchy=Hierarchy(3, [], []),
        n_groups=3,
        descriptor=descriptor,
        codebook=np.eye(3, width),
        classes=["a", "b"],
        heads={3: Head(np.eye(2, 3), [0, 0])},
    )


PATTERNS = [r"\w+", r"(?u)\w+", r"\b\w+\b", r"\w\w+", r"(?u)\b\w\w\w+\b", r"\w{3,}", r"\b\w{2,}\b", r"\S+", r"(?u)\S+"]
PATTERNS += [r"\d+", r"[a-z]+", r"\w+(?:'\w+)?", r"(?u)\b[^\W\d_]+\b", r"\w{2,5}", r"\w", r"\b\S+\b", r"\b\w+"]
PATTERNS += [r"\w{0,}", r"\w{1,}", r"\w{99,}", r"\w{100,}", r"\w{02,}", r"(?u)(?u)\w+"]


@pytest.mark.filterwarnings("ignore:The token_pattern")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_are_refused_where_the_runtime_refuses_them(pattern, cpp, tmp_path):
    model = text_model(pattern=pattern)
    path = model.save(tmp_path / "m.bagwise")
    try:
        cpp.model(path)
    except binding.Refused:
        with pytest.raises(BagwiseError, match="does not support this model: its tokenizer has token_pattern"):
            edge.for_devices(model)
    else:
        assert edge.for_devices(model) is model
        assert is_accepted_pattern(pattern)


REFUSED = {
    "chars": (lambda: text_model(analyzer="char_wb"), "analyzer"),
    "accents": (lambda: text_model(strip_accents="unicode"), "strip_accents"),
    "vectors": (lambda: images_by(None, 3), "descriptor"),
    "hog": (lambda: images_by(HogLbp(), 3), "its descriptor is"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_models_are_refused_before_anything_is_written(case, cpp, tmp_path):
    make, said = REFUSED[case]
    model = make()
    with pytest.raises(BagwiseError, match=f"C\\+\\+ runtime does not support this model: .*{said}|{said}"):
        export_cpp(model, tmp_path / "edge")
    assert not list(tmp_path.iterdir())
    with pytest.raises(binding.Refused, match=said):
        cpp.model(model.save(tmp_path / "m.bagwise"))


def test_models_without_a_classifier_are_refused(tmp_path):
    with pytest.raises(BagwiseError, match="no classifier for 4 groups, so a device would have no classes to tell"):
        export_cpp(MADE["table"](), tmp_path / "edge")
    assert not list(tmp_path.iterdir())


def test_folders_are_written_whole_and_never_replaced(tmp_path, monkeypatch):
    model, folder = named_table(), tmp_path / "edge"
    folder.mkdir()
    export_cpp(model, folder)  # one that is empty
    assert {path.name for path in folder.iterdir()} == NAMES | {"model.bagwise"}
    (folder / "mine.txt").write_text("kept")
    (folder / "main.cpp").write_text("changed")
    with pytest.raises(BagwiseError, match=r"is not empty\. Give another folder, or force= to replace the files"):
        export_cpp(model, folder)
    assert (folder / "main.cpp").read_text() == "changed"
    export_cpp(model, folder, force=True)
    assert (folder / "main.cpp").read_text() != "changed"
    assert (folder / "mine.txt").read_text() == "kept"
    export_cpp(model, folder, embed=True, force=True)
    assert (folder / "model_data.h").exists()
    export_cpp(model, folder, force=True)
    assert not (folder / "model_data.h").exists()  # main.cpp would take the old model in it
    (tmp_path / "file").write_text("x")
    with pytest.raises(BagwiseError, match="is no folder, and is not replaced"):
        export_cpp(model, tmp_path / "file", force=True)
    with pytest.raises(BagwiseError, match="there is no folder"):
        export_cpp(model, tmp_path / "gone" / "edge")
    left = tmp_path / f".last.{'0' * 16}.part"  # by a process that was killed
    left.mkdir()
    (left / "main.cpp").write_text("half")
    os.utime(left, (1e9, 1e9))
    export_cpp(model, tmp_path / "last")
    assert not left.exists()

    def interrupted(descriptor):
        if any(tmp_path.glob(".other.*.part/main.cpp")):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export_cpp(model, tmp_path / "other")
    assert {path.name for path in tmp_path.iterdir()} == {"edge", "file", "last"}


def test_the_command_writes_and_tells_the_loss(tmp_path):
    source = write_records(tmp_path / "texts.csv", n_each=6)
    bagwise("fit", source, "--groups", 4, "--folds", 0, "--no-page", "--no-index", "--out", tmp_path / "m.bagwise")
    said = bagwise("export", tmp_path / "m.bagwise", "--int8")
    assert "The loss of accuracy was not measured. Give labelled items by --evaluate SOURCE." in said
    assert Model.load(tmp_path / "m-int8.bagwise").quantized
    told = as_json(
        "export", tmp_path / "m.bagwise", "--int8", "--compact", "--cpp", tmp_path / "edge", "--evaluate", source
    )
    small = Model.load(tmp_path / "edge" / "model.bagwise")
    assert small.quantized
    assert small.word_hashes is not None
    assert told["loss"]["n_items"] > 0
    assert told["loss"]["points"] == pytest.approx(100 * (told["loss"]["error_after"] - told["loss"]["error_before"]))
    assert "words and classifiers have 8 bits" in bagwise("info", tmp_path / "edge" / "model.bagwise")
    for arguments, message in [
        ((), "Say what to write: --onnx, --out, --cpp or --int8 of a model, --atlas of an index."),
        (("--onnx", tmp_path / "m.onnx", "--int8"), "ONNX graphs have all numbers in float32"),
        (("--out", tmp_path / "n.bagwise", "--embed"), "--embed is for --cpp"),
        (("--out", tmp_path / "n.bagwise", "--evaluate", source), "--evaluate measures what --int8 or --compact lose"),
        (("--cpp", tmp_path / "edge"), "is not empty. Give another folder, or --force to replace the files"),
        (("--atlas", tmp_path / "a.parquet", "--int8"), "--atlas writes the map of an index, and no model"),
        (("--int8",), "m-int8.bagwise exists already. Give --force to replace it"),
    ]:
        assert message in bagwise("export", tmp_path / "m.bagwise", *arguments, code=1)
    assert not (tmp_path / "m.onnx").exists()
    assert not (tmp_path / "n.bagwise").exists()
