"""Genes of AnnData into groups: what was found is written into the object, as functions of scanpy do."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.errors import BagwiseError
from bagwise.merging.word_merger import WordMerger
from bagwise.sources.frames import anndata_matrix, frame_columns
from bagwise.sources.roles import shortened

__all__ = ["merge_genes"]


def merge_genes(
    adata: Any,
    obs: str | None = None,
    n_groups: int = 50,
    *,
    layer: str | None = None,
    mask_var: str | None = None,
    key: str = "bagwise",
    **parameters: Any,
) -> WordMerger:
    """Merge genes into groups by `WordMerger`, and write them into an AnnData.

    Counts and normalised counts are fine, sparse or dense, also of an AnnData that is backed by a file.

    Parameters
    ----------
    adata : AnnData
        Cells by genes. It is changed: ``adata.var[key]`` has the group of each gene, as a categorical column;
        ``adata.obsm["X_" + key]`` the sum of each group in each cell; ``adata.uns[key]`` the hierarchy (`merges` and
        `scores`, for `bagwise.Hierarchy`), the names of groups, the genes that were merged, and parameters.
    obs : str, default=None
        Column of ``adata.obs`` with the classes that groups should tell apart, such as "cell_type". None: genes are
        merged without classes.
    n_groups : int, default=50
        Number of groups.
    layer : str, default=None
        Layer with the counts; None: ``adata.X``.
    mask_var : str, default=None
        Boolean column of ``adata.var``, such as "highly_variable": other genes are left out, and have no group.
    key : str, default="bagwise"
        Name of what is written.
    **parameters
        Other parameters of `WordMerger`, such as ``criterion="csm"``.

    Returns
    -------
    merger : WordMerger
        Fitted; ``merger.cut(20)`` gives other numbers of groups without fitting again.

    See Also
    --------
    bagwise.fit_model : ``fit_model(adata, label="cell_type")`` also trains classifiers, and chooses `n_groups`.

    Examples
    --------
    >>> import anndata  # doctest: +SKIP
    >>> from bagwise.anndata import merge_genes
    >>> adata = anndata.read_h5ad("cells.h5ad")  # doctest: +SKIP
    >>> merger = merge_genes(adata, obs="cell_type", n_groups=20)  # doctest: +SKIP
    >>> adata.var["bagwise"].value_counts()  # doctest: +SKIP
    """
    merger = WordMerger(n_groups, **parameters)
    if not all(hasattr(adata, name) for name in ("obs", "var", "layers", "X", "uns", "obsm")):
        raise BagwiseError(f"adata must be an AnnData, got {type(adata).__name__}. Arrays go into WordMerger.fit.")
    if layer == "raw":
        raise BagwiseError('Groups of layer "raw" have no place in adata.var. Use adata.raw.to_adata() first.')
    y = None if obs is None else _classes(adata, obs)
    X, names = anndata_matrix(adata, layer)
    used = np.arange(len(names)) if mask_var is None else _used(adata, mask_var)
    X = X if mask_var is None else X[:, used]
    merger.fit(X, y)
    merged = [names[k] for k in used.tolist()]
    _write(adata, key, merger, X, used, merged, {"obs": obs, "layer": layer, "mask_var": mask_var})
    return merger


def _classes(adata: Any, obs: str) -> Any:
    if obs not in frame_columns(adata):
        raise BagwiseError(f"adata.obs has no column {obs!r}; there are {shortened(frame_columns(adata))}.")
    missing = int(adata.obs[obs].isna().sum())
    if missing:
        raise BagwiseError(f"{missing} cells have no {obs!r}. Leave them out: adata[adata.obs[{obs!r}].notna()].copy()")
    return np.asarray(adata.obs[obs].astype(str))


def _used(adata: Any, mask_var: str) -> Any:
    if mask_var not in adata.var.columns or adata.var[mask_var].dtype.kind != "b":
        raise BagwiseError(f"mask_var must be a boolean column of adata.var, got {mask_var!r}.")
    return np.flatnonzero(np.asarray(adata.var[mask_var]))


def _write(
    adata: Any, key: str, merger: WordMerger, X: Any, used: Any, merged: list[str], sources: dict[str, str | None]
) -> None:
    import pandas as pd  # AnnData has it

    numbers = np.full(adata.var.shape[0], -1)
    numbers[used] = merger.labels_
    groups = [str(k) for k in range(int(merger.labels_.max()) + 1)]
    features = merger.transform(X)
    names = np.asarray(merger.get_feature_names_out(merged), dtype=str)
    adata.var[key] = pd.Categorical.from_codes(numbers, groups)
    adata.obsm[f"X_{key}"] = np.asarray(features.toarray() if hasattr(features, "toarray") else features)
    adata.uns[key] = {
        "params": {name: value for name, value in sources.items() if value is not None},
        "criterion": merger.criterion_,
        "merges": merger.hierarchy_.merges,
        "scores": merger.scores_,
        "genes": np.array(merged, dtype=str),
        "names": names,
    }
