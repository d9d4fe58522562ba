"""Whatever a model file says is checked before it is believed, here and in the runtime."""

import json
import subprocess
import sys
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise import BagwiseError, Model, runtime
from bagwise.app.model import Head, files
from changed_files import checksums
from model_cases import MADE, random_hierarchy, refused, table_model


def taken_apart(path):
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    entries = json.loads(content[8:start])
    about = json.loads(entries.pop("__metadata__")["bagwise"])
    return about, entries, content[start:]


def put_together(path, about, entries, data, metadata=None):
    metadata = {"bagwise": json.dumps(about)} | checksums(entries, data) if metadata is None else metadata
    header = json.dumps({"__metadata__": metadata, **entries}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path


EDITED = files.model_bytes(MADE["edited"]())


@pytest.fixture(scope="module", params=["images", "texts"])
def parts(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("parts") / "m.bagwise"
    return request.param, taken_apart(MADE[request.param]().save(path)), path.read_bytes()


HEADERS = {  # a change of the header, and what is said of it
    "term": ({"term": "exp"}, "term or norm cannot be"),
    "list as term": ({"term": ["log"]}, "term or norm cannot be"),
    "norm": ({"norm": "l3"}, "term or norm cannot be"),
    "calibration": ({"calibration": 1.0}, "its calibration cannot be"),
    "calibration of nothing": ({"calibration": {"1": 1.0}}, "its calibration cannot be"),
    "a list of names": ({"group_names": ["x"]}, "its group_names cannot be"),
    "a name of no group": ({"group_names": {"99": "x"}}, "its group_names cannot be"),
    "a name of a long number": ({"group_names": {"9" * 5000: "x"}}, "its group_names cannot be"),
    "a name of a number in other letters": ({"group_names": {"\u0661": "x"}}, "its group_names cannot be"),
    "a name of a group of unknown many": (
        {"n_words": "4", "group_names": {"0": "x"}},
        "its group_names cannot be|heads or n_words",
    ),
    "a number as name": ({"group_names": {"0": 1}}, "its group_names cannot be"),
    "flattened below its merges": ({"flattened": 2}, "its flattened cannot be"),
    "flattened in words": ({"flattened": "4"}, "its flattened cannot be"),
    "negative calibration": ({"calibration": {"4": -1.0}}, "its calibration cannot be"),
    "items": ({"items": "sounds"}, "its items"),
    "list of items": ({"items": ["images"]}, "its items"),
    "no words": ({"vocabulary_size": 0}, "number of words cannot be"),
    "too many words": ({"vocabulary_size": 10**15}, "number of words cannot be"),
    "many words": ({"vocabulary_size": 2**31 - 1}, "words cannot have|pyramid cannot be"),
    "one word more": ({"vocabulary_size": 13}, "do not suit|expected"),
    "text of words": ({"vocabulary_size": "12"}, "number of words cannot be"),
    "cut": ({"n_words": 99}, "do not suit"),
    "float cut": ({"n_words": 2.0}, "do not suit"),
    "heads": ({"heads": [1]}, "head_1_coef|do not suit"),
    "repeated heads": ({"heads": [3, 3]}, "do not suit"),
    "no heads": ({"heads": []}, "its array 'head_"),
    "text of heads": ({"heads": "2"}, "heads, pyramid or steps"),
    "pyramid": ({"pyramid": [[1000, 1000]]}, "its pyramid cannot be"),
    "huge pyramid": ({"pyramid": [[1, 1]] * 5000}, "its pyramid cannot be"),
    "empty pyramid": ({"pyramid": []}, "its pyramid cannot be"),
    "odd pyramid": ({"pyramid": [[1, 1, 1]]}, "its pyramid cannot be"),
    "negative pyramid": ({"pyramid": [[-1, -1]]}, "its pyramid cannot be"),
    "steps": ({"normalize": ["exec"]}, "steps cannot be"),
    "classes": ({"classes": ["a", 2, "c"]}, "its classes"),
    "repeated classes": ({"classes": ["a", "a", "c"]}, "its classes"),
    "fewer classes": ({"classes": ["a"]}, "do not suit"),
    "more classes": ({"classes": list("abcdef")}, "its array 'head_._coef'"),
}
COMPACT = {  # a change of the header or of an array of a compact model, and what is said of it
    "cut": ({"n_words": 2}, {}, "do not suit|expected"),
    "range": ({"weight_range": [0.0, 1.0]}, {}, "its weight_range cannot be"),
    "text as range": ({"weight_range": "1"}, {}, "its weight_range cannot be"),
    "no range": ({"weight_range": None}, {}, "its array 'weight_codes'"),
    "items": ({"items": "table"}, {}, "its array 'hash"),
    "groups": ({}, {"groups": lambda groups: groups[::-1]}, "its groups are not numbered by their first words"),
    "large groups": ({}, {"groups": lambda groups: groups + 200}, "its groups are not numbered"),
    "one group": ({}, {"groups": lambda groups: 0 * groups}, "its groups are not numbered"),
    "starts": ({}, {"hash_starts": lambda starts: starts[::-1]}, "its hash_starts do not rise"),
    "negative starts": ({}, {"hash_starts": lambda starts: starts - 1}, "its hash_starts do not rise"),
    "starts whose differences overflow": (
        {},
        {"hash_starts": lambda s: np.concatenate([[0, 2**31 - 1, -(2**31), -1], s[4:]])},
        "its hash_starts do not rise",
    ),
    "hashes": ({}, {"hashes": lambda low: 0 * low, "hash_starts": lambda s: 0 * s + (s > s[0]) * s[-1]}, "do not rise"),
}


@pytest.mark.parametrize("case", sorted(COMPACT))
def test_compact_files_that_lie_are_refused(case, tmp_path):
    about, entries, data = taken_apart(MADE["compact texts"]().save(tmp_path / "m.bagwise"))
    changes, arrays, message = COMPACT[case]
    data = bytearray(data)
    for name, change in arrays.items():
        first, end = entries[name]["data_offsets"]
        values = np.frombuffer(bytes(data[first:end]), runtime.TYPES[entries[name]["dtype"]])
        data[first:end] = change(values).astype(values.dtype).tobytes()
    refused(put_together(tmp_path / "m.bagwise", about | changes, entries, bytes(data)), message)


LIBRARY_HEADERS = {  # what the runtime has no use for
    "criterion": ({"criterion": 3}, "must be texts"),
    "descriptor": ({"descriptor": {"name": "os.system", "parameters": {}}}, "Unknown descriptor|A model of"),
    "text of a descriptor": ({"descriptor": "Patches"}, "descriptor must have name, parameters"),
    "keys of a descriptor": ({"descriptor": {"name": "Patches"}}, "descriptor must have name, parameters"),
    "tokenizer": ({"tokenizer": {"token_pattern": 3}}, "token_pattern of the tokenizer"),
    "preprocessor": ({"tokenizer": {"preprocessor": "eval"}}, "Unknown option of the tokenizer"),
    "path": ({"path": {"sizes": [1]}}, "path must have sizes"),
    "errors": (
        {"path": {"sizes": [1], "errors": ["x"], "standard_errors": [0], "protocol": "", "paired_errors": []}},
        "errors of a path must be numbers",
    ),
    "options": ({"options": [1]}, "options must be a mapping"),
}


@pytest.mark.parametrize("case", sorted(HEADERS))
def test_headers_that_lie_are_refused(parts, case, tmp_path):
    _, (about, entries, data), _ = parts
    changes, message = HEADERS[case]
    refused(put_together(tmp_path / "m.bagwise", about | changes, entries, data), message)


@pytest.mark.parametrize("case", sorted(LIBRARY_HEADERS))
def test_parameters_that_cannot_be_are_refused(parts, case, tmp_path):
    _, (about, entries, data), _ = parts
    changes, message = LIBRARY_HEADERS[case]
    path = put_together(tmp_path / "m.bagwise", about | changes, entries, data)
    refused(path, message, by=["library"])


PATCHES = {"patch": 2, "step": 2, "mode": "grey", "normalize": None, "max_side": None}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"patch": 2}, "has the parameters"),
        ({**PATCHES, "patch": 10**9}, "patch of Patches must be an integer"),
        ({**PATCHES, "patch": "2"}, "patch of Patches must be an integer"),
        ({**PATCHES, "patch": True}, "patch of Patches must be an integer"),
        ({**PATCHES, "cache": "/etc"}, "has the parameters"),
        ([1], "has the parameters"),
    ],
)
def test_parameters_of_descriptors_are_checked(parameters, message, tmp_path):
    about, entries, data = taken_apart(MADE["images"]().save(tmp_path / "m.bagwise"))
    about["descriptor"]["parameters"] = parameters
    refused(put_together(tmp_path / "m.bagwise", about, entries, data), message, by=["library"])


