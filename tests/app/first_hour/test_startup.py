"""Commands that answer one question load only what the answer needs.

`bagwise info` took 2.5 s and a search 3.2 s, most of it to import scikit-learn, SciPy's statistics, pandas and numba.
"""

import ast
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from bagwise import Hierarchy, Model
from bagwise.app.model import Head
from bagwise.descriptors import ColorCells, DenseSIFT
from commands import bagwise, process
from small_sources import write_table, write_text_folder

# Prints the loaded modules at the end of a command.
TELL = """
import atexit
atexit.register(lambda: print(sorted(sys.modules), file=sys.stderr))
"""
LEARNING = {
    "bagwise.app.training.fit",
    "bagwise.app.training.evaluate",
    "bagwise.merging.criteria",
    "bagwise.merging.engine",
}
SLOW = {"sklearn", "pandas", "numba", "scipy.stats", "scipy.special", "cv2", "PIL", "pyarrow", *LEARNING}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model and an index of texts, and of a table."""
    folder = tmp_path_factory.mktemp("startup")
    write_text_folder(folder / "texts")
    write_table(folder / "counts.csv")
    for name, more in (("texts", ["--stop-words", "english"]), ("counts.csv", [])):
        out = folder / f"{name.removesuffix('.csv')}.bagwise"
        bagwise("fit", folder / name, "--folds", 0, "--groups", 4, "--no-page", "--out", out, *more)
    return folder


def loaded_by(*arguments):
    """Modules that a command loads, and what it prints."""
    run = process(*arguments, script=TELL)
    output, errors = run.communicate()
    assert run.returncode == 0, errors
    return set(ast.literal_eval(errors.splitlines()[-1])), output


@pytest.mark.parametrize("file", ["texts.bagwise", "texts.index"])
def test_info_loads_no_libraries_of_learning(made, file):
    loaded, output = loaded_by("info", made / file)
    assert "merged into 4 groups" in output
    assert not loaded & SLOW
    if file == "texts.bagwise":
        assert "scipy" not in loaded


@pytest.mark.parametrize(
    "command",
    [
        ["search", "texts.index", "--query-text", "the ripe pear"],
        ["search", "counts.index", "counts.csv", "--row", "3"],
        ["predict", "texts.bagwise", "--query-text", "the ripe pear"],
        ["groups", "texts.bagwise"],
    ],
    ids=" ".join,
)
def test_an_answer_for_one_item_loads_neither_scikit_learn_nor_compiled_code(made, command):
    loaded, output = loaded_by(command[0], *(made / one if "." in one else one for one in command[1:]))
    assert len(output.splitlines()) > 1
    # a file that is opened becomes a collection, whose columns are those of Arrow
    assert not loaded & (SLOW - {"pyarrow"} if "counts.csv" in command else SLOW)


def test_an_image_is_classified_without_scikit_learn(tmp_path):
    """Descriptors are compiled, so numba is needed, but estimators are not."""
    random = np.random.default_rng(0)
    merges = [[0, k] for k in range(11, 0, -1)]
    model = Model(
        modality="images",
        hierarchy=Hierarchy(12, merges, np.zeros(11)),
        n_groups=3,
        descriptor=[DenseSIFT(patch=8), ColorCells()],
        codebook=[random.random((8, 128)), random.uniform(0, 255, (4, 6))],
        classes=["a", "b"],
        heads={3: Head(random.normal(size=(2, 3)), [0, 0])},
    )
    model.save(tmp_path / "model.bagwise")
    Image.fromarray(random.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(tmp_path / "image.png")
    loaded, output = loaded_by("predict", tmp_path / "model.bagwise", tmp_path / "image.png")
    assert "image.png" in output
    assert not loaded & (SLOW - {"numba", "PIL", "cv2", "pyarrow"})


def test_the_explorer_of_an_index_answers_before_libraries_of_learning_are_loaded(made):
    script = (
        "import sys; from bagwise.app.explorer import Server, open_workspace\n"
        "from bagwise.app.explorer.pages import overview\n"
        "space = open_workspace(sys.argv[1]); Server(space); overview.overview(space, None); print(sorted(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, made / "texts.index"], capture_output=True, text=True, check=True
    )
    assert not set(ast.literal_eval(run.stdout)) & (SLOW - {"PIL"})
