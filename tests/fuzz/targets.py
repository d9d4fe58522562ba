"""What is fuzzed: for each loader a corpus of small real files, and how a file is loaded and used."""

import bz2
import contextlib
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from PIL import Image

import hostile_media
from small_sources import (
    images,
    table,
    texts,
    write_image_folder,
    write_records,
    write_table,
    write_text_folder,
    zipped,
)


@dataclass(frozen=True)
class Target:
    """A loader.

    `corpus` makes files in a folder and gives their paths, `use` loads a file and does with it what people do first;
    `ending` is that of the inputs and `form` how they are mutated, see `mutations.mutated`. Slow ones have a `share` of
    the inputs that others have. `helped` are loaders that start the guarded process; no other may start any.
    """

    form: str
    ending: str
    corpus: Callable[[Path], list[Path]]
    use: Callable[[Path], object]
    share: float = 1.0
    helped: bool = False


def _saved(*endings):
    """Files of `saved_files` whose names end so."""

    def found(folder):
        from saved_files import saved_files

        return [path for name, path in sorted(saved_files().items()) if name.endswith(endings)]

    return found


def _use_model(path):
    from bagwise import Model

    model = Model.load(path)
    model.cut(model.hierarchy.min_groups)
    model.info(), model.group_names(), model.describe_groups()
    if model.modality == "texts":
        model.transform(["the cat", ""])
    elif model.modality == "table":
        model.transform(np.ones((2, model.hierarchy.n_words)))
    elif len(model.layout.vocabularies) == 1 and model.layout.n_columns < 10**6:
        model.group(np.ones((1, model.layout.n_columns)))


def _use_runtime(path):
    from bagwise import runtime

    model = runtime.load(path)
    if model.header["items"] == "texts":
        model.transform_texts(["the cat", ""])


def _models(folder):
    from model_cases import MADE

    return [
        *_saved(".bagwise")(folder),
        *(make().save(folder / f"{name}.bagwise") for name, make in MADE.items()),
    ]


def _use_hierarchy(path):
    from bagwise import Hierarchy

    found = Hierarchy.load(path)
    found.cut(found.min_groups), found.leaf_order(), found.to_linkage() if found.min_groups == 1 else None


def _use_bags(path):
    from bagwise import Bags
    from bagwise.codebooks.pyramids import cell_numbers

    found = Bags.load(path)
    [one.sum() for one in found], found.lengths
    if found.positions is not None:
        cell_numbers(found.positions, found.n_rows, ((1, 1), (3, 2)))
    Bags.load(path, verify=True)


def _use_sketch(path):
    from bagwise.merging import Sketch

    found = Sketch.load(path)
    found.update(np.ones((1, found.n_features)))
    found.signature()


def _use_statistics(path):
    from bagwise import merge_words
    from bagwise.merging import Statistics

    found = Statistics.load(path)
    for criterion in ("aib", "csm"):
        merge_words(found, criterion=criterion)


def _use_bag_index(path):
    from bagwise import BagIndex

    for mmap in (True, False):
        found = BagIndex.load(path, mmap=mmap)
        if len(found) and found.n_words < 10**6:
            found.search(np.ones((1, found.n_words)), 3)
            found.search(np.ones((9, found.n_words)), 3)  # by compiled code
            found.row(0)
            found.contributions(np.ones((1, found.n_words)), [0])
            first = found.ids[:1]
            found.remove(first).add(np.ones((1, found.n_words)), first)
            found.search(np.ones((5, found.n_words)), 3)
            found.blocks()


def _use_item_index(path):
    from bagwise.app import ItemIndex
    from bagwise.app.index.index_words import IndexedWords
    from bagwise.sources import Collection

    found = ItemIndex.load(path)
    if len(found):
        found.similar(0, 2)
        words = np.ones((1, found.model.layout.n_columns))
        found.search(words, 2)
        found.remove(found.ids[:1]).add(Collection.from_matrix(words, ["new"], [("label",)]), words)
    IndexedWords.of(found)
    if found.map is not None:
        found.map.to_parts()


def _use_group_names(path):
    """Read names of groups, as `bagwise groups --rename FILE` does."""
    from bagwise import Model
    from bagwise.app.cli.groups import _names
    from saved_files import saved_files

    _names([str(path)], Model.load(saved_files()["texts.bagwise"]))


_names_csv = b'group,name,word\n0,first,cat\n1,"second, quoted",the dog\n'
_names_json = b'[{"group": 0, "name": "first", "words": [{"word": "cat"}]}, {"group": 1, "name": "second"}]'