def with_entry(entries, name, **changes):
    return entries | {name: entries[name] | changes}


@pytest.mark.parametrize(
    ("name", "values", "message", "by"),
    [
        ("merges", [[0, 0]] * 11, "merges|Merge", ("library", "runtime")),
        ("merges", [[0, 1]] * 11, "merges|Merge", ("library", "runtime")),
        ("merges", [[-1, 5]] * 11, "merges|Merge", ("library", "runtime")),
        ("merges", [[0, 99]] * 11, "merges|Merge", ("library", "runtime")),
        ("merges", [[k, k + 1] for k in range(11)], "merges|Merge", ("library", "runtime")),
        ("codebook", np.nan, "finite|numbers below", ("library", "runtime")),
        ("head_4_coef", np.nan, "finite|numbers below", ("library", "runtime")),
        ("head_2_intercept", np.inf, "finite|numbers below", ("library", "runtime")),
    ],
)
def test_numbers_that_cannot_be_are_refused(name, values, message, by, tmp_path):
    about, entries, data = taken_apart(MADE["images"]().save(tmp_path / "m.bagwise"))
    first, last = entries[name]["data_offsets"]
    dtype = runtime.TYPES[entries[name]["dtype"]]
    wrong = np.broadcast_to(np.array(values, dtype), entries[name]["shape"]).tobytes()
    assert len(wrong) == last - first
    refused(put_together(tmp_path / "m.bagwise", about, entries, data[:first] + wrong + data[last:]), message, by)


