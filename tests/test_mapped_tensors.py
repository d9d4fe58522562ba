"""Files of arrays that are mapped: any safetensors reader opens them, and headers are not believed."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from bagwise import BagwiseError
from bagwise._io.tensors import TYPE_NAMES, ArraySource, open_arrays, write_arrays

ARRAYS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "ä b"]),
    hnp.arrays(st.sampled_from(sorted(TYPE_NAMES, key=str)), hnp.array_shapes(min_dims=1, min_side=0)),
    min_size=1,
)


def layout(arrays):
    return {name: (array.dtype, array.ndim) for name, array in arrays.items()}


@given(ARRAYS, st.booleans())
def test_arrays_come_back_aligned_mapped_or_not(tmp_path_factory, arrays, mmap):
    path = tmp_path_factory.mktemp("arrays") / "file"
    sources = {name: ArraySource(a.dtype, a.shape, np.array_split(a, 3)) for name, a in arrays.items()}
    assert write_arrays(path, "bagwise.Test", 1, {"about": "ü"}, sources) == path
    header, found = open_arrays(path, "bagwise.Test", 1, layout(arrays), arrays if mmap else ())
    assert header == {"about": "ü"}
    for others in (found, load_file(path)):
        assert others.keys() == arrays.keys()
        for name, array in arrays.items():
            assert others[name].dtype == array.dtype
            assert others[name].tobytes() == array.tobytes()
    assert all(array.flags.aligned and not array.flags.writeable for array in found.values())


def small(path, header=None):
    return write_arrays(path, "bagwise.Test", 1, header or {}, {"a": ArraySource.of(np.arange(6.0).reshape(3, 2))})


@pytest.mark.parametrize("shape", [[2**70, 0], [0, 2**48], [3, 2, 1], [6], "32", None])
def test_impossible_shapes_are_refused_before_anything_is_made(tmp_path, shape):
    path = small(tmp_path / "file")
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    entries = json.loads(content[8 : 8 + length])
    entries["a"].update(shape=shape, data_offsets=[0, 0])
    text = json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(BagwiseError, match=r"is damaged: (a cannot have shape|it does not say what a is)"):
        open_arrays(path, "bagwise.Test", 1, {"a": (np.dtype(float), 2)}, ["a"])


def test_what_is_said_beside_the_arrays_is_limited(tmp_path):
    with pytest.raises(BagwiseError, match="at most 1048576 are accepted"):
        small(tmp_path / "file", {"about": "x" * 2**20})
    assert not list(tmp_path.iterdir())
    path = small(tmp_path / "file")
    path.write_bytes((2**62).to_bytes(8, "little") + path.read_bytes()[8:])
    with pytest.raises(BagwiseError, match=r"not a file written by Test\.save, or was cut short"):
        open_arrays(path, "bagwise.Test", 1, {"a": (None, 2)})


def test_parts_that_do_not_make_up_the_array_leave_nothing(tmp_path):
    source = ArraySource(np.dtype(float), (3,), [np.ones(2)])
    with pytest.raises(RuntimeError, match=r"a of shape \(3,\) came in 16 bytes"):
        write_arrays(tmp_path / "file", "bagwise.Test", 1, {}, {"a": source})
    assert not list(tmp_path.iterdir())
