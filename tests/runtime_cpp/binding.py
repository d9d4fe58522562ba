"""The C interface by ctypes, for tests and benchmarks."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int32, c_size_t, c_uint64, c_void_p
from pathlib import Path

import numpy as np

SOURCES = Path(__file__).parents[2] / "runtime" / "cpp"
ITEMS = ("images", "texts", "table")
PLAIN = ("-O2", "-Wall", "-Wextra", "-Werror")


def compiler():
    """Return the C++ compiler, or None."""
    return shutil.which("g++") or shutil.which("clang++")


def build(target, *flags, source=SOURCES / "bagwise_c.cpp", shared=True):
    """Compile a shared library or a program."""
    kind = ["-shared", "-fPIC", "-fvisibility=hidden"] if shared else []
    command = [compiler(), "-std=c++17", *kind, "-pthread", f"-I{SOURCES}", *flags, str(source), "-o", str(target)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    return target


class Term(ctypes.Structure):
    _fields_ = (("word", c_int32), ("group", c_int32), ("weight", c_double))


class Place(ctypes.Structure):
    _fields_ = (
        *((name, c_double) for name in ("x", "y", "side")),
        *((name, c_uint64) for name in ("start", "end")),
        ("word", c_int32),
        ("weight", c_double),
    )


SIGNATURES = {
    "load": (c_void_p, c_char_p, c_int32, c_char_p, c_size_t),
    "load_memory": (c_void_p, c_char_p, c_size_t, c_int32, c_char_p, c_size_t),
    "free": (None, c_void_p),
    **dict.fromkeys(("items_of", "n_classes", "n_groups", "n_words", "n_features"), (c_int32, c_void_p)),
    **dict.fromkeys(("needs_color", "has_probabilities"), (c_int32, c_void_p)),
    **dict.fromkeys(("class_name", "group_name"), (c_char_p, c_void_p, c_int32)),
    "word_name": (c_void_p, c_void_p, c_int32, POINTER(c_size_t)),
    "workspace_new": (c_void_p, c_void_p, c_int32, c_char_p, c_size_t),
    "workspace_free": (None, c_void_p),
    "image": (c_int32, c_void_p, c_void_p, c_int32, c_int32, c_int32, c_size_t),
    "text": (c_int32, c_void_p, c_char_p, c_size_t),
    "row": (c_int32, c_void_p, c_void_p, c_size_t),
    "error": (c_char_p, c_void_p),
    "features": (POINTER(c_float), c_void_p),
    "scores": (POINTER(c_double), c_void_p),
    "top": (c_int32, c_void_p, c_int32, c_void_p),
    "probabilities": (c_int32, c_void_p, c_void_p),
    "explain": (c_int32, c_void_p, c_int32),
    "intercept": (c_double, c_void_p),
    "group_weights": (POINTER(c_double), c_void_p),
    "terms": (POINTER(Term), c_void_p, POINTER(c_size_t)),
    "places": (POINTER(Place), c_void_p, POINTER(c_size_t)),
}


class Refused(ValueError):
    """What the runtime says of a file or an item."""


class Runtime:
    """A shared library of the C interface."""

    def __init__(self, path):
        self.path = str(path)
        library = ctypes.CDLL(str(path))
        for name, (result, *arguments) in SIGNATURES.items():
            function = getattr(library, f"bagwise_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def model(self, source, n_groups=0, n_threads=1):
        """Load a model from a path or from bytes."""
        return CppModel(self, source, n_groups, n_threads)


class CppModel:
    """A model and one workspace."""

    def __init__(self, runtime, source, n_groups=0, n_threads=1):
        self._call = runtime
        error = ctypes.create_string_buffer(2000)
        if isinstance(source, bytes):
            self._model = runtime.load_memory(source, len(source), n_groups, error, len(error))
        else:
            self._model = runtime.load(str(source).encode(), n_groups, error, len(error))
        if not self._model:
            raise Refused(error.value.decode("utf-8", "replace"))
        self._workspace = runtime.workspace_new(self._model, n_threads, error, len(error))
        assert self._workspace, error.value
        self.items = ITEMS[runtime.items_of(self._model)]
        counts = ("n_classes", "n_groups", "n_words", "n_features", "needs_color", "has_probabilities")
        for name in counts:
            setattr(self, name, getattr(runtime, name)(self._model))
        names = (runtime.class_name(self._model, k) for k in range(self.n_classes))
        self.classes = [name.decode("utf-8", "surrogatepass") for name in names]

    def __del__(self):
        if getattr(self, "_model", None):
            self._call.free(self._model)  # before its workspace: the order must not matter
            self._call.workspace_free(self._workspace)

    def classify(self, item):
        """Return the number of the class of an image, a text (str or bytes) or a row."""
        if self.items == "images":
            image = np.ascontiguousarray(item, np.uint8)
            height, width, channels = (*image.shape, 1)[:3]
            found = self._call.image(self._workspace, image.ctypes.data, width, height, channels, 0)
        elif self.items == "texts":
            text = item if isinstance(item, bytes) else item.encode("utf-8", "surrogatepass")
            found = self._call.text(self._workspace, text, len(text))
        else:
            row = np.ascontiguousarray(item, np.float64)
            found = self._call.row(self._workspace, row.ctypes.data, len(row))
        if found < 0:
            raise Refused(self._call.error(self._workspace).decode())
        return found

    def predict(self, items):
        """Return the classes of items."""
        return [self.classes[self.classify(item)] for item in items]

    def features(self, item):
        """Return the features of an item."""
        self.classify(item)
        return np.ctypeslib.as_array(self._call.features(self._workspace), (self.n_features,)).copy()

    def scores(self, item):
        """Return the scores of an item."""
        self.classify(item)
        return np.ctypeslib.as_array(self._call.scores(self._workspace), (self.n_classes,)).copy()

    def probabilities(self, item):
        """Return the probabilities of the classes of an item."""
        self.classify(item)
        out = np.empty(self.n_classes)
        if self._call.probabilities(self._workspace, out.ctypes.data):
            raise Refused(self._call.error(self._workspace).decode())
        return out

    def top(self, item, n):
        """Return the numbers of the best classes of an item."""
        self.classify(item)
        out = np.empty(n, np.int32)
        return out[: self._call.top(self._workspace, n, out.ctypes.data)].tolist()

    def word_name(self, word):
        """Return the name of a word."""
        size = c_size_t()
        at = self._call.word_name(self._model, word, byref(size))
        return None if at is None else ctypes.string_at(at, size.value).decode("utf-8", "surrogatepass")

    def group_name(self, group):
        """Return the name that was given to a group, or None."""
        name = self._call.group_name(self._model, group)
        return None if name is None else name.decode("utf-8", "surrogatepass")

    def explain(self, item, k):
        """Return the intercept, weights of groups, terms and places of the score of class k of an item."""
        self.classify(item)
        if self._call.explain(self._workspace, k):
            raise Refused(self._call.error(self._workspace).decode())
        size = c_size_t()
        groups = np.ctypeslib.as_array(self._call.group_weights(self._workspace), (self.n_groups,)).copy()
        terms = self._call.terms(self._workspace, byref(size))
        terms = [(one.word, one.group, one.weight) for one in terms[: size.value]]
        places = self._call.places(self._workspace, byref(size))
        fields = [name for name, _ in Place._fields_]
        places = [{name: getattr(one, name) for name in fields} for one in places[: size.value]]
        return self._call.intercept(self._workspace), groups, terms, places