@pytest.mark.parametrize("wrong", [[0] * 9, [0, 99, 3, 3, 3, 3, 3, 3, 3], [-5] * 9, list(range(9))])
def test_names_that_cannot_be_are_refused(wrong, tmp_path):
    about, entries, data = taken_apart(MADE["texts"]().save(tmp_path / "m.bagwise"))
    first, last = entries["name_offsets"]["data_offsets"]
    data = data[:first] + np.array(wrong, "<i8").tobytes() + data[last:]
    refused(
        put_together(tmp_path / "m.bagwise", about, entries, data), "offsets of (strings|its names)( must| do not) rise"
    )


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_weights_that_cannot_be_are_refused(value, tmp_path):
    about, entries, data = taken_apart(MADE["weighted texts"]().save(tmp_path / "m.bagwise"))
    first, last = entries["word_weights"]["data_offsets"]
    data = data[: last - 4] + np.array(value, "<f4").tobytes() + data[last:]
    refused(put_together(tmp_path / "m.bagwise", about, entries, data), "negative|finite|numbers below")
    assert first < last


UNEDITED = {  # changes of `unedited` in the header, of arrays, and what is said of them
    "list": (["x"], {}, "unedited must have n_words"),
    "no list of heads": ({"heads": "9"}, {}, "Its unedited cannot be"),
    "heads of too many": ({"heads": [3, 10**9]}, {}, "Its unedited cannot be"),
    "boolean heads": ({"heads": [True]}, {}, "Its unedited cannot be"),
    "other heads": ({"heads": [3, 4]}, {}, "Its array 'unedited_head_4_coef' is None"),
    "too many groups": ({"n_words": 99}, {}, "n_groups must be from"),
    "names": ({"group_names": {"x": "y"}}, {}, "Members must be numbers"),
    "names of long numbers": ({"group_names": {"9" * 5000: "y"}}, {}, "Members must be numbers"),
    "a name of no group": ({"group_names": {"60": "y"}}, {}, "there is no group 60"),
    "calibration": ({"calibration": {"3": "x"}}, {}, "calibration has a number"),
    "derived": ({"derived_head": 3}, {}, "Its unedited cannot be"),
    "path": ({"path": {"sizes": [1]}}, {}, "path must have sizes"),
    "no edits": ({}, {"edits": None}, "Its array 'edits' is None"),
    "edits that are no JSON": ({}, {"edits": np.frombuffer(b"[{", np.uint8)}, "Its edits are no JSON"),
    "deep edits": ({}, {"edits": np.frombuffer(b"[" * 10**5, np.uint8)}, "Its edits are no JSON"),
    "edits of a kind that is not known": (
        {},
        {"edits": np.frombuffer(b'[{"edit": "run", "n_groups": 1}]', np.uint8)},
        "Unknown edit: 'run'",
    ),
    "an empty list of edits": ({}, {"edits": np.frombuffer(b"[]", np.uint8)}, "has `unedited` if it has edits"),
    "type of edits": ({}, {"edits": np.zeros(3)}, "Its array 'edits' is"),
    "merges": ({}, {"unedited_merges": np.zeros((59, 2), np.int32)}, "Merge 0 is"),
    "fewer merges": ({}, {"unedited_merges": np.zeros((3, 2), np.int32)}, "Its array 'unedited_scores'"),
    "no merges": ({}, {"unedited_merges": None}, "Its array 'unedited_scores'"),
    "heads": ({}, {"unedited_head_9_coef": np.zeros((3, 8), np.float32)}, "Its array 'unedited_head_9_coef'"),
    "infinite heads": ({}, {"unedited_head_9_coef": np.full((3, 9), np.inf, np.float32)}, "finite"),
    "unknown": ({}, {"unedited_code": np.zeros(3, np.uint8)}, "Its array 'unedited_code'"),
}


