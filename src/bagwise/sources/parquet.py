"""Parquet files, read within limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError
from bagwise.sources.contents import File, FileContent, UrlContent
from bagwise.sources.limits import Limits

__all__ = ["ParquetTable", "opened_parquet"]

# Rows that are decoded at a time: between them the memory is compared with the limit.
_ROWS = 1 << 14


@contextmanager
def opened_parquet(path: str | File, limits: Limits, **options: Any) -> Iterator[Any]:
    """Open a file, and check what it says of its rows and columns; all that pyarrow raises is an error of ours."""
    if isinstance(path, UrlContent):
        with path.open() as remote, opened_parquet(remote, limits, **options) as file:  # type: ignore[arg-type]
            yield file
        return
    path = path.path if isinstance(path, FileContent) else path
    parquet, arrow = (require(name, "app", "Reading Parquet files") for name in ("pyarrow.parquet", "pyarrow"))
    try:
        with parquet.ParquetFile(path, pre_buffer=False, **options) as file:
            about = file.metadata
            n_rows, groups = about.num_rows, [about.row_group(k) for k in range(about.num_row_groups)]
            if sum(group.num_rows for group in groups) != n_rows or any(group.num_rows < 0 for group in groups):
                raise BagwiseError(f"it is damaged: it claims {n_rows} rows, which its parts do not have.")
            limits.check("columns", about.num_columns, f"it has {about.num_columns:,} columns")
            limits.check("rows", n_rows, f"it claims {n_rows:,} rows")
            n_bytes = max(8 * n_rows * about.num_columns, sum(group.total_byte_size for group in groups))
            limits.check("table_bytes", n_bytes, f"it claims {readable_size(n_bytes)}")
            yield file
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BagwiseError(f"it is not a Parquet file, or damaged: {error}") from error


@dataclass(frozen=True)
class ParquetTable:
    """The columns of a Parquet file; strings are held once each.

    Attributes
    ----------
    table : pyarrow.Table
    nested : list of str
        Names of columns of lists and the like, which are not read.
    """

    table: Any
    nested: list[str]

    @classmethod
    def read(cls, path: str, limits: Limits) -> ParquetTable:
        """Read a file whose claims and whose memory are within the limits."""
        arrow = require("pyarrow", "app", "Reading Parquet files")
        types = arrow.types
        with opened_parquet(path, limits) as file:
            fields = list(file.schema_arrow)
        strings = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
        texts = [field.name for field in fields if any(is_kind(field.type) for is_kind in strings)]
        nested = [field.name for field in fields if types.is_nested(field.type)]
        chosen = [field.name for field in fields if field.name not in nested] if nested else None
        batches: list[Any] = []
        n_bytes = 0
        with opened_parquet(path, limits, read_dictionary=texts) as file:
            for batch in file.iter_batches(_ROWS, columns=chosen):
                batch.validate(full=True)
                batches.append(batch)
                n_bytes += batch.nbytes
                limits.check("table_bytes", n_bytes, f"its first rows take {readable_size(n_bytes)}")
            schema = batches[0].schema if batches else file.schema_arrow
            return cls(arrow.Table.from_batches(batches, schema), nested)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.table.column_names)

    def kinds(self) -> tuple[list[int], list[int], list[str]]:
        """Return the numbers of the columns of text and of numbers, and the type of each column."""
        types = require("pyarrow", "app", "Reading Parquet files").types
        kinds = [field.type for field in self.table.schema]
        texts = [i for i, kind in enumerate(kinds) if types.is_dictionary(kind)]
        numbers = [i for i, k in enumerate(kinds) if types.is_integer(k) or types.is_floating(k) or types.is_boolean(k)]
        return texts, numbers, list(map(str, kinds))

    def column(self, i: int, write: Callable[[Any], str] = str) -> list[str]:
        """Return a column as strings, equal ones as one object; nothing is an empty one."""
        found: list[str] = []
        same: dict[str, str] = {}
        for chunk in self.table.column(i).chunks:
            if hasattr(chunk, "dictionary"):
                known = ["" if value is None else write(value) for value in chunk.dictionary.to_pylist()]
                known = [same.setdefault(one, one) for one in known]
                places = chunk.indices.to_pylist()
                found += ["" if place is None else known[place] for place in places]
            else:
                found += ["" if value is None else write(value) for value in chunk.to_pylist()]
        return found

    def values(self, i: int) -> NDArray[np.float64]:
        """Return a column of numbers."""
        return np.asarray(self.table.column(i).to_numpy(), dtype=np.float64)
