"""Export models as ONNX graphs: from descriptors or counts to features, scores and classes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from bagwise._io.atomic import write_atomically
from bagwise._utils.extras import require
from bagwise.app.modalities import MODALITIES
from bagwise.app.model import Model
from bagwise.codebooks.encoders import HardEncoder, LocalizedEncoder
from bagwise.errors import BagwiseError
from bagwise.runtime_network import SHA256

__all__ = ["export_onnx"]

# Supported by runtimes from 2023 on; older versions lack ScatterElements with sums, and axes as inputs.
_OPSET, _IR_VERSION = 18, 8


def export_onnx(model: Model, path: str | os.PathLike[str]) -> Path:
    """Write a model as an ONNX graph, at its current number of groups.

    With a codebook, one run of the graph takes one image or video; otherwise it takes any number of rows. All numbers
    are float32, except ``label``, which is int64, and images.

    - Inputs: ``descriptors`` (M, D), and ``positions`` (M, 2) in [0, 1] if the pyramid has more than one cell; for
      further vocabularies ``descriptors_1``, ``positions_1`` and so on; or ``counts`` (n, d), counts of all words.
      For images described by the network that `NetworkFeatures` has by default, instead of both, ``image`` (height,
      width, 3): in RGB of uint8, resized as `NetworkFeatures` does it. The network is part of the graph, and its notice
      and licence are in the metadata (``notice``). Graphs for other networks begin with their activations.
    - Outputs: ``features`` (1 or n, n_features); and, if there is a classifier for this number of groups, ``scores``
      (1 or n, n_classes) and ``label`` (1 or n,), the index of the class with the highest score.

    The descriptor and the tokenizer are not part of the graph, but the metadata say all that is needed to write them
    elsewhere: see ``docs/model-file.md``.

    Parameters
    ----------
    model : Model
    path : path
        File to write, atomically.

    Returns
    -------
    path : Path

    See Also
    --------
    bagwise.runtime : The same with NumPy, from the model file.

    Notes
    -----
    Features equal those of `Model.transform` up to rounding to float32, except for descriptors at nearly the same
    distance to two words. `Model` rejects positions outside [0, 1]; the graph uses the nearest cell.

    Needs ``bagwise[network]``.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import onnxruntime
    >>> from bagwise import Hierarchy, Model
    >>> from bagwise.app.model import export_onnx
    >>> model = Model(modality="table", hierarchy=Hierarchy(3, [[0, 2]], [0.5]), n_groups=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = export_onnx(model, f"{folder}/model.onnx")
    ...     session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    >>> (features,) = session.run(["features"], {"counts": np.array([[1, 3, 0]], np.float32)})
    >>> features**2
    array([[0.25, 0.75]], dtype=float32)
    """
    onnx = require("onnx", "network", "Exporting to ONNX")
    graph = _Graph(onnx)
    n_rows: int | str = "n" if model.codebook is None else 1
    if model.codebook is None:
        counts = graph.input("counts", ["n", model.hierarchy.n_words])
    else:
        counts = _add_descriptors(graph, model)
    sums = _add_groups(graph, _add_weights(graph, counts, model), model)
    width = model.layout.width(model.n_groups)
    graph.output("features", _add_steps(graph, sums, model.normalize), "FLOAT", [n_rows, width])
    if model.n_groups in model.heads:
        coef, intercept = graph.constant(model.head.coef.T), graph.constant(model.head.intercept)
        scores = graph.add("Gemm", "features", coef, intercept)
        graph.output("scores", scores, "FLOAT", [n_rows, len(model.classes)])
        graph.output("label", graph.add("ArgMax", "scores", axis=1, keepdims=0), "INT64", [n_rows])
    return write_atomically(path, graph.serialized(_metadata(model)))


def _metadata(model: Model) -> dict[str, str]:
    """Return what the graph does not compute, as JSON but for `items`: words, tokenizer, descriptors, names."""
    import bagwise

    about: dict[str, Any] = {
        "n_words": model.n_groups,
        "library": f"bagwise {bagwise.__version__}",
        "classes": list(model.classes),
        "group_names": model.group_names().tolist(),
    }
    about |= MODALITIES[model.modality].graph_facts(model)
    if model.column_shift is not None:
        about["column_shift"] = model.column_shift.tolist()
    if any(_joins(model, one) for one in model.descriptors):
        from bagwise.descriptors import efficientnet

        about["notice"] = efficientnet.notice()
    if model.n_groups in model.calibration:
        about["calibration"] = model.calibration[model.n_groups]
    return {"items": model.modality} | {name: json.dumps(value) for name, value in about.items()}


def _add_weights(graph: _Graph, counts: str, model: Model) -> str:
    """Weight the words of each row, see `bagwise.codebooks.normalizing.WordWeighting`."""
    if model.column_shift is not None:
        counts = graph.add("Sub", counts, graph.constant(model.column_shift.astype(np.float32)))
    if model.term == "sqrt":
        counts = _add_steps(graph, counts, ("power",))
    elif model.term == "log":
        one, size = graph.constant(np.float32(1)), graph.add("Abs", counts)
        damped = graph.add("Add", graph.add("Log", graph.add("Max", size, one)), one)
        damped = graph.add("Mul", graph.add("Sign", counts), damped)
        counts = graph.add("Where", graph.add("Greater", size, one), damped, counts)
    if model.word_weights is not None:
        counts = graph.add("Mul", counts, graph.constant(model.layout.tiled(model.word_weights)))
    if model.norm is None or len(model.layout.vocabularies) == 1:
        return _add_steps(graph, counts, () if model.norm is None else (model.norm,))
    numbers = model.layout.tiled(model.layout.vocabulary_of)
    zero, scaled = graph.constant(np.float32(0)), []
    for number in range(len(model.layout.vocabularies)):
        part = graph.add("Where", graph.constant(numbers[np.newaxis] == number), counts, zero)
        scaled.append(_add_steps(graph, part, (model.norm,)))
    return graph.add("Sum", *scaled)


def _add_groups(graph: _Graph, words: str, model: Model) -> str:
    """Add the sums over each group in each cell, one row per item."""
    n_rows = graph.add("Shape", words, start=0, end=1)
    shape = graph.add("Concat", n_rows, graph.constant(np.array([model.layout.width(model.n_groups)])), axis=0)
    sums = graph.add("ConstantOfShape", shape)
    columns = model.layout.over_cells(model.lookup, model.n_groups).reshape(1, -1)
    groups = graph.add("Expand", graph.constant(columns), graph.add("Shape", words))
    return _add_scattered(graph, sums, groups, words)


def _add_descriptors(graph: _Graph, model: Model) -> str:
    """Add the counts of each word in each cell, one row."""
    d, first_word = model.hierarchy.n_words, 0
    first_cells = np.cumsum([0, *(rows * columns for rows, columns in model.pyramid[:-1])])[np.newaxis]
    counts = graph.constant(np.zeros((1, model.layout.n_columns), np.float32))
    for number, (codebook, how) in enumerate(zip(model.codebooks, model.assignment or (), strict=True)):
        if not isinstance(how, (HardEncoder, LocalizedEncoder)):
            raise BagwiseError(f"An ONNX graph assigns by 'hard' or 'localized', this model by {how!r:.100}.")
        suffix = f"_{number}" if number else ""
        mean = codebook.mean(axis=0, dtype=np.float64).astype(np.float32)
        words = codebook - mean  # centred, to keep digits of words far from the origin
        counted, placed = "", any(grid != (1, 1) for grid in model.pyramid)
        if number < len(model.descriptors) and _joins(model, model.descriptors[number]):
            descriptors, positions = _add_network(graph, model, number, suffix)
        else:
            descriptors, counted = _padded(graph, f"descriptors{suffix}", f"M{suffix}", words.shape[1])
            positions = _padded(graph, f"positions{suffix}", f"M{suffix}", 2)[0] if placed else ""
        lengths = graph.add("ReduceL2", descriptors, graph.constant(np.array([1]))) if how.by_length else ""
        if lengths:
            one, some = graph.constant(np.float32(1)), graph.add("Greater", lengths, graph.constant(np.float32(0)))
            descriptors = graph.add("Div", descriptors, graph.add("Where", some, lengths, one))
        shifted = graph.add("Sub", descriptors, graph.constant(mean))
        products = graph.add("MatMul", shifted, graph.constant(-2 * words.T))
        # |x - w|² - |x|², where |x|² is the same for all words
        distances = graph.add("Add", products, graph.constant(np.einsum("ij,ij->i", words, words)))
        n_near, sharp = min(how.n_entries, len(codebook)), getattr(how, "sharpness", 1.0)  # of one word: any
        near, words_of = graph.add_several("TopK", 2, distances, graph.constant(np.array([n_near])), axis=1, largest=0)
        sharpness = graph.constant(np.float32(-sharp))
        weights = graph.add("Softmax", graph.add("Mul", near, sharpness), axis=1)
        if lengths:
            weights = graph.add("Mul", weights, graph.add("Mul", lengths, lengths))
        if counted:
            weights = graph.add("Mul", weights, counted)
        # of each descriptor, grid and word
        third, second = graph.constant(np.array([2])), graph.constant(np.array([1]))
        columns = graph.add("Unsqueeze", graph.constant(first_cells * d + first_word), third)
        if placed:
            cells = graph.add("Mul", _add_places(graph, model, positions), graph.constant(np.array(d)))
            columns = graph.add("Add", columns, graph.add("Unsqueeze", cells, third))
        columns = graph.add("Add", columns, graph.add("Unsqueeze", words_of, second))
        row = graph.add("Reshape", columns, graph.constant(np.array([1, -1])))
        parts = graph.add("Expand", graph.add("Unsqueeze", weights, second), graph.add("Shape", columns))
        parts = graph.add("Reshape", parts, graph.constant(np.array([1, -1])))
        counts = _add_scattered(graph, counts, row, parts)
        first_word += len(codebook)
    return counts


def _padded(graph: _Graph, name: str, n_rows: str, width: int) -> tuple[str, str]:
    """Add an input with a row of zeros after its own, and weights of 1 and 0 of these rows, shape (M + 1, 1).

    ONNX Runtime before 1.31 ends the process where an image has no descriptors, without a row.
    """
    rows = graph.input(name, [n_rows, width])
    padded = graph.add("Concat", rows, graph.constant(np.zeros((1, width), np.float32)), axis=0)
    zero, one = graph.constant(np.array(0)), graph.constant(np.array(1))
    n, n_padded = (graph.add("Squeeze", graph.add("Shape", some, start=0, end=1)) for some in (rows, padded))
    is_row = graph.add("Less", graph.add("Range", zero, n_padded, one), n)
    return padded, graph.add("Unsqueeze", graph.cast(is_row, "FLOAT"), graph.constant(np.array([1])))


def _joins(model: Model, descriptor: Any) -> bool:
    """Whether a descriptor is a network that becomes part of the graph: one of images that is known."""
    known = descriptor.embedded is not None or descriptor.parameters.get("network") == f"sha256:{SHA256}"
    return MODALITIES[model.modality].pictured and known


def _add_network(graph: _Graph, model: Model, number: int, suffix: str) -> tuple[str, str]:
    """Add the network that describes images: activations (M, D) and positions (M, 2), from a resized RGB image."""
    from bagwise.descriptors import efficientnet
    from bagwise.descriptors.network import NetworkFeatures

    described = model.descriptor
    descriptor = described[number] if isinstance(described, tuple) else described
    assert isinstance(descriptor, NetworkFeatures)
    about = descriptor.identity()
    layer, how = about["layer"], about["preprocessing"]
    network = efficientnet.build_graph(descriptor.tensors(), layer)
    image = graph.input(f"image{suffix}", [f"height{suffix}", f"width{suffix}", 3], "UINT8")
    shifted = graph.add("Sub", graph.cast(image, "FLOAT"), graph.constant(np.float32(255) * np.float32(how["mean"])))
    scaled = graph.add("Mul", shifted, graph.constant((1 / (255 * np.array(how["std"]))).astype(np.float32)))
    planes = graph.add("Unsqueeze", graph.add("Transpose", scaled, perm=[2, 0, 1]), graph.constant(np.array([0])))
    activations = graph.include(network, f"network{suffix}.", planes, layer)
    last = graph.add("Transpose", activations, perm=[0, 2, 3, 1])
    n_channels = len(model.codebooks[number][0])
    values = graph.add("Reshape", last, graph.constant(np.array([-1, n_channels])))
    sides = []
    one, half = graph.constant(np.array(1)), graph.constant(np.float32(0.5))
    for axis in (3, 2):  # x, then y
        size = graph.add("Squeeze", graph.add("Shape", activations, start=axis, end=axis + 1))
        numbers = graph.cast(graph.add("Range", graph.constant(np.array(0)), size, one), "FLOAT")
        sides.append(graph.add("Div", graph.add("Add", numbers, half), graph.cast(size, "FLOAT")))
    across = graph.add("Unsqueeze", sides[0], graph.constant(np.array([0])))  # one row of the map
    down = graph.add("Unsqueeze", sides[1], graph.constant(np.array([1])))
    grid = graph.add("Shape", activations, start=2, end=4)
    columns = [graph.add("Expand", side, grid) for side in (across, down)]
    columns = [graph.add("Reshape", column, graph.constant(np.array([-1, 1]))) for column in columns]
    return values, graph.add("Concat", *columns, axis=1)


def _add_places(graph: _Graph, model: Model, positions: str) -> str:
    """Add the cell of each descriptor in each grid, shape (M, n_grids), numbered row by row."""
    n_rows, n_columns = np.array(model.pyramid).T[:, np.newaxis]
    numbers = []
    for axis, n in ((1, n_rows), (0, n_columns)):
        position = graph.add("Gather", positions, graph.constant(np.array([axis])), axis=1)
        number = graph.cast(graph.add("Mul", position, graph.constant(n.astype(np.float32))), "INT64")
        number = graph.add("Min", number, graph.constant(n - 1))
        numbers.append(graph.add("Max", number, graph.constant(np.array(0))))
    return graph.add("Add", graph.add("Mul", numbers[0], graph.constant(n_columns)), numbers[1])


def _add_scattered(graph: _Graph, zeros: str, columns: str, values: str) -> str:
    """Add each value to its column, in its row."""
    # not ScatterND: some runtimes sum repeated indices in several threads at once
    return graph.add("ScatterElements", zeros, columns, values, axis=1, reduction="add")


def _add_steps(graph: _Graph, rows: str, steps: tuple[str, ...]) -> str:
    """Normalise rows, see `bagwise.codebooks.normalizing.normalize_rows`."""
    for step in steps:
        if step == "power":
            rows = graph.add("Mul", graph.add("Sign", rows), graph.add("Sqrt", graph.add("Abs", rows)))
            continue
        one, zero, axis = (graph.constant(value) for value in (np.float32(1), np.float32(0), np.array([1])))
        # by the largest value first, so that squares neither overflow nor underflow
        for norm in ("Max", step.upper()):
            size = graph.add(f"Reduce{norm}", graph.add("Abs", rows), axis)
            rows = graph.add("Div", rows, graph.add("Where", graph.add("Greater", size, zero), size, one))
    return rows


class _Graph:
    """A builder of an ONNX graph."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._constants: list[Any] = []

    def input(self, name: str, shape: list[int | str], kind: str = "FLOAT") -> str:
        """Declare an input."""
        number = getattr(self._onnx.TensorProto, kind)
        self._inputs.append(self._onnx.helper.make_tensor_value_info(name, number, shape))
        return name

    def include(self, model: Any, prefix: str, value: str, output: str) -> str:
        """Add the nodes of a model with one input, which is taken from a value; returns the name of an output."""
        taken = model.graph.input[0].name
        for initializer in model.graph.initializer:
            initializer.name = prefix + initializer.name
            self._constants.append(initializer)
        for node in model.graph.node:
            node.input[:] = [value if name == taken else prefix + name for name in node.input]
            node.output[:] = [prefix + name for name in node.output]
            node.name = node.output[0]  # its own: ONNX Runtime names what it makes of nodes after them
            self._nodes.append(node)
        return prefix + output

    def output(self, name: str, value: str, kind: str, shape: list[int | str]) -> None:
        """Declare a value as an output."""
        number = getattr(self._onnx.TensorProto, kind)
        self._outputs.append(self._onnx.helper.make_tensor_value_info(name, number, shape))
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name], name=name))

    def constant(self, array: Any) -> str:
        """Add an array of float32 or int64."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and return the name of the output."""
        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def add_several(self, operator: str, n: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node with n outputs, and return their names."""
        names = [f"{operator.lower()}_{len(self._nodes)}_{k}" for k in range(n)]
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, names, name=names[0], **attributes))
        return names

    def cast(self, value: str, kind: str) -> str:
        """Change the type of a value."""
        return self.add("Cast", value, to=getattr(self._onnx.TensorProto, kind))

    def serialized(self, about: dict[str, str]) -> bytes:
        """Check the graph, and return the bytes of its file."""
        import bagwise

        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, "bagwise", self._inputs, self._outputs, self._constants)
        made = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="bagwise",
            producer_version=bagwise.__version__,
        )
        helper.set_model_props(made, about)
        self._onnx.checker.check_model(made, full_check=True)
        return made.SerializeToString(deterministic=True)
