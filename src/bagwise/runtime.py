"""Load saved models with NumPy alone: from descriptors or counts to features and classes, on any device.

This file needs only NumPy and the standard library, so that it can be copied to where bagwise is not installed:

>>> import tempfile
>>> from bagwise import Hierarchy, Model, runtime   # or: import runtime, from a copy of this file
>>> saved = Model(modality="table", hierarchy=Hierarchy(3, [[0, 2]], [1.0]), n_groups=2, normalize=())
>>> model = runtime.load(saved.save(tempfile.mkdtemp() + "/table.bagwise"))
>>> model.transform_counts([3, 4, 5])
array([8., 4.], dtype=float32)

Models with words of a network take images: ``model.predict_images(image)`` runs the network by ONNX Runtime, for which
``runtime_network.py`` has to lie beside a copy of this file.

Features equal those of `bagwise.Model` up to rounding. Nearest words are found in float32: where squared distances to
two words differ by about a millionth of the squared lengths, a count may move from one word to the other.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import json
import math
import os
import re
import zlib
from typing import Any

import numpy as np

__all__ = ["ModelFileError", "RuntimeModel", "load", "read_model_file"]

KIND, SCHEMA = "bagwise.Model", 1
ITEMS, STEPS = ("images", "videos", "texts", "table"), ("l1", "power", "l2")
TERMS, NORMS = ("count", "log", "sqrt"), (None, "l1", "l2")
LAYOUT = ("vocabulary_size", "n_words", "classes", "heads", "pyramid", "normalize")
ABOUT = ("kind", "schema", "library", "items", "criterion", "descriptor", "tokenizer", "path", "options", "provenance")
# Members of headers that may be left out, and what they are then.
OPTIONAL: dict[str, Any] = {"term": "count", "norm": None, "vocabularies": None, "weight_range": None}
OPTIONAL |= {"calibration": None, "group_names": None, "flattened": None, "unedited": None, "assignment": None}
OPTIONAL |= {"network": None}
UNUSED = ("edits", "unedited_", "statistics")  # names of arrays that only the library reads, and checks, begin so
TYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "|u1", "U16": "<u2", "I8": "|i1", "F16": "<f2"}
SUM = "crc32."  # names of checksums in the metadata begin so
# Bits of hashes of words, of which files have the lower ones; codes of weights; the default of token_pattern.
HASH_BITS, LOW_BITS, N_WEIGHTS, PATTERN = 24, 16, 256, r"(?u)\b\w\w+\b"
TOKENIZER = {"analyzer", "binary", "lowercase", "ngram_range", "stop_words", "strip_accents", "token_pattern"}
# Limits far above real models, within which a model fits in memory: bytes of a header; cells; groups; cells times
# words, if there are several cells; words; vocabularies.
MOST_HEADER, MOST_CELLS, MOST_GROUPS, MOST_TABLE, MOST_WORDS = 1 << 22, 1 << 10, 1 << 20, 1 << 25, (1 << 31) - 1
MOST_VOCABULARIES = 16
NETWORK_SIZES = (2_939_120, 3_350_000)  # numbers of an embedded network, without and with its last convolution
MOST_NEIGHBORS = 1000  # words that a descriptor is assigned to
MOST_PARTS = 1 << 20  # signs in a header that begin a value, or look so: these take memory
DEEPEST, LONGEST_NAME = 64, 10_000  # lists and objects inside each other in a header; characters of a class
# Token patterns that are loaded from any file: one or more of these characters, or a number of them; words with
# apostrophes and hyphens inside; each with or without (?u) and borders of words. They find all tokens in linear time.
CHARACTERS = (r"\w", r"\S", r"[^\s]", r"[a-z]", r"[A-Za-z]", r"[a-zA-Z]", r"[^\W\d_]", r"[\w']", r"[\w-]", r"[\w'-]")
COMPOUNDS = (r"\w+(?:'\w+)?", r"\w+(?:-\w+)*", r"\w+(?:'\w+)*", r"\w+(?:['-]\w+)*", r"\w+(?:[-']\w+)*")
ACCEPTED = re.compile(
    r"(?:\(\?u\))?(?P<border>\\b)?(?:(?P<one>{})(?:(?P=one)?\+|\{{[1-9]\d?,(?:[1-9]\d?)?\}})|{})(?(border)\\b)".format(
        *("|".join(map(re.escape, patterns)) for patterns in (CHARACTERS, COMPOUNDS))
    )
)
BLOCK_ROWS, LARGEST = 256, 1e16  # descriptors per block, so that distances stay in cache; squares fit in float32
MOST_STEP, SCALES = 127, (1e-30, 1e13)  # of words and heads of 8 bits: the largest integer; smallest and largest scale


class ModelFileError(ValueError):
    """Raised for files that are not valid models, and for input that does not fit a model."""


def load(source: Any, *, trust_pattern: bool = False, network: Any = None) -> RuntimeModel:
    """Read a model from a path or from the bytes of a file: checked, memory-mapped, without running code.

    A ``token_pattern`` that is not among the `ACCEPTED` ones is refused, unless `trust_pattern` is true. `network` is
    what describes images where the file does not hold it: the path of an ONNX file, or of a model that holds it, or its
    tensors by name. No path in a file is ever opened.
    """
    header, tensors = read_model_file(source)
    try:
        model = RuntimeModel(header, tensors, network)
        if header["items"] == "texts" and not trust_pattern:
            check_pattern(header["tokenizer"])
        return model
    except ModelFileError as error:
        raise ModelFileError(f"{name_of(source)} cannot be read as a model: {error}") from error


class RuntimeModel:
    """A model read by `load`; see `bagwise.Model` for what it computes.

    Attributes
    ----------
    header : dict
        The header of the file.
    classes : list of str
    n_groups : int
        Number of groups: features per cell of the pyramid.
    """

    def __init__(self, header: dict[str, Any], tensors: dict[str, np.ndarray], network: Any = None) -> None:
        self._network: Any = tensors.get("network") if network is None else network
        self._running: Any = None
        self.header, self.classes, self.n_groups = header, header["classes"], header["n_words"]
        self._d, self._merges = header["vocabulary_size"], tensors["merges"]
        self._sizes = header["vocabularies"] or [self._d]
        how = header["assignment"] or [{"name": "hard"}] * len(self._sizes)
        fault = next(filter(None, map(assignment_fault, how)), "")
        _check(not fault, f"its assignment {fault}")
        named = zip(codebook_names(self._sizes), how, strict=True)
        self._words = [_Words(tensors[name], one) for name, one in named if name in tensors]
        self._heads = {n: (tensors[f"head_{n}_coef"], tensors[f"head_{n}_intercept"]) for n in header["heads"]}
        self._weights, self._hashes = map(tensors.get, ("word_weights", "word_hashes"))
        self._shift, self._most = tensors.get("column_shift"), header["flattened"] or self._d
        self._flat = "groups" in tensors and header["flattened"] is None
        self._names: Any = (tensors["names"], tensors["name_offsets"]) if "names" in tensors else None
        rise = self._names is None or _rises(self._names[1], len(self._names[0]))
        _check(rise, "the offsets of its names do not rise from 0 to the number of their bytes.")
        sound = header["items"] != "texts" or _is_tokenizer(header["tokenizer"])
        _check(sound, f"its tokenizer cannot be {header['tokenizer']!r:.200}.")
        check_sizes(tensors)
        _check(self._weights is None or np.all(self._weights >= 0), "its word weights must not be negative.")
        s, t, level = *self._merges.T, np.arange(len(self._merges))
        _check(np.all((s >= 0) & (s < t) & (t < self._d)), "its merges join words that do not exist.")
        absorbed = np.full(self._d, len(level))
        absorbed[t] = level
        _check(np.all(absorbed[t] == level) and np.all(absorbed[s] > level), "its merges are no hierarchy.")
        self._look_up()

    def cut(self, n: int) -> RuntimeModel:
        """Return the same model with n groups."""
        least = max(1, self._d - len(self._merges))
        _check(n == self.n_groups or not self._flat, f"This model is compact: it always has {self.n_groups} groups.")
        _check(_is_count(n, least, self._most), f"This model can be cut at {least} to {self._most} groups, got {n!r}.")
        other = copy.copy(self)
        other.n_groups = n
        other._look_up()
        return other

    def _look_up(self) -> None:
        """Build the lookup table from words, in every cell, to features."""
        root, done = np.arange(self._d), self._merges[: self._d - self.n_groups]
        root[done[:, 1]] = done[:, 0]
        while not np.array_equal(root[root], root):
            root = root[root]
        groups = (np.cumsum(root == np.arange(self._d)) - 1)[root]
        cells = np.arange(sum(a * b for a, b in self.header["pyramid"]))[:, np.newaxis]
        self._n_columns, self._n_features = len(cells) * self._d, len(cells) * self.n_groups
        columns = (cells * self.n_groups + groups).ravel()
        order = np.argsort(columns, kind="stable")
        # order of columns by feature, features that occur, where they start
        self._lookup = order, *np.unique(columns[order], return_index=True)

    def transform(self, descriptors: Any, positions: Any = None) -> np.ndarray:
        """Turn the descriptors of an image or video into features.

        Parameters
        ----------
        descriptors : array of shape (M, D), or list of such arrays
            One item; or several, one array per item. In a model with several vocabularies an item is a tuple of arrays,
            one per vocabulary, instead of an array.
        positions : array of shape (M, 2), or list of such arrays, default=None
            x and y of each descriptor in [0, 1], in the same form; required if the pyramid has more than one cell.

        Returns
        -------
        features : ndarray of float32, shape (n_features,), or (n_items, n_features) for a list
        """
        if isinstance(descriptors, tuple) if len(self._sizes) > 1 else not isinstance(descriptors, (list, tuple)):
            return self._features(self._counts(descriptors, positions)[np.newaxis])[0]
        places = [None] * len(descriptors) if positions is None else positions
        _check(len(places) == len(descriptors), f"{len(descriptors)} items need as many positions; got {len(places)}.")
        items = zip(descriptors, places, strict=True)
        rows = [self._features(self._counts(item, xy)[np.newaxis]) for item, xy in items]
        return np.concatenate(rows) if rows else np.empty((0, self._n_features), np.float32)

    def transform_counts(self, counts: Any) -> np.ndarray:
        """Turn counts of words into features.

        Parameters
        ----------
        counts : array of shape (d,) or (n, d), or tuple (indices, values)
            One item; several; or the words of one item and their counts. With a pyramid, d is cells x words.

        Returns
        -------
        features : ndarray of float32, shape (n_features,), or (n, n_features) for an array of two dimensions
        """
        d = self._n_columns
        values = np.asarray(counts[1] if isinstance(counts, tuple) else counts, np.float64)
        _check(np.isfinite(values).all(), "Counts must be finite numbers.")
        if isinstance(counts, tuple):
            words = np.asarray(counts[0]) if len(counts[0]) else np.empty(0, np.intp)
            sound = words.ndim == 1 and words.shape == values.shape and words.dtype.kind in "iu"
            _check(sound, "(indices, values) must be two lists of equal length, the first of integers.")
            _check(np.all((words >= 0) & (words < d)), f"Words are numbered from 0 to {d - 1}; got others.")
            return self._features(np.bincount(words, values, d)[np.newaxis])[0]
        _check(values.ndim in (1, 2) and values.shape[-1] == d, f"Counts need {d} columns; got shape {values.shape}.")
        rows = self._features(values.reshape(-1, d))
        return rows if values.ndim == 2 else rows[0]

    def describe_image(self, image: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return descriptors and positions of an image, uint8 of shape (height, width, 3) in RGB, or grey.

        For models with words of a network alone. Needs ONNX Runtime; the network is opened for the first image.
        """
        if self._running is None:
            self._running = self._open_network()
        try:
            described: tuple[np.ndarray, np.ndarray] = self._running.describe(image)
            return described
        except ValueError as error:
            raise ModelFileError(str(error)) from error

    def transform_images(self, images: Any) -> np.ndarray:
        """Turn an image, or a list of images, into features; see `describe_image`."""
        if not isinstance(images, (list, tuple)):
            return self.transform(*self.describe_image(images))
        rows = [self.transform(*self.describe_image(image)) for image in images]
        return np.stack(rows) if rows else np.empty((0, self._n_features), np.float32)

    def predict_images(self, images: Any) -> Any:
        """Return the class of an image, or an array of classes for a list; see `describe_image`."""
        return np.array(self.classes)[self.scores(self.transform_images(images)).argmax(axis=-1)]

    def _open_network(self) -> Any:
        known, network = self.header["descriptor"], self._network
        about = known.get("parameters") if isinstance(known, dict) and known.get("name") == "NetworkFeatures" else None
        complete = isinstance(about, dict) and {"network", "layer", "side", "mean", "std"} <= about.keys()
        images = self.header["items"] == "images"
        _check(complete and images, "This model has no words of a network alone. Use transform, from descriptors on.")
        _check(network is not None, "This model does not hold its network. Name it: load(model, network=...).")
        if isinstance(network, (str, os.PathLike)) and _is_safetensors(network):
            network = read_model_file(network)[1].get("network")
            _check(network is not None, f"{self._network} does not hold a network.")
        try:
            beside = importlib.import_module(f"{__package__}.runtime_network" if __package__ else "runtime_network")
            return beside.Runner(about, network)
        except (ValueError, TypeError, OSError, AttributeError) as error:
            raise ModelFileError(f"The network of this model cannot be used: {error}") from error

    def transform_texts(self, texts: Any) -> np.ndarray:
        """Turn a text, or a list of texts, into features, as `transform_counts` does with the counts of its words."""
        if isinstance(texts, str):
            return self.transform_counts(self._count(texts))
        rows = [self.transform_counts(self._count(text)) for text in texts]
        return np.stack(rows) if rows else np.empty((0, self._n_features), np.float32)

    def _count(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Count the words of a text: numbers of words, and how often they occur."""
        words = self._numbers(split_text(text, self.header["tokenizer"]))
        numbers, counts = np.unique(words[words >= 0], return_counts=True)
        return numbers, np.minimum(counts, 1) if self.header["tokenizer"].get("binary") else counts

    def _numbers(self, words: list[str]) -> np.ndarray:
        """Return the numbers of words, -1 for those that are not in the vocabulary."""
        if self._hashes is not None:
            hashes = hash_words(words)
            at = np.minimum(np.searchsorted(self._hashes, hashes), self._d - 1)
            return np.where(self._hashes[at] == hashes, at, -1)
        _check(self._names is not None, "This model has no vocabulary of words. Use transform_counts.")
        if not isinstance(self._names, dict):
            text, offsets = self._names[0].tobytes(), self._names[1].tolist()
            parts = [text[a:b] for a, b in itertools.pairwise(offsets)]
            try:
                self._names = {part.decode("utf-8", "surrogatepass"): number for number, part in enumerate(parts)}
            except UnicodeDecodeError as error:
                raise ModelFileError(f"A name of a word in this model is not UTF-8: {error}.") from error
        return np.array([self._names.get(word, -1) for word in words], np.intp)

    def scores(self, features: Any) -> np.ndarray:
        """Return scores of shape (…, n_classes) for features of shape (…, n_features)."""
        _check(self.n_groups in self._heads, f"No classifier for {self.n_groups} groups, only for {list(self._heads)}.")
        coef, intercept = self._heads[self.n_groups]
        return np.asarray(features, np.float64) @ coef.T.astype(np.float64) + intercept

    def probabilities(self, scores: Any) -> np.ndarray:
        """Return calibrated probabilities of classes for scores, of the same shape."""
        factor = (self.header["calibration"] or {}).get(str(self.n_groups))
        _check(factor is not None, f"No calibration for {self.n_groups} groups: it comes from cross-validation.")
        powers = np.exp(factor * (scores - np.max(scores, axis=-1, keepdims=True)))
        return powers / powers.sum(axis=-1, keepdims=True)

    def predict(self, descriptors: Any, positions: Any = None) -> Any:
        """Return the class of an item, or an array of classes for a list; see `transform`."""
        return np.array(self.classes)[self.scores(self.transform(descriptors, positions)).argmax(axis=-1)]

    def predict_counts(self, counts: Any) -> Any:
        """Return the class of an item, or an array of classes for several; see `transform_counts`."""
        return np.array(self.classes)[self.scores(self.transform_counts(counts)).argmax(axis=-1)]

    def predict_texts(self, texts: Any) -> Any:
        """Return the class of a text, or an array of classes for a list; see `transform_texts`."""
        return np.array(self.classes)[self.scores(self.transform_texts(texts)).argmax(axis=-1)]

    def _counts(self, descriptors: Any, positions: Any) -> np.ndarray:
        """Count the descriptors of one item at each word, cell by cell."""
        _check(self._words, "This model has no codebook. Use transform_counts.")
        n, several, counts, first_word = len(self._sizes), len(self._sizes) > 1, np.zeros(self._n_columns), 0
        places = (positions if several else (positions,)) if positions is not None else (None,) * n
        fits = not several or (isinstance(descriptors, tuple) and len(descriptors) == len(places) == n)
        _check(fits, f"An item must be a tuple of {n} arrays of descriptors, one per vocabulary, and of {n} positions.")
        each = descriptors if several else (descriptors,)
        for vocabulary, vectors, xy in zip(self._words, each, places, strict=True):
            (words, weights), first = vocabulary.assigned(vectors), 0
            for rows, columns in self.header["pyramid"]:
                cell = np.full(len(words), first)
                if rows * columns > 1 and len(words):
                    at = np.asarray([] if xy is None else xy, np.float32)
                    sound = at.shape == (len(words), 2) and np.all((at >= 0) & (at <= 1))
                    _check(sound, f"The pyramid needs positions in [0, 1] of shape ({len(words)}, 2).")
                    cell += np.minimum((at[:, 1] * np.float32(rows)).astype(np.intp), rows - 1) * columns
                    cell += np.minimum((at[:, 0] * np.float32(columns)).astype(np.intp), columns - 1)
                columns_of = (cell * self._d + first_word)[:, np.newaxis] + words
                counts += np.bincount(columns_of.ravel(), weights.ravel(), minlength=len(counts))
                first += rows * columns
            first_word += vocabulary.n_words
        return counts

    def _features(self, rows: np.ndarray) -> np.ndarray:
        """Turn rows of counts of all words into features: weight words, sum those of each group, normalise."""
        if self._shift is not None:
            rows = rows - self._shift
        if self.header["term"] == "sqrt":
            rows = np.sign(rows) * np.sqrt(np.abs(rows))
        elif self.header["term"] == "log":
            sizes = np.abs(rows)
            rows = np.where(sizes > 1, np.sign(rows) * (1 + np.log(np.maximum(sizes, 1))), rows)
        if self._weights is not None:
            rows = rows * np.tile(self._weights.astype(np.float64), rows.shape[1] // self._d)
        if self.header["norm"]:
            vocabulary_of = np.tile(np.repeat(np.arange(len(self._sizes)), self._sizes), rows.shape[1] // self._d)
            rows = rows.copy()
            for number in range(len(self._sizes)):
                inside = vocabulary_of == number
                rows[:, inside] = self._normalized(rows[:, inside], [self.header["norm"]])
        groups = np.zeros((len(rows), self._n_features))
        order, features, starts = self._lookup
        groups[:, features] = np.add.reduceat(rows[:, order], starts, axis=1)
        return self._normalized(groups, self.header["normalize"]).astype(np.float32)

    @staticmethod
    def _normalized(rows: np.ndarray, steps: list[str]) -> np.ndarray:
        for step in steps:
            if step == "power":
                rows = np.sign(rows) * np.sqrt(np.abs(rows))
                continue
            largest = np.abs(rows).max(axis=1, keepdims=True)
            rows = rows / np.where(largest > 0, largest, 1.0)  # so that squares neither overflow nor vanish
            norms = np.linalg.norm(rows, int(step[1]), axis=1, keepdims=True)
            rows = rows / np.where(norms > 0, norms, 1.0)
        return rows

    def __repr__(self) -> str:
        groups = f"{self._d} words merged into {self.n_groups} groups"
        return f"<RuntimeModel: {self.header['items']}, {groups}, {len(self.classes)} classes>"


class _Words:
    """A codebook, in the form in which near words are found fast, and how descriptors are assigned to words."""

    def __init__(self, codebook: np.ndarray, how: dict[str, Any]) -> None:
        self.n_words, self._width = codebook.shape
        self._how, self._codebook = how, codebook
        self._mean = codebook.mean(axis=0, dtype=np.float64).astype(np.float32)
        shifted = codebook - self._mean  # so that words far from the origin lose no digits
        self._norms, self._factors = np.einsum("ij,ij->i", shifted, shifted), -2 * shifted.T

    def assigned(self, descriptors: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the words that each descriptor is assigned to, and their weights, both of shape (M, k)."""
        values = np.asarray(descriptors, np.float32)
        sound = values.ndim == 2 and values.shape[1] == self._width and np.all(np.abs(values) < LARGEST)
        _check(sound, f"Descriptors must be numbers below {LARGEST:g} of shape (M, {self._width}); got {values.shape}.")
        lengths = np.linalg.norm(values.astype(np.float64), axis=1)[:, np.newaxis]
        if self._how.get("weighted"):
            values = (values / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
        k = 1 if self._how["name"] == "hard" else min(self._how["n_neighbors"], self.n_words)
        words = np.empty((len(values), k), np.intp)
        for start in range(0, len(values), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            distances = (values[block] - self._mean) @ self._factors + self._norms
            if k == 1:
                words[block, 0] = np.argmin(distances, axis=1)
            else:
                words[block] = np.argpartition(distances, k - 1, axis=1)[:, :k]
        if self._how["name"] == "hard":
            return words, np.ones(words.shape)
        weights = np.empty(words.shape)
        for neighbor in range(k):
            differences = values.astype(np.float64) - self._codebook[words[:, neighbor]]
            weights[:, neighbor] = np.einsum("ij,ij->i", differences, differences)
        weights = np.exp(-self._how["sharpness"] * (weights - weights.min(axis=1, keepdims=True, initial=np.inf)))
        weights /= weights.sum(axis=1, keepdims=True)
        return words, weights * lengths**2 if self._how["weighted"] else weights


def hash_words(words: Any) -> np.ndarray:
    """Return the hashes of words: the lower 24 bits of the CRC-32 of their UTF-8 bytes, as zlib computes it."""
    bits = (1 << HASH_BITS) - 1
    return np.array([zlib.crc32(word.encode("utf-8", "surrogatepass")) & bits for word in words], np.uint32)


def merges_of(groups: np.ndarray) -> np.ndarray:
    """Return merges that make the groups: the first word of each absorbs the others, in the order of words."""
    first = np.unique(groups, return_index=True)[1][groups]
    others = np.flatnonzero(first != np.arange(len(groups)))
    return np.stack([first[others], others], axis=1)


def decoded_weights(codes: np.ndarray, span: list[float]) -> np.ndarray:
    """Return the weights of codes: 0 is 0; 1 to 255 go from the smallest to the largest weight in equal ratios."""
    low, high = map(math.log, span)
    weights = np.exp(low + (high - low) / (N_WEIGHTS - 2) * np.arange(-1.0, N_WEIGHTS - 1))
    weights[[0, 1, -1]] = 0, *span  # without rounding
    return weights.astype(np.float32)[codes]


def scale_name(name: str) -> str:
    """Return the name of the scales of an array of 8-bit integers, such as ``"head_20_scale"`` of ``"head_20_coef"``.

    >>> scale_name("codebook"), scale_name("head_20_coef")
    ('codebook_scale', 'head_20_scale')
    """
    return f"{name.removesuffix('_coef')}_scale"


def decoded_rows(integers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return rows of 8-bit integers, each times its scale, as float32."""
    return integers.astype(np.float32) * scales[:, np.newaxis]


def _is_tokenizer(options: Any) -> bool:
    """Whether these are options of texts; what the runtime does not support is refused when texts are split."""
    if not isinstance(options, dict) or not options.keys() <= TOKENIZER:
        return False
    pattern, spans, stop = map(options.get, ("token_pattern", "ngram_range", "stop_words"), (PATTERN, [1, 1], None))
    try:
        sound = len(pattern) <= 1000 and re.compile(pattern).groups <= 1
    except (re.error, TypeError, RecursionError, OverflowError):
        return False
    few = isinstance(spans, list) and len(spans) == 2 and all(_is_count(n, 1, 20) for n in spans)
    words = stop in (None, "english") or (isinstance(stop, list) and all(isinstance(word, str) for word in stop))
    return sound and few and words and {type(options.get(name, True)) for name in ("binary", "lowercase")} == {bool}


def is_accepted_pattern(pattern: str) -> bool:
    r"""Return whether a token pattern is one of those that are loaded from any file; `ACCEPTED` lists them.

    >>> is_accepted_pattern(r"(?u)\b\w\w+\b"), is_accepted_pattern("(?:a+)+b")
    (True, False)
    """
    return ACCEPTED.fullmatch(pattern) is not None


def check_pattern(options: dict[str, Any]) -> None:
    """Raise an error unless the regular expression of a tokenizer is an accepted one."""
    pattern = options.get("token_pattern", PATTERN)
    advice = r"If you trust who made it, load it with trust_pattern=True; otherwise use a pattern such as \w+"
    why = "is not one of those that are known to take time proportional to the length of a text"
    _check(is_accepted_pattern(pattern), f"its token_pattern {pattern!r:.200} {why}. {advice}")


def split_text(text: str, options: dict[str, Any]) -> list[str]:
    """Split a text into words and n-grams by options of a tokenizer; their stop words may also be a set."""
    stop = options.get("stop_words")
    stop = frozenset(stop) if isinstance(stop, list) else stop
    analyzer = options.get("analyzer", "word")
    known = analyzer in ("word", "char") and not options.get("strip_accents") and stop != "english"
    _check(known, f"The runtime does not split texts as {options!r:.200} says. Count words, and use transform_counts.")
    pattern, (least, most) = options.get("token_pattern", PATTERN), options.get("ngram_range", (1, 1))
    text = text.lower() if options.get("lowercase", True) else text
    if analyzer == "char":
        words, between = list(re.sub(r"\s\s+", " ", text)), ""
    else:
        words, between = [word for word in re.findall(pattern, text) if not stop or word not in stop], " "
    spans = [(a, a + n) for n in range(least, most + 1) for a in range(len(words) - n + 1)]
    return [between.join(words[a:b]) for a, b in spans]


def check_sizes(tensors: dict[str, np.ndarray]) -> None:
    """Raise an error for weights and heads beyond all use, and for words whose squares do not fit in float32."""
    for name, array in tensors.items():
        if name.startswith(("codebook", "column", "word_weights", "head", "network")):
            most = LARGEST if name.startswith("codebook") else 1e37 if name != "network" else 65_505
            _check(np.all(np.abs(array) < most), f"its {name!s:.50} must be numbers below {most:g}.")


def check_classes(classes: list[str]) -> None:
    """Raise an error for long names: arrays of classes have the width of the longest."""
    width = max(map(len, classes), default=0)
    fit = width <= LONGEST_NAME and width * len(classes) <= MOST_TABLE
    _check(fit, f"its {len(classes)} classes have names of up to {width} characters; {LONGEST_NAME} are accepted.")


def codebook_names(vocabularies: Any) -> list[str]:
    """Return the names of the codebooks of several vocabularies, or of one (None)."""
    return ["codebook", *(f"codebook_{k}" for k in range(1, len(vocabularies or [0])))]


def assignment_fault(entry: Any) -> str:
    """Return what is wrong with how descriptors are assigned to words; "" if nothing is."""
    if entry == {"name": "hard"}:
        return ""
    names = ("name", "n_neighbors", "sharpness", "weighted")
    if not isinstance(entry, dict) or set(entry) != set(names) or entry["name"] != "localized":
        return f"must be 'hard', or 'localized' with {', '.join(names[1:])}; got {entry!r:.100}."
    _, n, sharpness, weighted = (entry[key] for key in names)
    if not _is_count(n, 1, MOST_NEIGHBORS):
        return f"must have n_neighbors from 1 to {MOST_NEIGHBORS}; got {n!r:.100}."
    number = isinstance(sharpness, (int, float)) and not isinstance(sharpness, bool)
    if not number or not 0 < sharpness <= LARGEST:
        return f"must have a sharpness above 0, up to {LARGEST:g}; got {sharpness!r:.100}."
    if not isinstance(weighted, bool):
        return f"must have weighted true or false; got {weighted!r:.100}."
    return ""


def name_of(source: Any) -> str:
    """Return the name of the source of a model, for errors."""
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else "The model in memory"


def read_model_file(source: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the memory-mapped arrays of a model; the values of the arrays are not checked."""
    try:
        if not isinstance(source, (str, os.PathLike)):
            return _parse(np.frombuffer(source, np.uint8))
        _check(not os.path.isdir(source), "it is a folder. Give the name of a file.")
        _check(os.path.isfile(source) and os.path.getsize(source) > 0, "there is no such file, or it is empty.")
        return _parse(np.memmap(source, np.uint8, "r").view(np.ndarray))
    except ModelFileError as error:
        raise ModelFileError(f"{name_of(source)} cannot be read as a model: {error}") from error


def _parse(content: np.ndarray) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Parse the bytes of a safetensors file; sizes are checked against their number before they are used."""
    size, start = len(content), 8 + int.from_bytes(content[:8].tobytes(), "little")
    _check(8 < start <= min(size, 8 + MOST_HEADER), f"it is cut short, or no safetensors file ({size} bytes).")
    entries = _decoded(content[8:start].tobytes())
    about = entries.pop("__metadata__", None)
    _check(isinstance(about, dict) and isinstance(about.get("bagwise"), str), "it was not written by bagwise.")
    header = _decoded(about["bagwise"])
    kind, schema = header.get("kind"), header.get("schema")
    _check(kind == KIND, f"it holds {kind!r:.100}, not {KIND!r}.")
    other = f"it was written by another version of bagwise: it has schema {schema!r:.20}, and this one reads {SCHEMA}."
    _check(type(schema) is int and schema == SCHEMA, other)
    known = {*LAYOUT, *ABOUT} <= header.keys() <= {*LAYOUT, *ABOUT, *OPTIONAL}
    _check(known, "its header is not that of a model.")
    header = OPTIONAL | header
    arrays = {name: _array(name, entry) for name, entry in entries.items()}
    ends = [0, *sorted(end for *_, end in arrays.values())]
    _check(sorted(first for *_, first, _ in arrays.values()) == ends[:-1], "its arrays overlap or leave gaps.")
    _check(start + ends[-1] == size, f"its arrays end at byte {start + ends[-1]}, but the file has {size}.")
    _check_layout(header, {name: (dtype, shape) for name, (dtype, shape, *_) in arrays.items()})
    content = content[start:]
    _check_sums(content, {name: slice(*form[2:]) for name, form in arrays.items()}, about)
    tensors = {name: content[a:b].view(dtype).reshape(shape) for name, (dtype, shape, a, b) in arrays.items()}
    _expand(header, tensors)
    return header, tensors


def _check_sums(content: np.ndarray, spans: dict[str, slice], about: dict[str, Any]) -> None:
    """Check the CRC-32 of every array."""
    sums = {name.removeprefix(SUM): expected for name, expected in about.items() if name.startswith(SUM)}
    _check(sums.keys() == spans.keys(), f"it has checksums of {sorted(sums)!s:.200}, not of its arrays.")
    for name, expected in sums.items():
        computed = f"{zlib.crc32(content[spans[name]].data):08x}"
        message = f"is {computed}, expected {expected!r:.50}; its bytes are not those that were written."
        _check(computed == expected, f"the checksum of its {name!s:.50} {message}")


def _expand(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Add the merges, the hashes and the weights of a compact model; turn 8-bit integers into numbers."""
    if "groups" in arrays:
        groups, n = arrays["groups"].astype(np.intp), header["flattened"] or header["n_words"]
        numbers, first = np.unique(groups, return_index=True)
        numbered = len(numbers) == n == numbers[-1] + 1 and np.all(np.diff(first) > 0)
        _check(numbered, "its groups are not numbered by their first words.")
        rest = arrays.get("merges", np.empty((0, 2))), arrays.get("scores", np.empty(0))  # merges of these groups
        arrays["merges"] = np.concatenate([merges_of(groups), rest[0]]).astype(np.int32)
        arrays["scores"] = np.concatenate([np.full(len(groups) - n, np.nan), rest[1]])
    if "hashes" in arrays:
        low, starts = arrays["hashes"], arrays["hash_starts"]
        _check(_rises(starts, len(low)), f"its hash_starts do not rise from 0 to {len(low)}.")
        high = np.repeat(np.arange(len(starts) - 1, dtype=np.uint32), np.diff(starts))
        arrays["word_hashes"] = high << LOW_BITS | low
        _check(np.all(arrays["word_hashes"][1:] > arrays["word_hashes"][:-1]), "its hashes do not rise.")
    if "weight_codes" in arrays:
        arrays["word_weights"] = decoded_weights(arrays["weight_codes"], header["weight_range"])
    for name, array in arrays.items():
        if array.dtype == np.int8 and not name.startswith(UNUSED):
            scales = arrays[scale_name(name)]
            sound = np.all((scales >= SCALES[0]) & (scales <= SCALES[1]))
            _check(sound, f"its {scale_name(name)!s:.50} must be numbers from {SCALES[0]:g} to {SCALES[1]:g}.")
            _check(np.all(array >= -MOST_STEP), f"its {name!s:.50} must be integers from -{MOST_STEP} to {MOST_STEP}.")
            arrays[name] = decoded_rows(array, scales)


def _array(name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """Return type, shape, first byte and end of an array; raise an error if they are inconsistent."""
    form: list[Any] = [entry.get(key) for key in ("dtype", "shape", "data_offsets")] if isinstance(entry, dict) else []
    lists = all(isinstance(field, list) and len(field) <= 2 and all(map(_is_count, field)) for field in form[1:])
    _check(form and str(form[0]) in TYPES and lists and len(form[2]) == 2, f"{name!r:.50} cannot be {entry!r:.200}.")
    dtype, shape, (first, end) = TYPES[form[0]], tuple(form[1]), form[2]
    fits = math.prod(shape) * np.dtype(dtype).itemsize == end - first
    _check(fits, f"{name!r:.50}, {dtype} of shape {shape}, does not fill the bytes {first} to {end}.")
    return dtype, shape, first, end


def _check_layout(header: dict[str, Any], forms: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    """Check that types and shapes of the arrays agree with the header."""
    d, n, classes, heads, grids, steps = (header[key] for key in LAYOUT)
    _check(_is_count(d, 1, MOST_WORDS) and header["items"] in ITEMS, "its items or their number of words cannot be.")
    lists = all(isinstance(value, list) for value in (classes, heads, grids, steps))
    named = lists and all(isinstance(name, str) for name in classes) and all(step in STEPS for step in steps)
    _check(named and len(set(classes)) == len(classes), "its classes, heads, pyramid or steps cannot be.")
    check_classes(classes)
    _check(header["term"] in TERMS and header["norm"] in NORMS, "its term or norm cannot be.")
    named = header["group_names"]
    fit = isinstance(named, dict) and all(isinstance(name, str) for name in named.values())
    fit = fit and _is_count(n, 1) and all(re.fullmatch("[0-9]{1,9}", number) and int(number) < n for number in named)
    _check(named is None or fit, f"its group_names cannot be {named!r:.100}.")
    factors = header["calibration"]
    fit = isinstance(factors, dict) and factors.keys() <= {str(size) for size in heads}
    fit = fit and all(isinstance(factor, float) and 0 < factor < LARGEST for factor in factors.values())
    _check(factors is None or fit, f"its calibration cannot be {factors!r:.100}.")
    parts = header["vocabularies"]
    counts = isinstance(parts, list) and 1 < len(parts) <= MOST_VOCABULARIES and all(_is_count(n, 1) for n in parts)
    _check(parts is None or (counts and sum(parts) == d), f"its vocabularies of {d} words cannot be {parts!r:.100}.")
    how = header["assignment"]
    if how is not None:
        _check(isinstance(how, list) and len(how) == len(parts or [d]), f"its assignment cannot be {how!r:.200}.")
        _check("codebook" in forms, "its assignment is for codebooks, of which it has none.")
    pairs = all(isinstance(grid, list) and len(grid) == 2 and all(_is_count(k, 1) for k in grid) for grid in grids)
    cells = sum(rows * columns for rows, columns in grids) if pairs else 0
    seen = "codebook" in forms and 1 < cells <= min(MOST_CELLS, MOST_TABLE // d)
    _check(cells == 1 or seen, f"its pyramid cannot be {grids!r:.100}.")
    lengths = {name: (0, *shape)[-1] for name, (_, shape) in forms.items()}
    flat, k = header["flattened"], lengths.get("scores", 0)
    _check(flat is None or _is_count(flat, k + 1, min(d - 1, 1 << 16)), f"its flattened cannot be {flat!r:.100}.")
    compact = "groups" in forms and _is_count(n, 1, d) and heads in ([], [n])
    m = d - flat + k if flat else d - n if compact else k
    _check(d - MOST_GROUPS <= m < d, f"{d} words cannot have {m} merges.")
    sizes = all(_is_count(size, d - m, flat or d) for size in [n, *heads]) and sorted(set(heads)) == heads
    _check(sizes and (len(classes) > 1 or not heads), f"its heads or n_words do not suit {d} words and {m} merges.")
    wanted: dict[str, Any] = {"merges": ("<i4", (k, 2)), "scores": ("<f8", (k,))}
    if flat or compact:
        wanted = (wanted if flat else {}) | {"groups": ("|u1" if (flat or n) <= 1 << 8 else "<u2", (d,))}
    matrices: dict[str, Any] = {f"head_{size}_coef": (len(classes), cells * size) for size in heads}
    wanted |= {f"head_{size}_intercept": ("<f4", (len(classes),)) for size in heads}
    if "names" in forms:
        wanted |= {"names": ("|u1", (lengths["names"],)), "name_offsets": ("<i8", (d + 1,))}
    for name, size in zip(codebook_names(parts), parts or [d], strict=True):
        if parts or name in forms:
            matrices[name] = size, max(1, lengths.get(name, 1))
    for name, shape in matrices.items():
        int8 = forms.get(name, [""])[0] == "|i1"
        wanted |= {name: ("|i1", shape), scale_name(name): ("<f4", shape[:1])} if int8 else {name: ("<f4", shape)}
    copied = header["network"]
    fit = isinstance(copied, dict) and copied.keys() == {"name", "notice"} and how is not None
    _check(copied is None or (fit and all(isinstance(one, str) for one in copied.values())), "its network cannot be.")
    if copied is not None:
        n_numbers = NETWORK_SIZES[lengths.get("network") == NETWORK_SIZES[1]]
        wanted["network"] = "<f2", (n_numbers,)
    optional: dict[str, Any] = {"word_totals": ("<f8", (d,))}
    span = header["weight_range"]
    ratio = isinstance(span, list) and len(span) == 2 and all(isinstance(end, float) for end in span)
    _check(span is None or (ratio and 0 < span[0] <= span[1] < LARGEST), f"its weight_range cannot be {span!r:.100}.")
    if span is not None:
        wanted["weight_codes"] = "|u1", (d,)
    else:
        optional["word_weights"] = "<f4", (d,)
    optional["item_hashes"] = "<i8", (lengths.get("item_hashes", 0),)
    if header["items"] == "table":
        optional["column_shift"] = "<f8", (d,)
    if header["items"] == "texts" and "names" not in forms and "hashes" in forms:
        wanted |= {"hashes": ("<u2", (d,)), "hash_starts": ("<i4", ((1 << HASH_BITS - LOW_BITS) + 1,))}
    optional |= {name: form for name, form in forms.items() if name.startswith(UNUSED)}
    wanted |= {name: form for name, form in optional.items() if name in forms}
    for name in sorted(forms.keys() | wanted.keys()):
        actual, right = forms.get(name), wanted.get(name)
        _check(actual == right, f"its array {name!r:.50} is {actual}, expected {right}.")


def _is_safetensors(path: Any) -> bool:
    """Whether a file begins as safetensors do; ONNX files do not."""
    with open(path, "rb") as file:
        return file.read(9)[8:] == b"{"


def _decoded(text: str | bytes) -> dict[str, Any]:
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    _check(sum(map(content.count, (b",", b"[", b"{"))) <= MOST_PARTS, f"its header has more than {MOST_PARTS} values.")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"its header is no JSON ({error}).") from error
    _check(isinstance(header, dict), "its header is no JSON object.")
    level: list[Any] = [header]
    for _ in range(DEEPEST):
        inside = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for part in inside for one in part if isinstance(one, (dict, list))]
    _check(not level, f"its header is nested in more than {DEEPEST} lists and objects.")
    return header


def _rises(offsets: np.ndarray, end: int) -> bool:
    """Whether offsets rise from 0 to `end`; compared without differences, which may overflow."""
    return bool(offsets[0] == 0 and offsets[-1] == end and np.all(offsets[1:] >= offsets[:-1]))


def _is_count(value: Any, least: int = 0, most: float = 1 << 62) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(least <= value <= most)


def _check(sound: Any, message: str) -> None:
    if not sound:
        raise ModelFileError(message)
