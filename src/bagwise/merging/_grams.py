"""Sums of products of words over samples, ``Σ_i (x_i - c)(x_i - c)ᵀ``, and moving the point c they are taken around.

Dense samples give a dense symmetric matrix; sparse ones the upper triangle as a CSR array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.merging._scatter import add_gram, mirror, row_blocks

Gram = Any  # a dense symmetric float64 array, or the upper triangle as a CSR array


def gram_around(X: Any, centre: NDArray[np.float64]) -> tuple[Gram, NDArray[np.float64]]:
    """Sum up the products of words around a point, and the samples less that point.

    Where X is sparse, `centre` must be zero for words that are not stored in every sample.
    """
    if sp.issparse(X):
        moved = sp.csr_array((X.data - centre[X.indices], X.indices, X.indptr), shape=X.shape)
        return sp.csr_array(sp.triu(moved.T @ moved, format="csr")), np.asarray(moved.sum(axis=0)).ravel()
    out, sums = np.zeros((X.shape[1], X.shape[1])), np.zeros(X.shape[1])
    is_moved = bool(centre.any())
    for rows in row_blocks(*X.shape):
        block = X[rows] - centre if is_moved else X[rows]
        sums += block.sum(axis=0)
        add_gram(out, block)
    mirror(out)
    return out, sums


def move_centre(
    gram: Gram, step: NDArray[np.float64], sums: NDArray[np.float64], exact: NDArray[np.bool_], n_samples: int
) -> tuple[Gram, NDArray[np.float64]]:
    """Sum up around the point ``centre + step`` instead.

    Parameters
    ----------
    gram : ndarray or CSR array of shape (n_words, n_words)
        Products around the old centre; not written to.
    step : ndarray of shape (n_words,)
    sums : ndarray of shape (n_words,)
        Sums of the samples less the old centre.
    exact : ndarray of bool, shape (n_words,)
        Words whose samples, centre and step are whole numbers; sums of products of two of them stay exact.
    n_samples : int

    Returns
    -------
    gram, sums
        Around the new centre.
    """
    if n_samples == 0 or not step.any():
        return gram, sums
    if sp.issparse(gram):
        return _move_sparse(gram, step, sums, exact, n_samples), sums - n_samples * step
    from bagwise.merging._gram_kernels import move_upper_triangle

    out = gram.copy()
    move_upper_triangle(out, step, sums, exact, n_samples)
    mirror(out)
    return out, sums - n_samples * step


def _move_sparse(
    gram: sp.csr_array,
    step: NDArray[np.float64],
    sums: NDArray[np.float64],
    exact: NDArray[np.bool_],
    n_samples: int,
) -> sp.csr_array:
    """Do the same for a sparse triangle, entry by entry of those that are there or come up."""
    moving = sp.csr_array((step != 0)[np.newaxis])
    changing = sp.csr_array(((step != 0) | (sums != 0))[np.newaxis])
    new = sp.triu(moving.T @ changing + changing.T @ moving, format="coo")
    old = gram.tocoo()
    rows, columns = np.concatenate([old.row, new.row]), np.concatenate([old.col, new.col])
    values = np.concatenate([old.data, np.zeros(new.nnz)])
    moved = sp.coo_array((values, (rows, columns)), shape=gram.shape).tocsr()  # adds up what stands twice
    i, j = moved.tocoo().coords
    both = exact[i] & exact[j]
    moved.data[~both] += _change(i[~both], j[~both], step, sums, n_samples)
    whole_step, whole_sums = (np.where(exact, numbers, 0).astype(np.int64) for numbers in (step, sums))
    change = _change(i[both], j[both], whole_step, whole_sums, n_samples)
    moved.data[both] = moved.data[both].astype(np.int64) + change
    moved.eliminate_zeros()
    return moved


def _change(
    i: NDArray[np.intp], j: NDArray[np.intp], step: NDArray[Any], sums: NDArray[Any], n_samples: int
) -> NDArray[Any]:
    """What moving the centre by `step` adds to the entries (i, j); in integers if step and sums are."""
    return n_samples * step[i] * step[j] - step[i] * sums[j] - sums[i] * step[j]
