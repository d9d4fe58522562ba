"""Pages that people show to others: reports, comparisons, results of searches."""

import base64
import io
import re
import shutil
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

from bagwise import Model
from commands import as_json, bagwise
from report_helpers import Page, scores_of
from small_sources import write_image_folder, write_table, write_text_folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A folder of texts of three classes with training and test items, what a fit to it printed, and its files."""
    folder = tmp_path_factory.mktemp("texts")
    write_text_folder(folder / "texts" / "train", n_each=20)
    write_text_folder(folder / "texts" / "test", n_each=8, seed=1)
    told = as_json(
        "fit", folder / "texts", "--out", folder / "m.bagwise", "--groups", "3", "--min-count", "1",
        "--markdown", folder / "markdown",
    )  # fmt: skip
    return folder, told


def page_of(path):
    """The text of a page with ordinary spaces, and its markup."""
    html = path.read_text(encoding="utf-8")
    return Page(html).text.replace("\u202f", " "), html


def test_a_report_draws_both_curves_and_says_which_error_to_quote(texts):
    folder, told = texts
    text, html = page_of(folder / "m.report.html")
    charts = re.findall(r'<svg class="chart (\w+)".*?</svg>', html, re.S)
    assert charts == ["wide", "narrow"]
    for chart in re.findall(r'<svg class="chart .*?</svg>', html, re.S):
        assert chart.count('class="curve"') == chart.count('class="curve test"') == 2  # each with its legend
    markdown = (folder / "markdown" / "report.md").read_text(encoding="utf-8").replace("\u202f", " ")
    error = 100 * told["test"]["errors"][told["test"]["sizes"].index(3)]
    for shown in (text, markdown):
        assert f"error to quote: {error:.1f} % with 3 groups" in shown
        assert shown.count("to quote") == 1
        assert "24 items that took no part in training" in shown
        assert "each training item is classified by groups and a classifier that were learned without it" in shown


def test_an_error_on_training_items_is_not_to_be_quoted(texts, tmp_path):
    folder, _ = texts
    source, model = folder / "texts" / "train", tmp_path / "m.bagwise"
    bagwise("fit", source, "--groups", "3", "--min-count", "1", "--out", model, "--no-page", "--no-index")
    bagwise("evaluate", model, source, "--page", tmp_path / "page.html")
    text, html = page_of(tmp_path / "page.html")
    assert "The model was learned from these items. Their error is not to be quoted" in text
    assert "took no part in training" not in text
    assert "error on training items, 60 items" in text
    assert text.count("This is the error to quote") == 1
    assert html.count('class="curve test"') == 4


def test_groups_of_a_report_are_named_sorted_by_what_they_decide_and_opened(texts):
    folder, _ = texts
    text, html = page_of(folder / "m.report.html")
    model = Model.load(folder / "m.bagwise")
    cards = re.findall(r'<article class="card" id="group-(\d+)".*?</article>', html, re.S)
    assert sorted(map(int, cards)) == [0, 1, 2]
    bodies = re.findall(r'<article class="card" id="group-\d+".*?</article>', html, re.S)
    decides = [float(re.search(r'decides</span>.*?<span class="figure">([\d.]+)<', body)[1]) for body in bodies]
    assert decides == sorted(decides, reverse=True)
    assert decides[0] > 0
    names = model.group_names()
    for number, body in zip(map(int, cards), bodies, strict=True):
        shown = Page(body).text
        assert names[number].partition("…")[0].replace("+", ", ") in shown
        members = [model.word_names[word] for word in model.groups()[number]]
        split = " ".join(members).split()  # there are pairs of words
        listed = Page(" ".join(re.findall(r'<p class="words">.*?</p>', body, re.S))).text
        assert sorted(re.findall(r"\w+", listed)) == sorted(split)  # those that are opened as well
        more = re.findall(r"<summary>and (\d+) more</summary>", body)
        assert more == ([str(len(members) - 12)] if len(members) > 12 else [])
    assert any("<summary>" in body for body in bodies)
    assert "standard deviation, over items, of its contribution to the score of a class" in text


def test_contributions_of_examples_include_the_intercept_and_add_up(texts):
    folder, _ = texts
    text, html = page_of(folder / "m.report.html")
    ids = re.findall(r'<p class="id"><bdi>(.*?)</bdi>', html)
    scores = scores_of(html)
    assert len(scores) == len(ids) >= 3
    model = Model.load(folder / "m.bagwise")
    for id, (parts, score) in zip(ids, scores, strict=True):
        assert round(sum(parts), 6) == score
        own = model.decision_function([(folder / "texts" / id.replace("<wbr>", "")).read_text()])[0]
        assert min(abs(own - score)) < 0.01
    assert text.count("intercept") > len(scores)


def test_no_link_of_a_page_is_dead(texts, tmp_path):
    folder, _ = texts
    path = write_table(tmp_path / "counts.csv", n_words=90, n_each=40)
    bagwise("fit", path, "--out", tmp_path / "m.bagwise", "--groups", "80", "--folds", "2")
    bagwise("evaluate", folder / "m.bagwise", folder / "texts" / "test", "--page", tmp_path / "evaluated.html")
    compare = ("compare", path, "--criteria", "aib,mmi", "--sizes", "2,5", "--folds", "2")
    bagwise(*compare, "--no-references", "--page", tmp_path / "compared.html")
    unlabelled = ("fit", folder / "texts" / "test" / "fruit", "--out", tmp_path / "fruit.bagwise", "--min-count", "1")
    bagwise(*unlabelled, "--groups", "3")
    pages = [tmp_path / name for name in ("m.report.html", "evaluated.html", "compared.html", "fruit.report.html")]
    for page in (folder / "m.report.html", *pages):
        parsed = Page(page.read_text(encoding="utf-8"))
        assert {target for target in parsed.targets if target.startswith("group-")} <= set(parsed.ids)
        assert parsed.targets <= set(parsed.ids)
    html = (tmp_path / "m.report.html").read_text(encoding="utf-8")
    assert html.count('<article class="card" id="group-') == 60
    assert "20 more groups" in html
    # the table scrolls in its own box
    compared = (tmp_path / "compared.html").read_text(encoding="utf-8")
    assert re.search(r'<div class="scroll" role="region"[^>]*tabindex="0">\s*<table', compared)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """A folder of coloured images, by words that take no notice of colours, and its index."""
    folder = tmp_path_factory.mktemp("photographs")
    write_image_folder(folder / "my photos", color=True)
    bagwise(
        "fit", folder / "my photos", "--out", folder / "m.bagwise", "--words", "16", "--groups", "4", "--descriptor",
        "sift",
    )  # fmt: skip
    return folder


def pixels_of(uri):
    with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def test_results_of_photographs_have_colours_and_links_and_leave_the_query_out(photographs, tmp_path):
    page, query = photographs / "results.html", photographs / "my photos" / "across" / "01.png"
    told = as_json("search", photographs / "m.index", query, "-k", 5, "--page", page)["queries"][0]
    assert told["in_index"] == ["across/01.png"]
    assert len(told["hits"]) == 5
    assert "across/01.png" not in {hit["id"] for hit in told["hits"]}
    parsed = Page(page.read_text(encoding="utf-8"))
    assert "The query itself is in the index, as “across/01.png”" in parsed.text
    assert len(parsed.pictures) == 6
    for uri in parsed.pictures:
        red, _, blue = np.moveaxis(pixels_of(uri), 2, 0)
        assert np.mean(red - blue) > 50  # they are orange
    linked = {unquote(link) for link in parsed.links}
    assert linked == {f"./my photos/{id}" for id in ["across/01.png", *(hit["id"] for hit in told["hits"])]}
    assert all((photographs / link).is_file() for link in linked)


def test_the_query_is_known_by_its_content_and_shown_if_asked_for(photographs, tmp_path):
    copy = shutil.copy(photographs / "my photos" / "down" / "08.png", tmp_path / "copy.png")
    output = bagwise("search", photographs / "m.index", copy, "-k", 3)
    assert "The query itself is in the index, as down/08.png; it is left out (--keep-query shows it)." in output
    told = as_json("search", photographs / "m.index", copy, "-k", 3, "--keep-query")["queries"][0]
    assert told["in_index"] == [told["hits"][0]["id"]] == ["down/08.png"]
    altered = np.asarray(Image.open(copy)).copy()
    altered[0, 0] ^= 1
    Image.fromarray(altered).save(copy)
    assert as_json("search", photographs / "m.index", copy)["queries"][0]["in_index"] == []
    # without the items, by the name
    moved = shutil.move(photographs / "my photos", tmp_path / "moved")
    told = as_json("search", photographs / "m.index", f"{moved}/down/08.png")["queries"][0]
    assert told["in_index"] == ["down/08.png"]
    shutil.move(moved, photographs / "my photos")


def test_results_of_a_table_have_values(tmp_path):
    path = write_table(tmp_path / "counts.csv", n_words=40)
    lines = [line.split(",") for line in path.read_text().splitlines()]
    bagwise("fit", path, "--out", tmp_path / "m.bagwise", "--groups", "3")
    page = tmp_path / "results.html"
    told = as_json("search", tmp_path / "m.index", path, "--row", 7, "-k", 4, "--page", page)["queries"][0]
    assert told["in_index"] == ["7"]
    assert len(told["hits"]) == 4
    html = page.read_text(encoding="utf-8")
    Page(html)
    columns = re.findall(r'<th scope="col"><bdi>(w\d+)</bdi></th>', html)
    assert len(columns) == 24  # of 40
    rows = re.findall(r"<tr.*?</tr>", html.partition("<tbody>")[2], re.S)
    for row, id in zip(rows, ["7", *(hit["id"] for hit in told["hits"])], strict=True):
        given = dict(zip(lines[0], lines[1 + int(id)], strict=True))
        assert re.findall(r"<td>([^<]*)</td>", row)[-24:] == [given[column] for column in columns]


def test_results_of_texts_have_their_beginnings(texts):
    folder, _ = texts
    page = folder / "results.html"
    told = as_json("search", folder / "m.index", "-t", "ripe plum and a sweet pear", "--page", page)["queries"][0]
    parsed = Page(page.read_text(encoding="utf-8"))
    for hit in told["hits"]:
        assert (folder / "texts" / hit["id"]).read_text() in parsed.text
        assert f"./texts/{hit['id']}" in parsed.links
    assert "query itself" not in parsed.text
