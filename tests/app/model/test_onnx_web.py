"""Graphs in ONNX Runtime Web, by Node.js: `make web` installs it, and runs this; otherwise it is skipped."""

import base64
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bagwise import open_collection
from bagwise.app import FitOptions, run_fit
from bagwise.app.model import export_onnx
from bagwise.descriptors.networks import input_size
from small_sources import write_image_folder
from waiting import PATIENCE

HERE = Path(__file__).parent
WEB = HERE.parents[2] / "build" / "web"


@pytest.mark.skipif(
    shutil.which("node") is None or not (WEB / "node_modules" / "onnxruntime-web").is_dir(),
    reason="no Node.js, or no onnxruntime-web: make web",
)
@pytest.mark.parametrize("pyramid", [None, 5])
def test_scores_are_those_of_the_model(pyramid, tmp_path):
    photographs = write_image_folder(tmp_path / "photographs", color=True, side=72)
    model = run_fit(photographs, FitOptions(n_words=30, folds=0, n_jobs=1, pyramid=pyramid, n_groups=6)).model
    collection, items = open_collection(photographs, mode="rgb")[:4], []
    for item in collection:
        image = Image.fromarray(item.load())
        height, width = input_size(image.height, image.width)
        resized = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
        items.append({"shape": resized.shape, "pixels": base64.b64encode(resized.tobytes()).decode()})
    (tmp_path / "in.json").write_text(json.dumps(items))
    graph = export_onnx(model, tmp_path / "m.onnx")
    run = subprocess.run(
        ["node", HERE / "onnx_web.mjs", graph, tmp_path / "in.json", tmp_path / "out.json"],
        cwd=WEB,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    np.testing.assert_allclose(found, model.decision_function(collection), atol=1e-4)
