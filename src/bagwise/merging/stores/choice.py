"""Which store to use: by what fits into memory, and by how many zeros the data have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bagwise._utils.memory import check_memory, readable_size, resolve_limit
from bagwise.errors import BagwiseError, unknown_name
from bagwise.merging.stores.dense import bytes_of_pairs, check_fits
from bagwise.merging.stores.factored import FactoredStore, bytes_of_blocks
from bagwise.merging.stores.factors import SparseProduct, make_product
from bagwise.merging.structures import Structure

__all__ = ["STORES", "check_store", "choose_store", "make_factored_store"]

STORES = ("auto", "dense", "factored", "sparse")
# Dense data with fewer non-zeros than this share are kept as sparse ones if the matrices of pairs do not fit: they
# take less memory then, and computing a row takes the square of the share in additions.
_FILLED = 1 / 3
# Of each non-zero: its value and its place, by rows and by columns.
_BYTES_A_NON_ZERO = 2 * (8 + 4)


def check_store(name: object, search: str) -> None:
    """Raise if there is no store of this name, or the search cannot work on it."""
    if name not in STORES:
        raise unknown_name("store", name, STORES)
    if search != "bound" and name not in ("auto", "dense"):
        raise BagwiseError(
            f"store={name!r} computes rows when they are needed, which search={search!r} cannot work with. Use "
            "search='bound', or store='dense'."
        )


def choose_store(name: str, X: Any, n_words: int, search: str, memory_limit: int | float | str | None) -> str:
    """Choose between "dense", "factored" and "sparse" for data of which `n_words` columns vary.

    "auto" takes the dense store if it fits, being the fastest; else the sparse one for sparse data, and for dense data
    that are mostly zeros; else the factored one.
    """
    if name == "auto" and search == "bound":
        limit = resolve_limit(memory_limit)
        if limit is None or bytes_of_pairs(n_words, search) <= limit:
            return "dense"
        n_stored = X.nnz if sp.issparse(X) else np.count_nonzero(X)
        is_sparse = sp.issparse(X) or n_stored < _FILLED * X.shape[0] * X.shape[1]
        return "sparse" if is_sparse else "factored"
    if name in ("auto", "dense"):
        others = "use store='sparse' or store='factored', or " if search == "bound" else "use search='bound', or "
        check_fits(n_words, memory_limit, search, others)
        return "dense"
    return name


def make_factored_store(
    kind: str, X: Any, structures: Sequence[Structure], memory_limit: int | float | str | None, n_threads: int = 1
) -> FactoredStore:
    """Set up the store "factored" or "sparse", unless it does not fit.

    A sparse store keeps rows in half of what a given limit leaves; without one, in as much memory as it takes itself.
    """
    n_samples, d = X.shape
    limit = resolve_limit(memory_limit)
    least_beside = bytes_of_blocks(d, room=0)
    if kind == "sparse":
        X = sp.csr_array(X)
        need = _BYTES_A_NON_ZERO * X.nnz
        what = f"The sparse store keeps the {X.nnz} non-zeros of {d} words by rows and by columns"
    else:
        need = 8 * d * sum(structure.n_factor_rows() for structure in structures)
        need += 8 * d * n_samples if sp.issparse(X) else 0  # made dense first
        what = f"The factored store keeps the values of {d} words in {n_samples} samples, once more for some criteria"
    check_memory(need + least_beside, memory_limit, f"{what}, and some rows of the statistics", _advice(kind, d, limit))
    if kind == "factored" and sp.issparse(X):
        X = X.toarray()
    preferred, undesired = (
        [make_product(factor, n_threads) for factor in structure.factors(X)] for structure in structures
    )
    del X
    need = sum(product.n_bytes for product in (*preferred, *undesired))  # graphs can fill sparse data
    check_memory(
        need + least_beside, memory_limit, f"{what}, and what the criterion makes of them", _advice(kind, d, limit)
    )
    room = np.inf if limit is None else (limit - need) / 2
    room_for_rows = room if memory_limit is not None else min(room, need)
    sparse = [product for product in (*preferred, *undesired) if isinstance(product, SparseProduct)]
    for product in sparse:
        product.kept.n_bytes = room_for_rows / len(sparse)
    return FactoredStore(preferred, undesired, d, room)


def _advice(kind: str, n_words: int, limit: int | None) -> str:
    need = bytes_of_pairs(n_words)
    dense = f"use store='dense', which takes {readable_size(need)}, or " if limit is None or need <= limit else ""
    if kind == "factored":
        return f"{dense}use store='sparse' if there are many zeros, or fewer samples"
    return f"{dense}merge fewer words, for example after dropping the rarest ones"
