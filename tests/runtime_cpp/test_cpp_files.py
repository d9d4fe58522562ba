"""Files that lie are refused: hostile and mutated files, in a build with sanitizers."""

import ctypes
import json
import struct
import subprocess

import numpy as np
import pytest

from app.model.test_hostile_model_files import COMPACT, HEADERS, LIBRARY_HEADERS, with_entry
from bagwise import Bags, BagwiseError, Hierarchy, Model, runtime
from bagwise.app.model.files import model_bytes
from bagwise.descriptors import HogLbp, KeypointSIFT
from changed_files import checksums
from model_cases import MADE
from runtime_cpp.binding import Refused
from runtime_cpp.cases import image_model, text_model
from test_hostile_files import ABOUT, ENTRIES
from waiting import PATIENCE

# Headers that only the library has a use for: what the maker of a model wrote down.
NOT_READ = {"criterion", "path", "errors", "options"}


def parts(content):
    start = 8 + int.from_bytes(content[:8], "little")
    entries = json.loads(content[8:start])
    metadata = entries.pop("__metadata__")
    return json.loads(metadata["bagwise"]), entries, content[start:], metadata


def joined(about, entries, data, metadata=None):
    metadata = {"bagwise": json.dumps(about)} | checksums(entries, data) if metadata is None else metadata
    header = json.dumps({"__metadata__": metadata, **entries}).encode()
    return len(header).to_bytes(8, "little") + header + data


def run(driver, contents, tmp_path):
    """Return what the driver says of each of the files."""
    pack = tmp_path / "pack"
    pack.write_bytes(b"".join(struct.pack("<Q", len(content)) + content for content in contents))
    done = subprocess.run([driver, pack], capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-3000:]
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    assert len(lines) == len(contents)
    return lines


def with_values(content, name, values):
    about, entries, data, _ = parts(content)
    first, end = entries[name]["data_offsets"]
    dtype = runtime.TYPES[entries[name]["dtype"]]
    right = np.frombuffer(data[first:end], dtype).reshape(entries[name]["shape"])
    wrong = values(right) if callable(values) else np.broadcast_to(np.array(values), right.shape)
    return joined(about, entries, data[:first] + wrong.astype(dtype).tobytes() + data[end:])