@pytest.mark.parametrize("case", sorted(UNEDITED))
def test_edits_that_lie_are_refused_by_the_library_and_not_read_by_the_runtime(case, tmp_path):
    random = np.random.default_rng(0)
    heads = {n: Head(random.normal(size=(3, n)), np.zeros(3)) for n in (3, 9)}
    model = Model(
        modality="table", hierarchy=random_hierarchy(60, random), n_groups=9, classes=list("abc"), heads=heads
    )
    words = next(words for words in model.groups() if len(words) > 3)
    model = model.apply([{"edit": "move", "n_groups": 9, "words": words[:2].tolist(), "to": 8}])
    header, tensors = files.parts_of(model)
    assert {"edits", "unedited_merges", "unedited_scores", "unedited_head_9_coef"} <= tensors.keys()
    changes, arrays, message = UNEDITED[case]
    header["unedited"] = header["unedited"] | changes if isinstance(changes, dict) else changes
    tensors = {name: array for name, array in (tensors | arrays).items() if array is not None}
    path = files._FILE.save(tmp_path / "m.bagwise", header, tensors)
    refused(path, message, by=["library"])
    assert runtime.load(path).n_groups == model.n_groups


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.full((8, 3), np.nan, np.float32), "finite numbers"),
        (-np.ones((8, 3), np.float32), "must not be negative"),
        (np.ones((8, 3)), "Its array 'statistics' is"),
        (np.ones(24, np.float32), "Its array 'statistics' is"),
        (np.ones((7, 3), np.float32), r"Statistics of n groups.*; got \(7, 3\) for n=8"),
        (np.ones((1001, 3), np.float32), "at most 1000"),
        (np.ones((8, 300), np.float32), "2 to 256"),
    ],
)
def test_statistics_that_lie_are_refused_by_the_library_and_not_read_by_the_runtime(values, message, tmp_path):
    model = MADE["texts"]()
    header, tensors = files.parts_of(model)
    header |= {"criterion": "aib"}
    right = files._FILE.save(tmp_path / "m", header, tensors | {"statistics": np.ones((8, 3), np.float32)})
    assert Model.load(right).group_statistics.n_groups == 8
    path = files._FILE.save(tmp_path / "m.bagwise", header, tensors | {"statistics": values})
    refused(path, message, by=["library"])
    assert runtime.load(path).n_groups == model.n_groups


def test_names_are_utf8(tmp_path):
    about, entries, data = taken_apart(MADE["texts"]().save(tmp_path / "m.bagwise"))
    first, _ = entries["names"]["data_offsets"]
    data = data[:first] + b"\xff" + data[first + 1 :]
    path = put_together(tmp_path / "m.bagwise", about, entries, data)
    refused(path, "not UTF-8", by=["library"])
    with pytest.raises(runtime.ModelFileError, match="is not UTF-8"):
        runtime.load(path).transform_texts("words")


