"""The table of descriptors: what files may say of them is what they take, and an entry is all that a new one needs."""

import inspect
import json
import re
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image

from bagwise import BagOfFeatures, BagwiseError, Model, descriptors, open_collection
from bagwise._utils.records import Integer, parameter
from bagwise.app.modalities.visual import checked_descriptors
from bagwise.descriptors import DenseSIFT, Descriptor, Patches
from bagwise.descriptors.base import EXECUTION
from bagwise.descriptors.images import as_grey, starts_of
from bagwise.descriptors.registry import DESCRIPTORS, KnownDescriptor, descriptor_class
from commands import bagwise


@pytest.mark.parametrize("name", sorted(DESCRIPTORS))
def test_parameters_are_json_and_build_the_descriptor_again(name):
    made = getattr(descriptors, name)()
    assert type(made) is descriptor_class(name)
    assert made.modality in DESCRIPTORS[name].modalities
    assert set(made.rules()) == set(made.get_params())
    parameters = made.parameters
    assert set(parameters) == set(made.rules()) - set(EXECUTION)
    again = type(made).from_parameters(json.loads(json.dumps(parameters)))
    assert type(again) is type(made)
    assert again.parameters == parameters
    for few in ({}, {**parameters, "more": 1}, dict(list(parameters.items())[1:]), None, 3):
        with pytest.raises(BagwiseError, match=rf"{name} has the parameters \["):
            type(made).from_parameters(few)


# What is tried for every parameter: edges, wrong types, sizes.
VALUES = [None, True, 0, 1, 3, 4, 5, -1, 0.0, 0.5, -0.5, 1e9, 10**400, float("nan"), "grey", "l2", "hog", [], [1.0], {}]
VALUES += [[0.0], [1.0] * 65, ["a"], [None], object()]


@pytest.mark.parametrize("name", sorted(DESCRIPTORS))
def test_rules_are_those_of_python_and_of_files(name):
    made = descriptor_class(name)()
    n_accepted = 0
    for one, rule in made.rules().items():
        for value in VALUES:
            changed = descriptor_class(name)(**{one: value})
            try:
                changed.check()
                n_accepted += 1
            except BagwiseError:
                with pytest.raises(BagwiseError, match=re.escape(f"{one} of {name} must be {rule}; got ")):
                    changed.fit()
                if one not in EXECUTION:
                    with pytest.raises(BagwiseError, match=f"{one} of {name} must be"):
                        type(made).from_parameters({**made.parameters, one: value})
    assert n_accepted >= len(made.rules())


def test_every_descriptor_that_learns_nothing_is_in_the_table():
    ours = {
        name
        for name in descriptors.__all__
        if inspect.isclass(getattr(descriptors, name)) and issubclass(getattr(descriptors, name), Descriptor)
    }
    assert ours == set(DESCRIPTORS) | {"Descriptor", "SentenceVectors"}


def test_parameters_of_numpy_become_plain():
    made = DenseSIFT(np.int64(4), scales=np.array([1.0, 2.0]), smoothing=np.float32(0.5))
    assert made.parameters == {"step": 4, "patch": 16, "scales": [1.0, 2.0], "smoothing": 0.5, "max_side": None}
    assert {type(value) for value in made.parameters.values()} == {int, list, float, type(None)}


def test_strangers_are_refused():
    class Mine(Patches):
        pass

    class DenseSIFT(Patches):
        pass

    for stranger in (Mine(), DenseSIFT(), 3, object()):
        with pytest.raises(BagwiseError, match="stores descriptors of this library"):
            checked_descriptors(stranger)
    for name in ("DenseSift", ["DenseSIFT"], None):
        with pytest.raises(BagwiseError, match=r"Unknown descriptor: .* Accepted: 'ColorCells', 'ColorSIFT', 'Dense"):
            descriptor_class(name)


@dataclass(eq=False, repr=False)
class Stripes(Descriptor):
    """Means and deviations of stripes of rows: a descriptor that only this file knows."""

    height: int = parameter(4, Integer(1, 99))

    def _describe(self, content):
        image = as_grey(content)
        starts = starts_of(len(image), self.height, self.height)
        stripes = [image[start : start + self.height] for start in starts]
        values = np.array([[one.mean(), one.std()] for one in stripes]).reshape(-1, 2)
        return values, np.array([[0.5, (start + self.height / 2) / len(image)] for start in starts]).reshape(-1, 2)


@pytest.fixture
def stripes(monkeypatch):
    monkeypatch.setitem(DESCRIPTORS, "Stripes", KnownDescriptor(__name__, "stripes"))
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or inspect.getmodule(Stripes))


def test_an_entry_is_all_that_a_new_descriptor_needs(stripes, tmp_path):
    """From Python and from the command line; nothing else is touched."""
    random = np.random.default_rng(0)
    for name, scale in (("calm", 8), ("rough", 90)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for k in range(8):
            pixels = np.clip(random.normal(128, scale, (24, 20)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{k}.png")
    collection = open_collection(tmp_path / "images")
    bags = Stripes(height=6, cache=tmp_path / "cache").transform(collection)
    assert (bags.lengths == 4).all()
    assert BagOfFeatures(3, random_state=0).fit_transform(bags).shape == (16, 3)

    path = tmp_path / "model.bagwise"
    options = ["--descriptor", "stripes", "--words", 6, "--groups", 2, "--folds", 2, "--no-page"]
    bagwise("fit", tmp_path / "images", "--out", path, *options)
    model = Model.load(path)
    assert isinstance(model.descriptor, Stripes)
    assert model.descriptor.parameters == {"height": 4, "max_side": 480}
    assert "rough" in bagwise("predict", path, tmp_path / "images" / "rough" / "0.png")
    with pytest.raises(BagwiseError, match="height of Stripes must be an integer from 1 to 99; got 0"):
        Stripes(height=0).transform(collection)