def hostile_files():
    """Yield a name and the bytes of files that must be refused."""
    made = {name: model_bytes(MADE[name]()) for name in ("images", "texts", "weighted texts", "compact texts")}
    for name in ("images", "texts"):
        about, entries, data, _ = parts(made[name])
        changes = {case: held[0] for case, held in (ABOUT | HEADERS | LIBRARY_HEADERS).items() if case not in NOT_READ}
        for case, change in changes.items():
            if name == "texts" and "descriptor" in case:
                continue
            if name == "images" and case in ("tokenizer", "preprocessor"):
                continue
            yield f"{name}: {case}", joined(about | change, entries, data)
        for case, (change, _) in ENTRIES.items():
            for array in ("merges", "scores"):
                wrong = change(entries[array])
                wrong = wrong if wrong is None else entries[array] | wrong
                if wrong != entries[array]:
                    yield f"{name}: {case} of {array}", joined(about, entries | {array: wrong}, data)
        for metadata in ({}, {"bagwise": "[]"}, {"bagwise": "{"}, {"bagwise": 3}, ["bagwise"], "bagwise"):
            yield f"{name}: {metadata}", joined(about, entries, data, metadata)
        for cut in range(0, len(made[name]), 37):
            yield f"{name} cut at {cut}", made[name][:cut]
        yield f"{name} longer", made[name] + b"x"
        twice = made[name].replace(b'{"__metadata__"', b'{"scores": 1, "__metadata__"')
        yield f"{name} with a member twice", len(twice[8:]).to_bytes(8, "little") + twice[8:]
    about, entries, data, _ = parts(made["compact texts"])
    for case, (change, arrays, _) in COMPACT.items():
        content = joined(about | change, entries, data)
        for name, values in arrays.items():
            content = with_values(content, name, values)
        yield f"compact: {case}", content
    ladder = [[k, k + 1] for k in range(11)]
    for name, values in [
        *(("merges", one) for one in ([[0, 0]] * 11, [[0, 1]] * 11, [[-1, 5]] * 11, [[0, 99]] * 11, ladder)),
        *(("codebook", one) for one in (np.nan, np.inf, 1e17)),
        *((name, one) for name in ("head_4_coef", "head_2_intercept") for one in (np.nan, np.inf, -1e38)),
    ]:
        yield f"{name} {values}", with_values(made["images"], name, values)
    for wrong in ([0] * 9, [0, 99, 3, 3, 3, 3, 3, 3, 3], [-5] * 9, list(range(9)), [0, 2**62, 3, 3, 3, 3, 3, 3, 33]):
        yield f"offsets {wrong}", with_values(made["texts"], "name_offsets", wrong)
    yield "names", with_values(made["texts"], "names", lambda names: names | 0x80)
    yield "equal names", with_values(made["texts"], "names", lambda names: 0 * names + 97)
    for value in (-1.0, np.nan, np.inf):
        yield f"weights {value}", with_values(made["weighted texts"], "word_weights", value)
    for wrong in (
        [],
        "word",
        {"token_pattern": "("},
        {"token_pattern": 3},
        {"ngram_range": 3},
        {"ngram_range": [1, 10**9]},
    ):
        about, entries, data, _ = parts(made["texts"])
        yield f"tokenizer {wrong}", joined(about | {"tokenizer": wrong}, entries, data)
    for wrong in ([6, 6], [11], [], [12, -1], ["6", 5], 11, [1] * 11, {"a": 1}, [6, 5, 0], [5, 6], [2**62, 2**62]):
        about, entries, data, _ = parts(model_bytes(image_model("default")))
        yield f"vocabularies {wrong}", joined(about | {"vocabularies": wrong}, entries, data)
    small = model_bytes(image_model("default").quantize())
    about, entries, data, _ = parts(small)
    yield "scales of nothing", joined(about, with_entry(entries, "codebook_scale", dtype="I32"), data)
    for name in ("codebook", "codebook_1", "head_7_coef"):
        yield f"{name} -128", with_values(small, name, -128)
    for name, value in (
        (name, value) for name in ("codebook_1_scale", "head_7_scale") for value in (0, np.nan, np.inf, -1)
    ):
        yield f"{name} {value}", with_values(small, name, value)
    texts = [b"{}", b"[]", b"null", b"\xff\xfe{", b"[" * 100_000, b'{"a":' + b"1" * 5994 + b"}", b'{"a":"\\ud800"}']
    texts += [b'{"a":"\\u12', b'{"a":tru', b'{"a":1.}', b'{"a":01}', b'{"a":-}', b'{"a":1e}', b'{"a"', b'{"a":"\x01"}']
    texts += [b'{"a":1,}', b"{,}", b'{"a":nan}', b'{"a":' + b"[" * 64 + b"]" * 64 + b"}"]
    texts += [b'{"a":[' + b"0," * 600_000 + b"0]}"]
    contents = [b"", b"\x80\x04\x95 pickle", *(n.to_bytes(8, "little") + b"{}" * 9 for n in (1 << 63, 2**64 - 1, 19))]
    for content in contents + [len(text).to_bytes(8, "little") + text for text in texts]:
        yield f"{content[:40]}", content


def test_hostile_files_are_refused(driver, tmp_path):
    cases = dict(hostile_files())
    said = run(driver, cases.values(), tmp_path)
    taken = [
        name for name, line in zip(cases, said, strict=True) if not line.startswith("The model in memory cannot be")
    ]
    assert not taken
    assert len(cases) > 250
    for name, line in zip(cases, said, strict=True):
        assert 60 < len(line) < 700, (name, line)  # it says why


def test_hostile_files_of_the_library_that_are_not_read_are_taken(driver, tmp_path):
    contents = [model_bytes(MADE[name]()) for name in ("images", "texts", "edited", "measurements", "odd", "table")]
    contents += [model_bytes(image_model("default")), model_bytes(text_model().compact())]
    assert run(driver, contents, tmp_path) == ["ok"] * len(contents)


def test_mutated_files_are_refused_or_sound(driver, tmp_path):
    """Change bytes, cut and repeat pieces, with right checksums and others; the library takes what C++ takes."""
    random = np.random.default_rng(0)
    seeds = [model_bytes(MADE[name]()) for name in ("images", "texts", "compact texts", "measurements")]
    seeds += [model_bytes(model) for model in (image_model("default"), image_model("rg").quantize())]
    contents = []
    for turn in range(2000):
        seed = bytearray(seeds[random.integers(len(seeds))])
        start = 8 + int.from_bytes(seed[:8], "little")
        for _ in range(random.integers(1, 4)):
            if turn % 2:  # one number of an array
                at = int(random.integers(min(start, len(seed) - 1), len(seed)))
                seed[at] = random.integers(256)
                break
            at = int(random.integers(len(seed) if random.random() < 0.5 else min(start, len(seed))))
            kind = random.integers(5)
            if kind == 0:
                seed[at : at + 1] = bytes([random.integers(256)])
            elif kind == 1:
                seed[at : at + 4] = struct.pack("<i", int(random.choice([-1, 0, 1, 2**31 - 1, -(2**31)])))
            elif kind == 2:  # in a header, digits become other digits
                seed[at : at + 1] = bytes([random.choice(list(b'0123456789,"[]{}-.e'))])
            elif kind == 3:
                del seed[at : at + int(random.integers(1, 9))]
            else:
                seed[at:at] = seed[at : at + int(random.integers(1, 30))]
        content = bytes(seed)
        contents.append(joined(*parts(content)[:3]) if turn % 4 == 1 else content)  # changed numbers get through
    said = run(driver, contents, tmp_path)
    n_taken = said.count("ok")
    assert 200 < n_taken < 1700, n_taken
    for content, line in zip(contents, said, strict=True):
        if line == "ok":
            runtime.load(content)  # raises if the library would refuse it


