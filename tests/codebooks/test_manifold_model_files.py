"""Files of `ManifoldBagOfFeatures`: what is saved is what is loaded, and nothing else is read."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from bagwise import BagwiseError, Hierarchy, ManifoldBagOfFeatures
from changed_files import write_arrays

NUMBERS = ("scale_", "sigma_histogram_", "n_iter_", "n_features_in_")
ARRAYS = ("codebook_", "initial_codebook_", "objective_", "held_out_objective_", "embedding_")


def make_bags(n=8):
    rng = np.random.default_rng(0)
    return [rng.normal(i % 2, 1.0, (9, 2)) for i in range(n)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    bags = make_bags()
    model = ManifoldBagOfFeatures(
        4, n_components=2, n_neighbors=3, max_iter=3, held_out=0.2, n_init=1, random_state=0, memory_limit="1GB"
    ).fit(bags)
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    assert model.save(path) == path
    return bags, model, path


def change(path, new, *, header=None, tensors=None):
    """A copy of a model file with other contents."""
    arrays = load_file(path)
    length = int.from_bytes(path.read_bytes()[:8], "little")
    about = json.loads(json.loads(path.read_bytes()[8 : 8 + length])["__metadata__"]["bagwise"])
    if header is not None:
        header(about)
    write_arrays(new, arrays | (tensors or {}), about)
    return new


def test_loading_gives_what_was_saved(saved):
    bags, model, path = saved
    back = ManifoldBagOfFeatures.load(path)
    assert back.get_params() == model.get_params()
    assert [getattr(back, name) for name in NUMBERS] == [getattr(model, name) for name in NUMBERS]
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(back, name), getattr(model, name), strict=True)
    assert back.transform(bags).tobytes() == model.transform(bags).tobytes()
    assert clone(back).fit(bags).codebook_.tobytes() == model.codebook_.tobytes()


def test_the_same_model_is_the_same_bytes(saved, tmp_path):
    bags, model, path = saved
    clone(model).fit(bags).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    ManifoldBagOfFeatures.load(path).save(tmp_path / "twice")
    assert (tmp_path / "twice").read_bytes() == path.read_bytes()


def test_targets_of_ones_own_and_objects_among_the_parameters(tmp_path):
    bags = make_bags()
    target = np.where(np.subtract.outer(np.arange(8), np.arange(8)) % 2, 0.1, 1.0)
    model = ManifoldBagOfFeatures(
        np.int64(3), n_components=2, target=target.tolist(), max_iter=1, n_init=1, bandwidth=np.float32(0.5),
        random_state=np.random.RandomState(0), callback=lambda step, value: False,
    ).fit(bags)  # fmt: skip
    back = ManifoldBagOfFeatures.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(back.target, target)
    assert back.embedding_ is None
    assert back.callback is None
    assert back.random_state is None
    assert (back.n_words, back.bandwidth) == (3, 0.5)
    assert back.transform(bags).tobytes() == model.transform(bags).tobytes()
    back.fit(bags)


def test_models_of_layers_are_saved_as_well(tmp_path):
    pytest.importorskip("torch")
    from bagwise.nn import SoftBagOfFeatures

    model = SoftBagOfFeatures(3, 2, 0.5, scale=2.0, codebook=np.eye(3, 2)).to_estimator()
    back = ManifoldBagOfFeatures.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(back.transform(make_bags()), model.transform(make_bags()))


def test_models_that_are_not_fitted_are_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        ManifoldBagOfFeatures().save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_save_that_fails_leaves_the_old_file(saved, tmp_path, monkeypatch):
    _, model, _ = saved
    path = model.save(tmp_path / "model")
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        model.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@given(share=st.floats(0, 1, exclude_max=True))
def test_truncated_files_are_refused(saved, tmp_path_factory, share):
    _, _, path = saved
    content = path.read_bytes()
    short = tmp_path_factory.mktemp("short") / "model"
    short.write_bytes(content[: int(share * len(content))])
    with pytest.raises(BagwiseError, match="cut short"):
        ManifoldBagOfFeatures.load(short)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "file"
    path.write_text("hello, this is text")
    with pytest.raises(BagwiseError, match="is not a file of bagwise"):
        ManifoldBagOfFeatures.load(path)
    Hierarchy(3, [[0, 1]], [1.0]).save(path)
    with pytest.raises(BagwiseError, match=r"holds 'bagwise\.Hierarchy', not 'bagwise\.ManifoldBagOfFeatures'"):
        ManifoldBagOfFeatures.load(path)
    with pytest.raises(FileNotFoundError):
        ManifoldBagOfFeatures.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (lambda h: h.update(schema=99), "has schema 99"),
        (lambda h: h.pop("parameters"), "its header has no parameters"),
        (lambda h: h.pop("scale_"), "its header has no scale_"),
        (lambda h: h.update(scale_=0), "its scale_ is 0; expected number, at least"),
        (lambda h: h.update(n_features_in_=7), "because n_features_in_ is 7"),
        (lambda h: h["parameters"].update(n_words=-1), "is damaged: .*n_words"),
        (lambda h: h["parameters"].update(colour="red"), "is damaged: .*colour"),
    ],
)
def test_headers_are_not_trusted(saved, tmp_path, header, message):
    with pytest.raises(BagwiseError, match=message):
        ManifoldBagOfFeatures.load(change(saved[2], tmp_path / "model", header=header))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"codebook_": np.full((4, 2), np.nan)}, "codebook_ holds nan; expected finite"),
        ({"codebook_": np.ones((4, 2), dtype=np.int64)}, "codebook_ has dtype int64; expected float32, float64"),
        ({"codebook_": np.ones(8)}, r"shape \(8,\)"),
        ({"initial_codebook_": np.ones((3, 2))}, "because n_words is"),
        ({"objective_": np.ones((2, 2))}, "objective_ has shape .*expected 1 dimensions"),
        ({"virus": np.ones(2)}, "holds the tensors .*virus"),
    ],
)
def test_arrays_are_not_trusted(saved, tmp_path, tensors, message):
    with pytest.raises(BagwiseError, match=message):
        ManifoldBagOfFeatures.load(change(saved[2], tmp_path / "model", tensors=tensors))
