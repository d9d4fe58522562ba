"""A table of counts like those of single-cell sequencing."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import Bunch

from bagwise._utils.checks import check_integer, generator
from bagwise.datasets.photos import even_classes

__all__ = ["make_cells"]

# Genes that go together, by what they are known for. Only names are real, the counts are not measured.
_MODULES = {
    "T cell receptor": "CD3D CD3E CD3G CD2 TRAC TRBC1 TRBC2 IL7R CD5 LCK",
    "B cell": "MS4A1 CD79A CD79B CD19 CD22 BANK1 PAX5 BLK CD37 VPREB3",
    "cytotoxic": "NKG7 GNLY GZMA GZMB PRF1 KLRD1 CST7 CCL5 FGFBP2 CTSW",
    "CD8": "CD8A CD8B GZMK LAG3 CRTAM CD27",
    "helper": "CD4 CCR7 LEF1 TCF7 MAL LTB",
    "monocyte": "LYZ S100A8 S100A9 CD14 FCN1 VCAN CTSS CSF1R MS4A7 AIF1",
    "dendritic": "FCER1A CLEC10A CD1C ITGAX CLEC9A XCR1 BATF3 FLT3",
    "antigen presentation": "HLA-DRA HLA-DRB1 HLA-DPA1 HLA-DPB1 HLA-DQA1 CD74 CIITA",
    "platelet": "PPBP PF4 GP9 ITGA2B TUBB1 GNG11 CLU SPARC",
    "interferon response": "ISG15 IFI6 IFIT1 IFIT3 MX1 OAS1 IFI44L STAT1",
    "cell cycle": "MKI67 TOP2A CDK1 CCNB1 PCNA MCM5 TYMS BIRC5",
    "ribosome": "RPL3 RPL13 RPL32 RPS6 RPS12 RPS27 RPLP0 RPLP1",
}
_TYPES = {
    "B cell": ("B cell", "antigen presentation"),
    "CD4 T cell": ("T cell receptor", "helper"),
    "CD8 T cell": ("T cell receptor", "CD8", "cytotoxic"),
    "NK cell": ("cytotoxic",),
    "dendritic cell": ("dendritic", "antigen presentation"),
    "monocyte": ("monocyte", "antigen presentation"),
    "platelet": ("platelet",),
}
# Modules that are active in some cells of every type, and in all of them.
_ANYWHERE, _EVERYWHERE = ("interferon response", "cell cycle"), ("ribosome",)
_ACTIVE, _SPREAD = 0.25, 0.5  # part of cells; standard deviation of the logarithm of how active a module is
_TOTAL, _TOTAL_SPREAD = 600, 0.35  # counts of a cell, and their spread
_FOLD = 8.0  # rates in active cells over those in others
_DISPERSION = 0.4  # the variance of a count is its mean plus this times the square of its mean


def make_cells(n_samples: int = 700, *, n_genes: int = 500, random_state: Any = 0, return_X_y: bool = False) -> Any:
    """Draw counts of genes in cells of seven types of blood, as single-cell sequencing gives them.

    Counts are negative binomial and mostly 0. Genes belong to twelve modules that rise and fall together, such as the
    B cell receptor or the cell cycle; a cell type is known by the modules that are active in it, and two modules are
    active in some cells of all types. Other genes belong to no module. Names of genes are real, numbers are not.

    Parameters
    ----------
    n_samples : int, default=700
        Number of cells, as many of each type.
    n_genes : int, default=500
        Number of genes, at least those of modules (99).
    random_state : int, Generator, RandomState or None, default=0
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    cells : Bunch
        - data : CSR array of shape (n_samples, n_genes), int32
        - target : int array of shape (n_samples,)
        - target_names : list of str, the cell types
        - feature_names : list of str, the genes
        - modules : int array of shape (n_genes,), the module of each gene, -1 for none
        - module_names : list of str
        - DESCR : str

    See Also
    --------
    write_dataset : Writes them as files, among them ``.h5ad`` for AnnData.

    Examples
    --------
    >>> from bagwise import WordMerger
    >>> from bagwise.datasets import make_cells
    >>> cells = make_cells()
    >>> cells.data.shape, cells.target_names[0], cells.feature_names[:3]
    ((700, 500), 'B cell', ['CD3D', 'CD3E', 'CD3G'])
    >>> merger = WordMerger(20).fit(cells.data, cells.target)
    >>> merger.transform(cells.data).shape
    (700, 20)
    """
    known = [gene for genes in _MODULES.values() for gene in genes.split()]
    n_samples = check_integer(n_samples, "n_samples", 1)
    n_genes = check_integer(n_genes, "n_genes", len(known), 1_000_000)
    rng = generator(random_state)
    names = list(_MODULES)
    sizes = [len(genes.split()) for genes in _MODULES.values()]
    modules = np.full(n_genes, -1)
    modules[: len(known)] = np.repeat(np.arange(len(names)), sizes)
    target = even_classes(n_samples, len(_TYPES))
    active = np.zeros((len(_TYPES), len(names)), bool)
    for k, active_modules in enumerate(_TYPES.values()):
        active[k, [names.index(name) for name in (*active_modules, *_EVERYWHERE)]] = True
    on = active[target]
    anywhere = [names.index(name) for name in _ANYWHERE]
    on[:, anywhere] = rng.random((n_samples, len(anywhere))) < _ACTIVE
    folds = np.where(on, rng.lognormal(np.log(_FOLD), _SPREAD, on.shape), 1.0)
    base = rng.lognormal(-1.0, 1.0, n_genes)
    totals = rng.lognormal(np.log(_TOTAL), _TOTAL_SPREAD, n_samples)
    rows = []
    for cell in range(n_samples):
        rates = base.copy()
        rates[: len(known)] *= np.repeat(folds[cell], sizes)
        means = totals[cell] * rates / rates.sum()
        rows.append(sp.csr_array(rng.poisson(rng.gamma(1 / _DISPERSION, _DISPERSION * means)).astype(np.int32)[None]))
    data = sp.csr_array(sp.vstack(rows, format="csr"))
    if return_X_y:
        return data, target
    genes = [*known, *(f"GENE{number:04}" for number in range(1, n_genes - len(known) + 1))]
    about = f"Counts of {n_genes} genes in {n_samples} cells of {len(_TYPES)} types; synthetic, made by bagwise."
    return Bunch(
        data=data,
        target=target,
        target_names=list(_TYPES),
        feature_names=genes,
        modules=modules,
        module_names=names,
        DESCR=about,
    )
