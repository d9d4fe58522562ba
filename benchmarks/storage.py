"""Sources of many items: manifests, and features written while items are read; seconds and memory.

    python benchmarks/storage.py                    # up to 10,000,000 rows, some minutes
    python benchmarks/storage.py --rows 100000      # to see that it works
    python benchmarks/storage.py --old SRC          # opening alone, beside another version: its folder src

Each figure is of a process of its own; memory is the growth at its peak. Peers: pandas, which holds the whole table,
and `Model.transform`, which holds all features.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import PeakMemory, in_fresh_process, machine, print_table, print_targets, timed

_GROUP = 1 << 16


def write_rows(path: Path, n: int) -> None:
    """Write a manifest of n objects in 1000 classes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ("id", "url", "label", "split")
    schema = pa.schema([*((name, pa.string()) for name in names), ("size", pa.int64())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, n, _GROUP):
            numbers = range(start, min(n, start + _GROUP))
            ids = [f"train/class{k % 1000:04}/{k:09}.jpg" for k in numbers]
            columns = ids, [f"s3://bucket/photos/{id}" for id in ids], [id[6:15] for id in ids], ["train"] * len(ids)
            arrays = [*map(pa.array, columns), pa.array([100_000 + k % 777 for k in numbers], pa.int64())]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def opened(path: str) -> dict[str, Any]:
    """Open a manifest, divide it, and read the items of a partition."""
    import pyarrow.compute  # noqa: F401 - its memory is none of the manifest

    from bagwise import open_collection

    with PeakMemory() as memory:
        seconds, found = timed(lambda: open_collection(path))
        n = len(found)
        parts_seconds, parts = timed(lambda: found.partitions(1000))
        sent = max(len(pickle.dumps(part)) for part in (parts[0], parts[500], parts[-1]))
        part_seconds, _ = timed(lambda: [item.id for item in pickle.loads(pickle.dumps(parts[500])).open()])
    return {
        "what": "open_collection",
        "rows": n,
        "seconds": seconds,
        "MB": memory.growth / 1e6,
        "bytes": memory.growth / n,
        "divide": parts_seconds,
        "sent": sent,
        "part": part_seconds,
    }


def held(path: str) -> dict[str, Any]:
    """Read the same file by pandas."""
    import pandas as pd

    with PeakMemory() as memory:
        seconds, found = timed(lambda: pd.read_parquet(path))
    n = len(found)
    return {"what": "pandas", "rows": n, "seconds": seconds, "MB": memory.growth / 1e6, "bytes": memory.growth / n}


def transformed(path: str, model: str, out: str | None) -> dict[str, Any]:
    """Write features while texts are read, or compute all of them."""
    from bagwise import Model, open_collection
    from bagwise.app.model import write_features

    loaded, texts = Model.load(model), open_collection(path)
    loaded.transform(texts[:10])
    if out is not None:
        write_features(loaded, texts[:10], f"{out}-first" if not out.endswith(".parquet") else f"{out}.first.parquet")
    with PeakMemory() as memory:
        seconds, _ = timed(
            lambda: loaded.transform(texts) if out is None else write_features(loaded, texts, out, rows_per_part=1024)
        )
    what = "Model.transform" if out is None else f"write_features, {'file' if out.endswith('.parquet') else 'parts'}"
    return {"what": what, "rows": len(texts), "seconds": seconds, "MB": memory.growth / 1e6}


def opening(path: str, small: str, src: str | None) -> dict[str, Any]:
    """Open a source with its labels, after a small one of its kind; `src` has another version of the library."""
    if src is not None:
        sys.path.insert(0, src)
    from bagwise import open_collection

    len(open_collection(small).labels)
    with PeakMemory() as memory:
        started = time.process_time()
        n = len(open_collection(path).labels)
        seconds = time.process_time() - started
    return {"what": Path(path).name, "rows": n, "cpu": seconds, "MB": memory.growth / 1e6}


def _opened_beside(folder: str, most: int, old: str) -> list[dict[str, Any]]:
    """Open texts of a CSV file, files in folders and manifests with this version and another one, three times each."""
    for name, n in (("small", 100), ("large", most)):
        lines = (f"text {k} of {k % 997} words {k % 991},class{k % 10}" for k in range(n))
        Path(folder, f"{name}.csv").write_text("\n".join(["text,label", *lines]))
        for k in range(n // 10):
            file = Path(folder, name, f"class{k % 100}", f"{k}.txt")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("a text")
        write_rows(Path(folder, f"{name}.parquet"), n)
        lines = (f"train/{k:09}.jpg,s3://bucket/photos/{k:09}.jpg,class{k % 1000}" for k in range(n))
        Path(folder, f"{name}-manifest.csv").write_text("\n".join(["id,url,label", *lines]))
    rows = []
    for end in (".csv", "", ".parquet", "-manifest.csv"):
        small, large = (str(Path(folder, f"{name}{end}")) for name in ("small", "large"))
        runs = [
            in_fresh_process(__file__, "opening", path=large, small=small, src=src)
            for _ in range(3)
            for src in (old, None)
        ]
        for version, some in (("other", runs[::2]), ("this", runs[1::2])):
            best = {name: min(run[name] for run in some) for name in ("cpu", "MB")}
            rows.append({"what": f"large{end}", "version": version, "rows": some[0]["rows"], **best})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the largest manifest")
    parser.add_argument("--old", help="folder src of another version, beside which sources are opened")
    chosen = parser.parse_args()
    print(json.dumps(machine()))
    with tempfile.TemporaryDirectory() as folder:
        if chosen.old is not None:
            heads = {"what": "", "version": "version", "rows": "rows", "cpu": "CPU s", "MB": "MB at the peak"}
            print_table(_opened_beside(folder, min(chosen.rows, 1_000_000), chosen.old), heads)
            return
        rows = []
        for n in (chosen.rows // 10, chosen.rows):
            path = Path(folder, "manifest.parquet")
            write_rows(path, n)
            print(f"{n:,} rows: {path.stat().st_size / 1e6:.0f} MB of Parquet")
            rows += [in_fresh_process(__file__, name, path=str(path)) for name in ("opened", "held")]
        heads = {"what": "", "rows": "rows", "seconds": "seconds", "MB": "MB at the peak", "bytes": "bytes per row"}
        heads |= {"divide": "s to divide", "sent": "bytes of a partition", "part": "s to open one"}
        print_table(rows, heads)
        print_targets([("memory of a manifest over that of pandas", rows[2]["MB"] / rows[3]["MB"], "<=", 0.5)])
        print_table(
            _written(folder, chosen.rows), {"what": "", "rows": "texts", "seconds": "s", "MB": "MB at the peak"}
        )


def _written(folder: str, most: int) -> list[dict[str, Any]]:
    """Compare features that are written while texts are read with those that are held, for two numbers of texts."""
    from bagwise import fit_model

    rows = []
    for n in (min(most // 10, 40_000) // 4, min(most // 10, 40_000)):
        path = Path(folder, f"texts-{n}.csv")
        lines = (f"word{k % 997} word{k % 991} thing{k % 13} {'ab'[k % 2]},{'xy'[k % 2]}" for k in range(n))
        path.write_text("\n".join(["text,label", *lines]))
        model = Path(folder, "texts.bagwise")
        if not model.exists():
            small = Path(folder, "small.csv")
            small.write_text("".join(path.read_text().splitlines(keepends=True)[:2001]))
            fit_model(small, n_groups=200, folds=0).save(model)
        for out in (str(Path(folder, f"parts-{n}")), str(Path(folder, f"features-{n}.parquet")), None):
            rows.append(in_fresh_process(__file__, "transformed", path=str(path), model=str(model), out=out))
    return rows


if __name__ == "__main__":
    main()