@pytest.mark.parametrize(
    "tokenizer",
    [
        [],
        "word",
        {"token_pattern": "("},
        {"token_pattern": 3},
        {"token_pattern": "(a)(b)"},
        {"ngram_range": 3},
        {"ngram_range": [1, 10**9]},
        {"stop_words": 3},
        {"stop_words": [3]},
        {"lowercase": "no"},
        {"preprocessor": "eval"},
    ],
    ids=repr,
)
def test_tokenizers_that_cannot_be_are_refused(tokenizer, tmp_path):
    about, entries, data = taken_apart(MADE["texts"]().save(tmp_path / "m.bagwise"))
    refused(put_together(tmp_path / "m.bagwise", about | {"tokenizer": tokenizer}, entries, data), "tokenizer")


@given(place=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_a_changed_byte_of_an_edited_model_is_refused_or_edits_that_can_be_replayed(place, byte):
    changed = bytearray(EDITED)
    changed[place % len(EDITED)] = byte
    try:
        model = files.read_model(np.frombuffer(bytes(changed), np.uint8), Model)
    except BagwiseError:
        return
    assert model.cut(4).n_groups == 4
    with suppress(BagwiseError):  # edits of groups or words that the model does not have
        assert len(model.undo().edits) == len(model.edits) - 1


def test_hostile_sizes_take_no_memory(parts, tmp_path):
    """Whatever a file declares, reading it takes no more than a small multiple of the file."""
    _, (about, entries, data), _ = parts
    cases = [put_together(tmp_path / "words", about | {"vocabulary_size": 2**31 - 1}, entries, data)]
    for name, changes in {
        "shape": {"shape": [10**15, 10**15]},
        "everything": {"shape": [10**12], "data_offsets": [0, 8 * 10**12]},
    }.items():
        cases.append(put_together(tmp_path / name, about, with_entry(entries, "scores", **changes), data))
    script = (
        "import resource, sys, numpy, bagwise, bagwise.app.model\n"
        "from bagwise import runtime\n"
        "limit = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize() + 30_000_000\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "for path in sys.argv[1:]:\n"
        "    for load in (bagwise.Model.load, runtime.load):\n"
        "        try:\n"
        "            load(path)\n"
        "        except ValueError as error:\n"
        "            print('refused')\n"
    )
    run = subprocess.run([sys.executable, "-c", script, *map(str, cases)], capture_output=True, text=True)
    assert run.stdout.split() == ["refused"] * 6, run.stderr


def test_models_are_read_from_memory(tmp_path):
    content = table_model().save(tmp_path / "m.bagwise").read_bytes()
    assert runtime.load(content).header == runtime.load(tmp_path / "m.bagwise").header
    with pytest.raises(runtime.ModelFileError, match="The model in memory cannot be read as a model: its"):
        runtime.load(content + b"x")


@pytest.mark.parametrize(
    ("d", "pyramid", "message"),
    [
        (2**20, [[32, 32]], "its pyramid cannot be"),  # a table of a thousand million entries
        (2**10, [[1, 1], [2, 2]], "its pyramid cannot be"),  # rows of a table have no positions
        (2**24, [[1, 1]], "words cannot have 0 merges"),
    ],
)
def test_small_files_ask_for_no_large_tables(tmp_path, d, pyramid, message):
    """Words that are neither merged nor described take no place in a file, but some in memory."""
    about, _, _ = taken_apart(table_model().save(tmp_path / "m.bagwise"))
    entries = {
        name: {"dtype": kind, "shape": shape, "data_offsets": [0, 0]}
        for name, kind, shape in [("merges", "I32", [0, 2]), ("scores", "F64", [0])]
    }
    about |= {"vocabulary_size": d, "n_words": d, "pyramid": pyramid, "classes": [], "heads": [], "path": None}
    path = put_together(tmp_path / "m.bagwise", about, entries, b"")
    tracemalloc.start()
    refused(path, message)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@pytest.mark.parametrize("wrong", [[6, 6], [11], [], [12, -1], ["6", 5], 11, [1] * 11, {"a": 1}, [6, 5, 0], [5, 6]])
def test_hostile_vocabularies_are_refused(wrong, tmp_path):
    about, entries, data = taken_apart(MADE["two vocabularies"]().save(tmp_path / "m.bagwise"))
    path = put_together(tmp_path / "w.bagwise", about | {"vocabularies": wrong}, entries, data)
    refused(path, "its vocabularies of 11 words cannot be|its array 'codebook")
