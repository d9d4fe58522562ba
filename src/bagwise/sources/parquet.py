"""Parquet files, read within limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bagwise._utils.extras import require
from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError
from bagwise.sources.contents import File, FileContent, UrlContent
from bagwise.sources.limits import Limits

__all__ = ["opened_parquet"]


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
