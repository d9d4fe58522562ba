"""What is published beside the code says the same as the code."""

import re
import tomllib
from pathlib import Path

import yaml

import bagwise
from minimum import minimum

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]


def test_versions_agree():
    version = bagwise.__version__
    assert str(yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"]) == version
    assert yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text(encoding="utf-8"))["context"]["version"] == (
        version
    )
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == version


def test_the_conda_recipe_needs_what_the_package_needs():
    recipe = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text(encoding="utf-8"))
    pins = dict(line.split(" >=") for line in recipe["requirements"]["run"])
    assert pins.pop("python") == PROJECT["requires-python"].removeprefix(">=")
    pins["opencv-python-headless"] = pins.pop("py-opencv")
    assert pins == minimum(["app"])


def test_the_papers_are_cited():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    assert len({paper["title"] for paper in cited}) == 5


def test_the_container_gets_what_the_build_needs():
    needed = {path.split("/")[0] for path in SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]}
    needed |= {"src", "pyproject.toml", PROJECT["readme"], *PROJECT["license-files"]}
    admitted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    lines = [line.split() for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("COPY")]
    copied = {name for _, _, *names, _ in lines for name in names}
    assert needed <= copied <= admitted


def test_workflows_and_templates_can_be_read():
    files = [*(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml"]
    assert len(files) == 5
    for file in files:
        assert isinstance(yaml.safe_load(file.read_text(encoding="utf-8")), dict)


def test_vendored_files_have_their_licences():
    vendored = {path for folder in ROOT.rglob("vendor") if ".venv" not in folder.parts for path in folder.iterdir()}
    scripts = {path for path in vendored if path.suffix == ".js"}
    assert scripts
    assert all(path.parent / f"{path.name.split('.')[0]}.LICENSE" in vendored for path in scripts)
