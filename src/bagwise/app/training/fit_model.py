"""`fit_model`, whose signature for editors is in ``fit_model.pyi``, written by ``make options``."""

from __future__ import annotations

from typing import Any

from bagwise.app.declaring import takes_options
from bagwise.app.modalities.vectorizers import Progress
from bagwise.app.model import Model
from bagwise.app.options import FitOptions
from bagwise.app.training.fit import run_fit
from bagwise.errors import BagwiseError

__all__ = ["fit_model"]


@takes_options(FitOptions)
def fit_model(
    source: Any,
    *,
    add: Any = None,
    client: Any = None,
    progress: Progress | None = None,
    **options: Any,
) -> Model:
    r"""Learn a vocabulary, merge its words into groups, and train a classifier on the groups.

    1. Words are learned by k-means from descriptors of images or videos, or are the words of texts, or the columns of a
       table. A source with splits train and test is learned from its split train. Of more than 5000 images, or 500
       videos, as many are chosen by hashes of their ids to learn words from, unless these have fewer than 100,000
       descriptors; words are counted in all.
    2. They are merged level by level; see `merge_words`.
    3. If there are classes, there are linear classifiers at several sizes along the merging path, and the errors of
       all sizes are estimated by cross-validation, with one hierarchy per fold. (Words of images and weights of words
       are learned once, without using classes.) With the criterion "classifier" they are fitted to the scores of an SVM
       on all words, otherwise they are SVMs on groups.

    Words of texts have sublinear TF-IDF weights. Words of images and tables are L1 normalised, and square roots are
    taken after their groups are summed, or before (`root`).

    Parameters
    ----------
    source : Collection or path
        See `open_collection`.
    %(options)s
    add : ItemIndex, default=None
        An index of other items, or of some of those of the source: the words of its model are kept, and of images and
        videos those of its items, so that only new ones are described. Groups, classifiers and errors are learned
        from all items. Options of words are those of the model.
    client : distributed.Client, default=None
        Workers of this Dask cluster read, describe and count the items, and cross-validate. The model is the same.
        Needs ``bagwise[dask]``.
    progress : callable, default=None
        Called with the name of a step, the number of items done, and the number of all items (0: unknown).

    Returns
    -------
    model : Model
        Its ``fit_`` has the training data, times and notes, until it is saved; `Model.report` shows them.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bagwise import fit_model
    >>> texts = {"fruit": ["ripe apple", "ripe pear", "sweet pear", "sweet apple"],
    ...          "tools": ["steel hammer", "steel saw", "sharp saw", "heavy hammer"]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "things.csv")
    ...     rows = [f"{text},{label}" for label, some in texts.items() for text in some]
    ...     _ = path.write_text("text,label\n" + "\n".join(rows))
    ...     model = fit_model(path, n_groups=2, folds=2, min_count=1)
    >>> model.predict(["sweet ripe pear", "sharp steel"]).tolist()
    ['fruit', 'tools']
    """
    if add is not None and not hasattr(add, "known_items"):
        raise BagwiseError(f"add must be an index, as ItemIndex.load(PATH) gives; got {type(add).__name__}.")
    known = None if add is None else add.known_items()
    return run_fit(source, FitOptions(**options), add=known, progress=progress, client=client).model