def _use_topics(path):
    from bagwise import LatentDirichlet

    found = LatentDirichlet.load(path)
    if found.n_features_in_ < 10**5:
        found.transform(np.ones((1, found.n_features_in_)))


def _use_manifold(path):
    from bagwise import ManifoldBagOfFeatures

    found = ManifoldBagOfFeatures.load(path)
    found.transform([np.ones((2, found.n_features_in_))])


def _use_collection(path):
    """Open a source, and load its first items; those that cannot be read are told one by one."""
    from bagwise import open_collection
    from bagwise.errors import BagwiseError

    found = open_collection(path)
    for item in found[:4]:
        with contextlib.suppress(BagwiseError):
            item.load()
    assert len(found.labels) == len(found.ids) == len(found)


def _use_lines(path):
    """Read a file of texts as records, whatever it holds: lines, fields, objects, a sheet or a list."""
    from bagwise import open_collection
    from bagwise.errors import BagwiseError

    for missing in (None, "median"):
        with contextlib.suppress(BagwiseError):
            open_collection(path, modality="table", missing=missing)
    found = open_collection(path, modality="records")
    assert len(list(found.load())) == len(found.labels) == len(found)


def _lines(folder):
    packed = [*_csv(folder), *_xlsx(folder)[:1]]
    (folder / "lines.txt").write_text("see you at home\nwin a free prize\n")
    (folder / "objects.txt").write_bytes(_jsonl())
    (folder / "list.txt").write_bytes(b'[{"text": "a b", "label": 1}]')
    return [*packed, *(folder / f"{name}.txt" for name in ("lines", "objects", "list"))]


def _use_shards(path):
    """Open a tar file as the only shard of a pattern."""
    from bagwise import open_collection
    from bagwise.errors import BagwiseError

    pattern = path.with_name(path.name.replace(path.stem, f"{path.stem[:-1]}?", 1))
    for item in open_collection(pattern)[:4]:
        with contextlib.suppress(BagwiseError):
            item.load()


