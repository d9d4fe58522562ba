"""Old models keep loading, and give what they gave. `models/make_models.py` says how they were made."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bagwise import Model, runtime
from bagwise.runtime import SCHEMA

FOLDER = Path(__file__).parent.parent / "models"
SCHEMAS = sorted(FOLDER.glob("schema*"))


def test_there_is_one_of_each_schema():
    assert [folder.name for folder in SCHEMAS] == [f"schema{number}" for number in range(1, SCHEMA + 1)]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("kind", ["images", "texts"])
def test_old_models_give_what_they_gave(schema, kind, tmp_path):
    (path,) = schema.glob(f"{kind}*")
    expected = json.loads((schema / "expected.json").read_text("utf-8"))[kind]
    items = [np.array(image) for image in expected["items"]] if kind == "images" else expected["items"]
    model = Model.load(path)
    np.testing.assert_allclose(model.transform(items).toarray(), expected["features"], atol=1e-6)
    np.testing.assert_allclose(model.decision_function(items), expected["scores"], atol=1e-5)
    assert model.predict(items).tolist() == expected["classes"]
    assert model.feature_names().tolist() == expected["feature_names"]
    assert model.lookup.tolist() == expected["lookup"]
    histograms = model.histograms(items).toarray()
    np.testing.assert_allclose(runtime.load(path).transform_counts(histograms), expected["features"], atol=1e-6)
    assert Model.load(model.save(tmp_path / path.name)) == model


def test_old_models_are_not_written_again():
    before = {path: path.read_bytes() for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    run = subprocess.run([sys.executable, FOLDER / "make_models.py"], capture_output=True, text=True)
    assert run.returncode == 1
    assert "old models stay as they are" in run.stderr
    assert before == {path: path.read_bytes() for path in before}
