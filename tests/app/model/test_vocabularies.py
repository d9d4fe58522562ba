"""Models with several vocabularies side by side: histograms, norms, files, runtime, ONNX."""

import dataclasses

import numpy as np
import onnxruntime
import pytest
import scipy.sparse as sp

from bagwise import Bags, BagwiseError, Hierarchy, Model, runtime
from bagwise.app.modalities.visual_words import VisualVectorizer
from bagwise.app.model import export_onnx
from bagwise.descriptors import LBPD5, ColorCells, DenseSIFT, Patches
from bagwise.sources import open_collection
from model_cases import two_vocabularies
from small_sources import write_image_folder

SIZES = (6, 5)
IMAGES = list(np.random.default_rng(1).integers(0, 256, (5, 40, 48, 3)).astype(np.uint8))


def described(model):
    return tuple(descriptor.transform(IMAGES) for descriptor in model.descriptor)


def parts_of_rows(X, n_cells):
    """Histograms of each vocabulary, shape (n, n_cells * size)."""
    cells = X.reshape(len(X), n_cells, sum(SIZES))
    return [part.reshape(len(X), -1) for part in np.split(cells, np.cumsum(SIZES)[:-1], axis=2)]


@pytest.mark.parametrize("pyramid", [None, 5])
def test_histograms_are_those_of_each_vocabulary(pyramid):
    model = two_vocabularies(pyramid)
    assert model.layout.vocabularies == SIZES
    both = model.histograms(IMAGES)
    assert both.has_sorted_indices
    for k, part in enumerate(parts_of_rows(both.toarray(), model.layout.n_cells)):
        alone = Model(
            modality="images",
            hierarchy=Hierarchy(SIZES[k], [], []),
            n_groups=SIZES[k],
            descriptor=model.descriptor[k],
            codebook=model.codebook[k],
            pyramid=pyramid,
        )
        np.testing.assert_array_equal(part, alone.histograms(IMAGES).toarray())
    bags = described(model)
    for same in (bags, [tuple(part[:2] for part in bags), tuple(part[2:] for part in bags)]):
        assert (model.histograms(same) != both).nnz == 0


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("pyramid", [None, 5])
def test_norms_are_those_of_each_vocabulary_over_all_cells(norm, pyramid):
    model = two_vocabularies(pyramid, norm=norm, normalize=())
    counts = model.histograms(IMAGES).toarray()
    counts[0] = 0
    counts[1].reshape(model.layout.n_cells, -1)[:, 6:] = 0  # an image without words of the second vocabulary
    scaled = [part / np.maximum(np.linalg.norm(part, int(norm[1]), axis=1, keepdims=True), 1e-9)
              for part in parts_of_rows(counts.astype(float), model.layout.n_cells)]  # fmt: skip
    cells = np.concatenate([part.reshape(len(counts), model.layout.n_cells, -1) for part in scaled], axis=2)
    expected = np.stack([cells[:, :, model.lookup == g].sum(axis=2) for g in range(model.n_groups)], axis=2)
    for given in (counts, sp.csr_array(counts)):
        found = model.group(given)
        found = found.toarray() if sp.issparse(found) else found
        np.testing.assert_allclose(found, expected.reshape(len(counts), -1), rtol=1e-6)


