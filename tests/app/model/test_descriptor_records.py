"""What files may say of descriptors is what the descriptors themselves take."""

import inspect

import numpy as np
import pytest
from sklearn.utils._param_validation import InvalidParameterError

from bagwise import BagwiseError, descriptors
from bagwise.app.model.parts import DescriptorRecord
from bagwise.descriptors import DenseSIFT, Patches
from bagwise.descriptors.lbp import N_PATTERNS
from bagwise.descriptors.registry import DESCRIPTORS

HOW = {"n_jobs", "verbose", "cache", "device"}
# What is tried for every parameter: edges, wrong types, sizes.
VALUES = [
    None,
    True,
    False,
    0,
    1,
    2,
    3,
    4,
    5,
    16,
    -1,
    0.0,
    0.5,
    1.0,
    -0.5,
    "grey",
    "rgb",
    "l1",
    "l2",
    "mean",
    "standard",
]
VALUES += [
    "opponent",
    "rg",
    "c",
    "hog",
    "hof",
    "hog+hof",
    "image",
    "x",
    [],
    [1.0],
    [0.0],
    [1.0, 2.0],
    ["a"],
    [None],
    {},
]


@pytest.mark.parametrize("name", sorted(DESCRIPTORS))
def test_the_table_is_that_of_the_classes(name):
    known = DESCRIPTORS[name]
    made = getattr(descriptors, name)()
    assert made.modality == known.modality
    assert set(made.get_params(deep=False)) - HOW == set(known.rules)
    assert type(made).__module__ == f"bagwise.descriptors.{known.module}"
    record = DescriptorRecord.of(made)
    again = record.build()
    assert type(again) is type(made)
    assert DescriptorRecord.of(again) == record


@pytest.mark.parametrize("name", sorted(DESCRIPTORS))
def test_what_a_record_accepts_the_class_accepts(name):
    """And the other way round, but for sizes that are absurd and numbers where only files are strict."""
    sound = DescriptorRecord.of(getattr(descriptors, name)()).parameters
    n_accepted = 0
    for parameter in sound:
        if parameter == "layer":  # which ones there are depends on the network
            continue
        for value in VALUES:
            parameters = {**sound, parameter: value}
            try:
                record = DescriptorRecord(name, parameters)
            except BagwiseError:
                record = None
            try:
                getattr(descriptors, name)(**parameters).fit()
                accepted = True
            except (InvalidParameterError, BagwiseError):
                accepted = False
            assert accepted or record is None, (parameter, value)
            if accepted and not isinstance(value, bool):
                assert record is not None, (parameter, value)
            n_accepted += record is not None
    assert n_accepted >= len(sound)


def test_every_descriptor_that_learns_nothing_is_known():
    from bagwise.descriptors import Descriptor

    ours = {
        name
        for name in descriptors.__all__
        if inspect.isclass(getattr(descriptors, name)) and issubclass(getattr(descriptors, name), Descriptor)
    }
    assert ours - set(DESCRIPTORS) == {"Descriptor", "SentenceVectors"}


def test_patterns_are_as_many_as_the_descriptor_counts():
    assert DESCRIPTORS["LBPD5"].n_words == N_PATTERNS


def test_parameters_become_plain():
    record = DescriptorRecord.of(DenseSIFT(np.int64(4), scales=np.array([1.0, 2.0]), smoothing=np.float32(0.5)))
    assert record.parameters == {"step": 4, "patch": 16, "scales": [1.0, 2.0], "smoothing": 0.5, "max_side": None}
    assert {type(value) for value in record.parameters.values()} == {int, list, float, type(None)}


def test_strangers_are_refused():
    class Mine(Patches):
        pass

    class DenseSIFT(Patches):
        pass

    for stranger in (Mine(), DenseSIFT(), 3, object()):
        with pytest.raises(BagwiseError, match="stores descriptors of this library"):
            DescriptorRecord.of(stranger)
    with pytest.raises(
        BagwiseError, match=r"Unknown descriptor: 'DenseSift'\. Accepted: 'ColorCells', 'ColorSIFT', 'DenseSIFT'"
    ):
        DescriptorRecord("DenseSift", {})
    with pytest.raises(BagwiseError, match="Unknown descriptor"):
        DescriptorRecord(["DenseSIFT"], {})
    with pytest.raises(BagwiseError, match="scales of DenseSIFT must be a list of 1 to 64 numbers"):
        DescriptorRecord(
            "DenseSIFT", {"step": 8, "patch": 16, "scales": [1.0] * 65, "smoothing": 0.0, "max_side": None}
        )