def _shards(folder):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for k, (text, label) in enumerate(texts(1)):
            meta = f'{{"label": "{label}", "n": [{k}]}}'
            for end, content in (("txt", text), ("json", meta), *([("cls", label)] if k else [])):
                info = tarfile.TarInfo(f"a/{'long' * 30 if k == 0 else ''}{k}.{end}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content.encode()))
    (folder / "s.tar").write_bytes(packed.getvalue())
    return [folder / "s.tar"]


def _manifests(folder):
    import pandas as pd

    (folder / "a.txt").write_text("some text")
    rows = {"id": ["x", "y", "z"], "url": ["a.txt", "b.txt", "memory://none/c.txt"], "label": ["p", "q", None]}
    pd.DataFrame(rows | {"split": ["train", "", "test"], "size": [9, 1, 3]}).to_parquet(folder / "whole.parquet")
    parts = rows | {"offset": [0, 4, 2], "size": [2, 3, 9]}
    pd.DataFrame(parts).to_parquet(folder / "parts.parquet", row_group_size=2)
    return [folder / "whole.parquet", folder / "parts.parquet"]


def _manifest_lines():
    return b'id,url,label,split,size,offset\nx,a.txt,"p, q",train,9,\ny,memory://none/b.txt,q,,3,4\n\'=z,./c::d.txt,,test,,\n'


def _written(*files):
    """Make files from their names and contents."""

    def make(folder):
        for name, content in files:
            (folder / name).write_bytes(content() if callable(content) else content)
        return [folder / name for name, _ in files]

    return make


def _csv(folder):
    quoted = 'id,text,label,split\n1,"a ""quoted"", text\nof two lines",x,train\n2,é…,y,test\n3,,x,train\n'
    (folder / "quoted.csv").write_text(quoted)
    (folder / "tabs.csv").write_text("a;b;class\n1,5;2;x\n3;4;y\n", encoding="utf-8-sig")
    (folder / "wide.csv").write_bytes("naïve,text\n1,ü\n".encode("utf-16"))
    (folder / "narrow.csv").write_bytes(
        "Kategorie;Nachricht\na;schöne Grüße\nb;größer\na;süß und sauer\n".encode("cp1252")
    )
    (folder / "unnamed.csv").write_text(
        "ham,see you at home later then\nspam,win a free prize right now\nham,so it is\n"
    )
    (folder / "gaps.csv").write_text("a,b,label\n1,,x\nNA,4,y\n3,5,x\n2,?,y\n")
    return [
        write_records(folder / "records.csv", n_each=3),
        write_table(folder / "table.csv", n_each=3),
        *(folder / f"{name}.csv" for name in ("quoted", "tabs", "wide", "narrow", "unnamed", "gaps")),
    ]


def _jsonl():
    return "\n".join(
        f'{{"text": "{text}", "label": "{label}", "id": {k}}}' for k, (text, label) in enumerate(texts(2))
    ).encode()


def _npz(folder):
    X, y = table(n_each=3)
    np.savez(folder / "dense.npz", X=X, y=y)
    np.savez_compressed(folder / "split.npz", x_train=X, y_train=y, x_test=X[:2], y_test=y[:2])
    sp.save_npz(folder / "sparse.npz", sp.csr_matrix(X))
    return [folder / name for name in ("dense.npz", "split.npz", "sparse.npz")]


def _mtx(folder):
    from scipy.io import mmwrite

    X, _ = table(n_each=2, n_words=4)
    mmwrite(folder / "sparse.mtx", sp.coo_matrix(X))
    mmwrite(folder / "dense.mtx", X)
    mmwrite(folder / "whole.mtx", X.astype(np.int64))
    mmwrite(folder / "pattern.mtx", sp.coo_matrix(X > 2))
    return [folder / f"{name}.mtx" for name in ("sparse", "dense", "whole", "pattern")]


def _svmlight(folder):
    from sklearn.datasets import dump_svmlight_file

    X, y = table(n_each=3)
    dump_svmlight_file(X, np.unique(y, return_inverse=True)[1], str(folder / "rows.svmlight"))
    (folder / "many.svmlight").write_text("1,2 qid:3 1:0.5 7:1e3 # a note\n-1 2:4\n\n0 1:1\n")
    return [folder / "rows.svmlight", folder / "many.svmlight"]


def _parquet(folder):
    import pandas as pd

    X, y = table(n_each=3)
    pd.DataFrame(X, columns=[f"w{k}" for k in range(X.shape[1])]).assign(label=y).to_parquet(folder / "table.parquet")
    texts_of = pd.DataFrame(texts(2), columns=["text", "label"]).assign(tags=[["a", "b"]] * 6)
    texts_of.to_parquet(folder / "texts.parquet", row_group_size=4)
    return [folder / "table.parquet", folder / "texts.parquet"]


def _sqlite(folder):
    import sqlite3

    import pandas as pd

    X, y = table(n_each=3)
    for name, frame in (
        ("texts", pd.DataFrame(texts(8), columns=["text", "label"])),
        ("table", pd.DataFrame(X, columns=[f"w{k}" for k in range(X.shape[1])]).assign(label=y)),
    ):
        with contextlib.closing(sqlite3.connect(folder / f"{name}.sqlite")) as base:
            frame.to_sql(name, base, index=False)
    return [folder / "texts.sqlite", folder / "table.sqlite"]


def _zst(folder):
    import pyarrow as pa

    (folder / "t.csv.zst").write_bytes(pa.compress(write_records(folder / "r.csv").read_bytes(), "zstd", asbytes=True))
    (folder / "bomb.csv.zst").write_bytes(pa.compress(b"a," * (1 << 24), "zstd", asbytes=True))
    return [folder / "t.csv.zst", folder / "bomb.csv.zst"]


def _gz(folder):
    (folder / "t.csv.gz").write_bytes(gzip.compress(write_records(folder / "r.csv").read_bytes(), mtime=0))
    return [folder / "t.csv.gz"]


def _xlsx(folder):
    import pandas as pd

    X, y = table(n_each=3)
    pd.DataFrame(X).assign(label=y).to_excel(folder / "table.xlsx", index=False)
    pd.DataFrame(texts(2), columns=["text", "label"]).to_excel(folder / "records.xlsx", index=False)
    return [folder / "table.xlsx", folder / "records.xlsx"]


def _zip(folder):
    write_text_folder(folder / "texts", n_each=1)
    write_image_folder(folder / "images", n_each=1)
    (folder / "records").mkdir()
    write_records(folder / "records" / "a.csv", n_each=1)
    (folder / "records" / "b.jsonl").write_bytes(_jsonl())
    return [zipped(folder / name, folder / f"{name}.zip") for name in ("texts", "images", "records")]


def _tar(compress=bytes, ending="tar"):
    def make(folder):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for k, (text, label) in enumerate(texts(1)):
                info = tarfile.TarInfo(f"{label}/{'long' * 40 if k == 0 else ''}é{k}.txt")
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
        (folder / f"texts.{ending}").write_bytes(compress(packed.getvalue()))
        return [folder / f"texts.{ending}"]

    return make


def _hostile(contents):
    """Files that make libraries start programs, open sockets or read other files."""
    return _written(*((f"hostile.{name}", content) for name, content in contents.items()))


def _pictures(folder):
    grey, color = Image.fromarray(images(1)[0][0]), Image.fromarray(images(1, color=True)[0][0])
    for name, picture, options in (
        ("grey.png", grey, {}),
        ("palette.png", color.quantize(8), {}),
        ("deep.png", Image.fromarray(np.arange(400, dtype=np.uint16).reshape(20, 20)), {}),
        ("photo.jpg", color, {"quality": 60, "progressive": True}),
        ("frames.gif", grey, {"save_all": True, "append_images": [grey]}),
        ("plain.bmp", color, {}),
        ("strips.tif", color, {"compression": "tiff_lzw"}),
        ("lossy.webp", color, {}),
        ("grey.pgm", grey, {}),
        ("whole.jp2", color, {}),
        ("strong.avif", color, {"quality": 40}),
        ("clear.png", color.convert("RGBA"), {}),
    ):
        picture.save(folder / name, **options)
    return sorted(path for path in folder.iterdir()) + _hostile(hostile_media.IMAGES)(folder)


def _use_picture(path):
    """Load a picture of a folder, under the ending of each format: what it is shows in its bytes."""
    from bagwise import open_collection

    for mode in ("grey", "rgb"):
        open_collection(path.parent, modality="images", mode=mode, extensions=(path.suffix,))[0].load()


def _packed_pictures(folder):
    """Archives with a picture each, called .png whatever it is."""
    packed = []
    for path in _pictures(folder):
        packed.append(folder / f"{path.name}.zip")
        with zipfile.ZipFile(packed[-1], "w") as archive:
            archive.write(path, "a.png")
    return packed


def _use_upload(path):
    """Use the bytes as an upload of the explorer, and as a thumbnail of a notebook."""
    from bagwise.app.explorer.pages.search import Upload
    from bagwise.display import thumbnail
    from bagwise.sources.items import Item
    from bagwise.sources.media import ImageDecoder

    content = path.read_bytes()
    Item("query", Upload(content), ImageDecoder("rgb")).load(100)
    thumbnail(content)


def _use_text(path):
    """Load a text file of a folder."""
    from bagwise import open_collection

    open_collection(path.parent, modality="texts", extensions=(path.suffix,))[0].load()


def _use_labels(path):
    """Read a file of labels for a folder of texts."""
    from bagwise import open_collection

    folder = path.parent / "labelled"
    folder.mkdir(exist_ok=True)
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("some text")
    found = open_collection(folder, labels=path)
    assert len(found.labels) == len(found.ids) == len(found)


def _h5ad(folder):
    from bagwise import datasets

    cells = datasets.make_cells(n_samples=12, n_genes=100, random_state=0)
    return [datasets.write_dataset(cells, folder / "cells.h5ad")]


def _use_config(path):
    """Read a configuration file."""
    from bagwise.app import read_config

    read_config(path)


def _config():
    return b'[fit]\ngroups = 20\nC = 1.5\ndescriptor = ["sift", "color"]\nlimits = {rows = 10, table_bytes = "2GB"}\n'


def _use_video(path):
    """Load a video of a folder."""
    from bagwise import open_collection

    open_collection(path.parent, modality="videos", extensions=(path.suffix,))[0].load()


def _videos(folder):
    import av

    frames = [av.VideoFrame.from_ndarray(np.full((32, 48, 3), 80 * k, np.uint8), format="rgb24") for k in range(3)]
    for name in ("v.avi", "v.mkv", "v.mp4"):
        with av.open(str(folder / name), "w") as container:
            stream = container.add_stream("mpeg4", rate=10)
            stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv420p"
            for frame in frames:
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
    return [folder / name for name in ("v.avi", "v.mkv", "v.mp4")] + _hostile(hostile_media.VIDEOS)(folder)


def _use_cache(path):
    """Load an item of a cache whose file has these bytes."""
    import warnings

    from bagwise.descriptors.cache import ArrayCache

    cache = ArrayCache(path.parent / "cache", {"k": 1})
    place = cache._path("item")
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(path.read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cache.load("item")


def _cache(folder):
    from bagwise.descriptors.cache import ArrayCache

    cache = ArrayCache(folder / "cache", {"k": 1})
    cache.save("item", {"values": np.arange(6.0), "names": np.arange(3, dtype=np.int32)})
    return [cache._path("item")]


TARGETS = {
    "model": Target("tensors", ".bagwise", _models, _use_model),
    "runtime": Target("tensors", ".bagwise", _models, _use_runtime),
    "hierarchy": Target("tensors", ".hierarchy", _saved(".hierarchy"), _use_hierarchy),
    "bags": Target("tensors", ".bags", _saved(".bags"), _use_bags),
    "sketch": Target("tensors", ".sketch", _saved(".sketch"), _use_sketch),
    "statistics": Target("tensors", ".statistics", _saved(".statistics"), _use_statistics),
    "bag index": Target("tensors", ".index", _saved("numbers.index", "names.index", "cells.index"), _use_bag_index),
    "item index": Target("tensors", ".index", _saved("items.index", "edited.index"), _use_item_index),
    "topics": Target("tensors", ".topics", _saved(".topics"), _use_topics),
    "manifold": Target("tensors", ".manifold", _saved(".manifold"), _use_manifold),
    "cache": Target("bytes", ".arrays", _cache, _use_cache),
    "csv": Target("text", ".csv", _csv, _use_collection),
    "tsv": Target("text", ".tsv", _written(("t.tsv", b"text\tlabel\nred apple\tx\ngreen\ty\n")), _use_collection),
    "jsonl": Target("text", ".jsonl", _written(("t.jsonl", _jsonl)), _use_collection),
    "lines": Target("text", ".txt", _lines, _use_lines),
    "labels": Target("text", ".csv", _written(("l.csv", b"filename,label\na.txt,x\nb.txt,y\n")), _use_labels),
    "manifest": Target("text", ".csv", _written(("m.csv", _manifest_lines)), _use_collection),
    "manifest lines": Target(
        "text", ".jsonl", _written(("m.jsonl", b'{"url": "a.txt", "label": "x"}\n{"url": "b.txt"}\n')), _use_collection
    ),
    "manifest rows": Target("bytes", ".parquet", _manifests, _use_collection),
    "shards": Target("bytes", ".tar", _shards, _use_shards),
    "npz": Target("zip", ".npz", _npz, _use_collection),
    "mtx": Target("text", ".mtx", _mtx, _use_collection),
    "svmlight": Target("text", ".svmlight", _svmlight, _use_collection),
    "parquet": Target("bytes", ".parquet", _parquet, _use_collection),
    "xlsx": Target("zip", ".xlsx", _xlsx, _use_collection),
    "sqlite": Target("bytes", ".sqlite", _sqlite, _use_collection),
    "csv.gz": Target("gz", ".csv.gz", _gz, _use_collection),
    "csv.zst": Target("bytes", ".csv.zst", _zst, _use_collection),
    "zip": Target("zip", ".zip", _zip, _use_collection),
    "tar": Target("bytes", ".tar", _tar(), _use_collection),
    "tar.gz": Target("gz", ".tar.gz", _tar(lambda inside: gzip.compress(inside, mtime=0), "tar.gz"), _use_collection),
    "tar.bz2": Target("bz2", ".tar.bz2", _tar(bz2.compress, "tar.bz2"), _use_collection),
    "tar.xz": Target("xz", ".tar.xz", _tar(lzma.compress, "tar.xz"), _use_collection),
    "h5ad": Target("bytes", ".h5ad", _h5ad, _use_collection, share=0.01, helped=True),  # a process for each file
    "images": Target("bytes", ".png", _pictures, _use_picture),
    "members of a zip": Target("zip", ".zip", _packed_pictures, _use_collection),
    "uploads": Target("bytes", ".png", _pictures, _use_upload),
    "videos": Target("bytes", ".avi", _videos, _use_video, helped=True),
    "configuration": Target("text", ".toml", _written(("c.toml", _config)), _use_config),
    "group names": Target(
        "text", ".csv", _written(("n.csv", _names_csv), ("o.csv", b"group,name\n0,=1+1\n2,x\n")), _use_group_names
    ),
    "group names in JSON": Target(
        "json",
        ".json",
        _written(("n.json", _names_json), ("o.json", b'{"0": "first", "1": "second"}')),
        _use_group_names,
    ),
    "text": Target(
        "text", ".txt", _written(("t.txt", "naïve café\n".encode()), ("b.txt", b"\xff\xfea\x00b\x00")), _use_text
    ),
}