@pytest.mark.parametrize("pyramid", [None, 5])
def test_file_runtime_and_graph_give_the_same(pyramid, tmp_path):
    model = two_vocabularies(pyramid)
    path = model.save(tmp_path / "m.bagwise")
    loaded, ours = Model.load(path), runtime.load(path)
    assert loaded == model
    assert [type(descriptor) for descriptor in loaded.descriptor] == [Patches, ColorCells]
    expected, classes = model.transform(IMAGES).toarray(), model.predict(IMAGES)
    np.testing.assert_array_equal(loaded.transform(IMAGES).toarray(), expected)
    one, other = described(model)
    items = list(zip(one, other, strict=True))
    places = [(one.positions_of(i), other.positions_of(i)) for i in range(len(IMAGES))]
    np.testing.assert_allclose(ours.transform(items, places), expected, rtol=1e-6)
    np.testing.assert_allclose(
        ours.cut(2).transform(items, places), model.cut(2).transform(IMAGES).toarray(), rtol=1e-6
    )
    assert ours.predict(items, places).tolist() == classes.tolist()
    session = onnxruntime.InferenceSession(export_onnx(model, tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    for k, (item, place) in enumerate(zip(items, places, strict=True)):
        np.testing.assert_allclose(ours.transform(item, place), expected[k], rtol=1e-6)
        inputs = {"descriptors": item[0], "descriptors_1": item[1]}
        inputs |= {"positions": place[0], "positions_1": place[1]} if pyramid else {}
        features, label = session.run(["features", "label"], inputs)
        np.testing.assert_allclose(features[0], expected[k], rtol=1e-5, atol=1e-6)
        assert model.classes[label[0]] == classes[k]


def test_models_of_bags_have_several_vocabularies_too(tmp_path):
    model = two_vocabularies()
    bare = dataclasses.replace(model, descriptor=None)
    assert Model.load(bare.save(tmp_path / "m.bagwise")) == bare
    np.testing.assert_array_equal(bare.transform(described(model)).toarray(), model.transform(IMAGES).toarray())
    with pytest.raises(BagwiseError, match="has no descriptor"):
        bare.transform(IMAGES)


def test_a_list_of_one_is_one():
    model = two_vocabularies()
    words = model.codebook[0]
    one, same = (
        Model(modality="images", hierarchy=Hierarchy(6, [], []), n_groups=6, descriptor=descriptor, codebook=codebook)
        for descriptor, codebook in ((Patches(), words), ([Patches()], [words]))
    )
    assert one == same
    assert isinstance(same.codebook, np.ndarray)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codebook": [np.ones((6, 16))] * 2}, r"one entry per word of the hierarchy, 11; got 6 \+ 6"),
        ({"codebook": [np.ones((11, 16)), np.ones((0, 6))]}, r"got 11 \+ 0"),
        ({"codebook": [np.ones((6, 16)), np.ones((5, 0))]}, "at least one feature"),
        ({"codebook": np.ones((11, 16))}, "2 descriptors need as many codebooks; got 1"),
        ({"codebook": None}, "by Patches and ColorCells needs a codebook"),
        ({"descriptor": [Patches(), LBPD5()]}, "LBPD5 counts words itself"),
        ({"descriptor": [Patches()] * 3}, "3 descriptors need as many codebooks; got 2"),
        ({"codebook": [np.ones((1, 2))] * 20, "descriptor": None}, "at most 16 codebooks"),
    ],
)
def test_vocabularies_that_cannot_be_are_refused(changes, message):
    with pytest.raises(BagwiseError, match=message):
        dataclasses.replace(two_vocabularies(), **changes)


def test_items_that_cannot_be_are_refused(tmp_path):
    model = two_vocabularies()
    one, other = described(model)
    for wrong in (one, [one], (one,), (one, other[:2]), (one, other, other)):
        with pytest.raises(BagwiseError, match="tuples of 2 Bags of the same items"):
            model.histograms(wrong)
    with pytest.raises(BagwiseError, match="6 features, but this model is expecting 16"):
        model.histograms((other, one))
    ours = runtime.load(model.save(tmp_path / "m.bagwise"))
    for wrong in ((one[0],), [one[0], other[0]], (one[0], other[0], other[0])):
        with pytest.raises(runtime.ModelFileError, match="a tuple of 2 arrays"):
            ours.transform(wrong)
    with pytest.raises(runtime.ModelFileError, match=r"of shape \(M, 16\)"):
        ours.transform((other[0], one[0]))


def test_a_fit_reads_each_item_once_and_learns_each_vocabulary_alone(tmp_path, monkeypatch):
    write_image_folder(tmp_path / "images")
    collection = open_collection(tmp_path / "images", mode="rgb")
    loads = []
    decode = type(collection[0].decoder).decode
    monkeypatch.setattr(
        type(collection[0].decoder), "decode", lambda self, *given: loads.append(1) or decode(self, *given)
    )
    descriptors = [DenseSIFT(), ColorCells(cell=4, step=4)]
    both = VisualVectorizer("images", descriptors, n_words=(7, 4))
    found = both.fit_transform(collection, n_samples=3)
    assert len(loads) == len(collection)
    assert both.n_words == 11
    for k, (descriptor, size) in enumerate(zip(descriptors, (7, 4), strict=True)):
        alone = VisualVectorizer("images", descriptor, n_words=(size,))
        same = alone.fit_transform(collection, n_samples=3)
        np.testing.assert_array_equal(both.codebooks[k], alone.codebooks[0])
        first = 7 * k
        np.testing.assert_array_equal(found.matrix[:, first : first + size].toarray(), same.matrix.toarray())
        for number, sample in same.samples.items():
            own = (found.samples[number].words[:, 0] >= 7) == bool(k)
            for name, shift in (("words", first), ("distances", 0), ("positions", 0)):
                np.testing.assert_array_equal(getattr(found.samples[number], name)[own], getattr(sample, name) + shift)
    del loads[:]
    cached = both.transform(collection, cache=tmp_path / "cache").matrix
    assert (both.transform(collection, cache=tmp_path / "cache").matrix != cached).nnz == 0
    assert len(loads) == len(collection)


def test_bags_of_one_vocabulary_stay_as_they_were():
    bags = Bags.from_list([[[0.1], [0.8]], [[4.9]]])
    model = Model(modality="images", hierarchy=Hierarchy(2, [], []), n_groups=2, codebook=[[0.0], [5.0]])
    for same in (bags, [bags[:1], bags[1:]], (bags[:1], bags[1:]), iter([bags])):
        np.testing.assert_array_equal(model.histograms(same).toarray(), [[2, 0], [0, 1]])
