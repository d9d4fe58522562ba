import re
import xml.etree.ElementTree as ET
from functools import cache

import numpy as np
import pytest
from PIL import Image

from bagwise.app.report import (
    Comparison,
    ConfusionMatrix,
    CriterionResult,
    MergingCurve,
    ReportData,
    WordGroup,
    comparison_table,
    write_comparison_markdown,
    write_markdown,
)
from bagwise.display.texts import one_line, percent
from bagwise.errors import BagwiseError
from report_helpers import digits_report

SVG = "{http://www.w3.org/2000/svg}svg"
NAMES = ["a|b", "<script>", "$x^2$", "日本", "caf\udce9", "new\nline", "_under_"]


@cache
def digits():
    return digits_report()


def test_every_picture_of_the_text_is_there_and_every_figure_in_it(tmp_path):
    path = write_markdown(digits(), tmp_path / "new" / "folder")
    text = path.read_text(encoding="utf-8")
    files = {file.name for file in path.parent.iterdir()}
    shown = set(re.findall(r"\]\(([^)]+)\)", text))
    assert files == shown | {"report.md"}
    for file in shown:
        if file.endswith(".svg"):
            assert ET.parse(path.parent / file).getroot().tag == SVG
            continue
        with Image.open(path.parent / file) as picture:
            assert picture.format == "PNG"
            picture.load()
    assert all(percent(error) in text for error in digits().curve.errors)
    assert all(percent(group.frequency) in text for group in digits().groups)


def test_same_data_same_bytes(tmp_path):
    first, second = (write_markdown(digits(), tmp_path / name).parent for name in "ab")
    assert sorted(file.name for file in first.iterdir()) == sorted(file.name for file in second.iterdir())
    assert all(file.read_bytes() == (second / file.name).read_bytes() for file in first.iterdir())


def test_tables_keep_their_columns_whatever_the_names(tmp_path):
    data = ReportData(
        "<b>",
        facts={name: name for name in NAMES},
        curve=MergingCurve([], [], criterion_name="$", criterion_sizes=[1, 2], criterion_values=[0, 1]),
        confusion=ConfusionMatrix(NAMES, np.ones((7, 7), dtype=int)),
        groups=[WordGroup(0, 7, 1.0, NAMES, classes=[(name, 1.0) for name in NAMES])],
        timings=dict.fromkeys(NAMES, 1),
        notes=NAMES,
    )
    text = write_markdown(data, tmp_path).read_text(encoding="utf-8")
    assert "<" not in text
    columns = 0
    for line in text.splitlines():
        found = len(re.findall(r"(?<!\\)\|", line))
        assert found in (0, columns) or columns == 0
        columns = found


def test_a_comparison_as_a_table_and_a_picture(tmp_path):
    criteria = [CriterionResult(name, [0.5, 0.25], [0.1, 0.1] if i % 2 else [], 1.0) for i, name in enumerate(NAMES)]
    comparison = Comparison("Two", [1, 20_000], criteria, "folds", {"items": 3})
    path = write_comparison_markdown(comparison, tmp_path)
    text = path.read_text(encoding="utf-8")
    assert comparison_table(comparison) in text
    assert comparison_table(comparison).count(f"**{percent(0.25)}**") == len(NAMES)
    svg = (tmp_path / "comparison.svg").read_text(encoding="utf-8")
    root = ET.fromstring(svg)
    assert float(root.attrib["width"]) > float(root.attrib["height"]) > 0
    assert "var(" not in svg  # the file needs no other style sheet
    legend = [element.text for element in root.iter(f"{SVG[:-3]}text") if element.attrib["class"] == "legend"]
    assert legend == [one_line(name) for name in NAMES]


@pytest.mark.parametrize("n", [1, 2, 20, 100])
def test_confusion_matrices_of_any_size_are_tables(n, tmp_path):
    counts = np.random.default_rng(n).integers(1, 5, (n, n))
    confusion = ConfusionMatrix([f"class {i}" for i in range(n)], counts)
    text = write_markdown(ReportData("x", confusion=confusion), tmp_path).read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| class")]
    assert len(rows) == min(n, 20)
    for name, *cells in rows:
        assert sum(map(int, cells)) == counts[int(name.split()[1])].sum()
    assert ("the 20 classes with the most confusions" in text) == (n > 20)


def test_a_file_in_the_way_is_said(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(BagwiseError, match="is a file"):
        write_markdown(ReportData("x"), tmp_path / "file")