@pytest.mark.parametrize("name", ["images", "texts", "table"])
def test_frames_of_one_size_allocate_nothing(driver, name, tmp_path):
    model = {"images": image_model("pyramid"), "texts": text_model(3), "table": MADE["measurements"]()}[name]
    path = model.save(tmp_path / "m.bagwise")
    done = subprocess.run([driver, "--frames", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    first, *others = map(int, done.stdout.split())
    assert first > 0
    assert others == [0, 0]


def refused_by_name():
    random = np.random.default_rng(0)
    pictured, worded = MADE["images"](), MADE["texts"]()

    def bag_model(descriptor, width):
        from bagwise.app.model import Head

        return Model(
            modality="images", hierarchy=Hierarchy(3, [], []), n_groups=3, descriptor=descriptor,
            codebook=random.normal(size=(3, width)), classes=["a", "b"], heads={3: Head(np.eye(2, 3), np.zeros(2))},
        )  # fmt: skip

    def header(model, **changes):
        about, entries, data, _ = parts(model_bytes(model))
        return joined(about | changes, entries, data)

    yield bag_model(None, 8), "its descriptor is null: it takes vectors"
    yield bag_model(HogLbp(), 32), 'its descriptor is "HogLbp", which this runtime does not have; accepted: DenseSIFT'
    yield bag_model(KeypointSIFT(), 128), 'its descriptor is "KeypointSIFT"'
    yield MADE["patterns"](), 'its descriptor is "LBPD5"'
    yield header(pictured, items="videos"), "its items are videos, which this runtime does not describe"
    for options, message in [
        ({"analyzer": "char_wb"}, 'has analyzer "char_wb", which this runtime does not have; accepted: "word", "char"'),
        ({"strip_accents": "ascii"}, 'strip_accents "ascii"'),
        ({"stop_words": "english"}, 'stop_words "english", which this runtime does not have; accepted: null or a list'),
        ({"token_pattern": r"\d+"}, r"accepted: \(\?u\)"),
    ]:
        yield header(worded, tokenizer=options), message


def test_what_is_not_supported_is_refused_by_name(cpp, tmp_path):
    for source, message in refused_by_name():
        content = source if isinstance(source, bytes) else model_bytes(source)
        with pytest.raises(Refused, match=message):
            cpp.model(content)


def test_paths_that_hold_no_model_are_refused(cpp, tmp_path):
    Hierarchy(3, [[0, 1]], [1.0]).save(tmp_path / "hierarchy")
    Bags.from_list([[[1.0]]]).save(tmp_path / "bags")
    (tmp_path / "folder").mkdir()
    for name, message in [
        ("hierarchy", 'it holds "bagwise.Hierarchy", not "bagwise.Model"'),
        ("bags", 'it holds "bagwise.Bags"'),
        ("nothing", "there is no such file"),
        ("folder", "it is a folder"),
    ]:
        with pytest.raises(Refused, match=message) as caught:
            cpp.model(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path / name} cannot be read as a model: ")
    changed = bytearray(model_bytes(MADE["images"]()))
    changed[-1] ^= 1
    with pytest.raises(Refused, match=r'checksum of its "\w+" is [0-9a-f]{8}, expected'):
        cpp.model(bytes(changed))
    with pytest.raises(BagwiseError):
        Model.load(tmp_path / "hierarchy")


def test_messages_are_cut_between_characters(cpp):
    whole = ctypes.create_string_buffer(2000)
    assert cpp.load("aé東😀".encode(), 0, whole, len(whole)) is None
    for size in range(1, 40):
        error = ctypes.create_string_buffer(b"x" * 60)
        assert cpp.load("aé東😀".encode(), 0, error, size) is None
        assert size - 4 <= len(error.value) < size
        assert whole.value.decode().startswith(error.value.decode())
