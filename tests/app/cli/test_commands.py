import csv
import dataclasses
import json
import shlex
import shutil
import sys
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from bagwise import Model, open_collection
from bagwise.app import FitOptions, ItemIndex, evaluate_model
from bagwise.app.cli.app import app
from bagwise.app.cli.printing import command_line
from bagwise.app.declaring import options_of
from bagwise.app.explorer import open_workspace
from commands import as_json, bagwise
from model_cases import MADE
from small_sources import texts, write_image_folder, write_records, write_table, write_text_folder, zipped

IMAGES = ("--descriptor", "patches", "--words", 12, "--groups", 4, "--folds", 2)
TEXTS = ("--groups", 4, "--folds", 2)


@pytest.fixture(scope="module")
def stripes(tmp_path_factory):
    """A folder with a source of images with parts, and all that a fit makes of it."""
    folder = tmp_path_factory.mktemp("stripes")
    source = zipped(write_image_folder(folder / "all", parts=("train", "test")), folder / "stripes.zip")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        output = bagwise("fit", source, *IMAGES)
    assert "12 images of 2 classes: 12 words merged into 4 groups" in output
    assert "error, 12 test items" in output
    return folder


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    bagwise("fit", write_text_folder(folder / "words"), *TEXTS, "--out", folder / "words.bagwise")
    return folder


def test_a_fit_writes_model_index_and_report_beside_each_other(stripes):
    model = Model.load(stripes / "stripes.bagwise")
    assert model.n_groups == 4
    assert model.classes == ("across", "down")
    report = (stripes / "stripes.report.html").read_text()
    assert "5-fold" not in report
    assert "2-fold cross-validation" in report
    index = ItemIndex.load(stripes / "stripes.index")
    assert len(index) == 24
    assert sorted(index.ids) == open_collection(stripes / "stripes.zip").ids
    left = sorted(path.name for path in stripes.iterdir())
    assert left == ["all", "stripes.bagwise", "stripes.index", "stripes.report.html", "stripes.zip"]


def test_an_index_that_was_moved_needs_nothing_else(stripes, tmp_path):
    import shutil

    moved = tmp_path / "moved.index"
    shutil.copy(stripes / "stripes.index", moved)
    query = next((stripes / "all" / "test" / "down").iterdir())
    found = as_json("search", moved, query, "-k", 5, "--keep-query")
    hits = found["queries"][0]["hits"]
    assert len(hits) == 5
    scores = [hit["score"] for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert hits[0]["score"] == 1  # the query itself is in the index
    assert 0 <= found["queries"][0]["class_weight"] <= 1
    assert {hit["label"] for hit in hits} <= {"across", "down"}
    again = as_json("search", stripes / "stripes.index", query, "-k", 5, "--keep-query")
    assert found == again | {"index": str(moved)}


def test_indexing_gives_what_a_fit_gives(stripes, tmp_path):
    output = bagwise("index", stripes / "stripes.bagwise", stripes / "stripes.zip", "--out", tmp_path / "again.index")
    assert "24 images, 4 groups, compared by words and classes" in output
    query = stripes / "all" / "test"
    one, other = (as_json("search", index, query) for index in (tmp_path / "again.index", stripes / "stripes.index"))
    assert len(one["queries"]) == 12
    for mine, its in zip(one["queries"], other["queries"], strict=True):
        np.testing.assert_allclose([h["score"] for h in mine["hits"]], [h["score"] for h in its["hits"]], rtol=1e-5)
    assert "index of 24 images, compared by words and classes" in bagwise("info", tmp_path / "again.index")
    assert as_json("info", tmp_path / "again.index")["index"]["map"] == "spectral"
    maps = [ItemIndex.load(path).map for path in (tmp_path / "again.index", stripes / "stripes.index")]
    assert [(one.method, one.n_arranged) for one in maps] == [("spectral", 24)] * 2


def test_what_items_are_compared_by_can_be_chosen(words, tmp_path):
    made = (words / "words.bagwise", words / "words", "--force", "--out", tmp_path / "words.index")
    search = ("search", tmp_path / "words.index", "-t", "steel saw")
    for options, by, metric in (
        (("--by", "groups", "--map", "none"), "groups", "hellinger"),
        (("--by", "classes", "--map", "tsne"), "classes", "inner"),
        (("--metric", "chi2"), "words", "chi2"),
        (("--by", "both"), "both", "inner"),
    ):
        assert as_json("index", *made, *options)["by"] == by
        places = ItemIndex.load(tmp_path / "words.index").map
        assert ("none" if places is None else places.method) == (*options, "spectral")[3 if "--map" in options else -1]
        found = as_json(*search)
        assert (found["by"], found["metric"]) == (by, metric)
        assert {hit["label"] for hit in found["queries"][0]["hits"][:3]} == {"tools"}
    assert "compared by classes, then words:" in bagwise(*search)
    alone = as_json(*search, "--by", "words")
    assert (alone["by"], alone["queries"][0]["class_weight"]) == ("words", 0)
    assert "compared by words:" in bagwise(*search, "--by", "words")
    bagwise(*search, "--page", tmp_path / "found.html")
    assert "classes, then words" in (tmp_path / "found.html").read_text()
    assert "cannot be searched by 'groups'" in " ".join(bagwise(*search, "--by", "groups", code=1).split())
    said = " ".join(bagwise(*search, "--by", "size", code=1).split())
    assert "Unknown --by: 'size'. Accepted: 'both', 'classes', 'words'." in said
    assert "Unknown --by: 'size'" in bagwise("index", *made, "--by", "size", code=1)
    said = " ".join(bagwise("index", *made, "--by", "both", "--metric", "chi2", code=1).split())
    assert "--metric 'chi2' is for --by 'words' and --by 'groups', not for --by 'both'" in said


def test_items_are_added_to_an_index_and_removed(words, tmp_path):
    """The index is the same as if it had been made of what is left."""
    every = open_collection(words / "words").ids
    part, rest = tmp_path / "part", tmp_path / "rest"
    for folder, ids in ((part, every[:-6]), (rest, every[-6:])):
        for id in ids:
            (folder / id).parent.mkdir(parents=True, exist_ok=True)
            (folder / id).write_bytes((words / "words" / id).read_bytes())
    target, whole = tmp_path / "some.index", tmp_path / "whole.index"
    bagwise("index", words / "words.bagwise", part, "--out", target)
    before = target.read_bytes()
    said = CliRunner().invoke(app, ["index", str(target), "--add", str(rest)]).output
    assert f"6 added, 0 removed; the index has {len(every)} texts now" in said
    assert "On the map, 6 new items lie by their neighbours" in said
    assert "shown without their content" in said
    bagwise("index", words / "words.bagwise", words / "words", "--out", whole)
    query = ("-t", "steel saw", "-t", "bread and cheese", "-k", 40)
    found, expected = ([q["hits"] for q in as_json("search", path, *query)["queries"]] for path in (target, whole))
    assert [[hit["id"] for hit in hits] for hits in found] == [[hit["id"] for hit in hits] for hits in expected]
    for mine, its in zip(found, expected, strict=True):
        np.testing.assert_allclose([hit["score"] for hit in mine], [hit["score"] for hit in its], rtol=1e-6)
    one, other = ItemIndex.load(target), ItemIndex.load(whole)
    assert (one.ids, one.labels) == (other.ids, other.labels)
    assert len(one.map) == len(every)
    (tmp_path / "ids.txt").write_text("\n".join(every[-5:]) + "\r\n")
    told = as_json("index", target, "--remove", f"@{tmp_path / 'ids.txt'}", "--remove", every[-6])
    assert (told["n_removed"], told["n_added"], told["n_items"]) == (6, 0, len(every) - 6)
    assert ItemIndex.load(target).ids == tuple(every[:-6])
    again = as_json("index", target, "--add", part, "--replace", "--map", "none", "--out", tmp_path / "new.index")
    assert (again["n_added"], again["n_replaced"], again["map"]["method"]) == (len(every) - 6, len(every) - 6, None)
    assert target.read_bytes() == before  # what came is gone
    fresh = ["index", str(target), "--add", str(part), "--replace", "--out", str(tmp_path / "fresh.index")]
    assert "No item was left on the map, so new ones were arranged anew" in CliRunner().invoke(app, fresh).output
    np.testing.assert_allclose(
        ItemIndex.load(tmp_path / "fresh.index").map.points, ItemIndex.load(target).map.points, atol=1e-3
    )
    for arguments, message in (
        (("--add", part), f"{len(every) - 6} of {len(every) - 6} items are in the index already"),
        (("--remove", "nothing", "--remove", every[0]), "1 of 2 ids are not in this index"),
        (("--remove", "@nowhere.txt"), "The file of ids nowhere.txt cannot be read"),
        (("--add", rest, "--by", "words"), "--by is for new indexes"),
        ((part, "--add", rest), "SOURCE is for new indexes"),
        (("--replace", "--remove", every[0]), "--replace is for --add"),
        (("--replace", part), "--replace is for --add"),
        ((), "There is nothing to index"),
        (("--add", tmp_path / "nowhere"), "nowhere"),
    ):
        assert message in " ".join(bagwise("index", target, *arguments, code=1).split())
    assert "is not an index" in bagwise("index", words / "words.bagwise", "--add", rest, code=1)
    assert target.read_bytes() == before


def test_pages_of_search_show_pictures(stripes, tmp_path, monkeypatch):
    query = next((stripes / "all" / "test" / "down").iterdir())
    bagwise("search", stripes / "stripes.index", query, query, "--page", tmp_path / "found.html")
    assert (tmp_path / "found-2.html").exists()
    (tmp_path / "found.html").rename(tmp_path / "first.html")
    again = ("search", stripes / "stripes.index", query, query, "--page", tmp_path / "found.html")
    assert "found-2.html exists already. Give --force" in bagwise(*again, code=1)
    assert not (tmp_path / "found.html").exists()
    bagwise(*again, "--force")
    page = (tmp_path / "found.html").read_text()
    assert page.count("data:image/jpeg") >= 11
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    bagwise("search", stripes / "stripes.index", query, "--open", "--source", stripes / "stripes.zip")
    assert opened[0].startswith("file://")
    assert opened[0].endswith("results.html")


def test_cut_needs_no_training(stripes, tmp_path):
    bagwise("cut", stripes / "stripes.bagwise", "--groups", 2, "--out", tmp_path / "two.bagwise")
    assert Model.load(tmp_path / "two.bagwise") == Model.load(stripes / "stripes.bagwise").cut(2).trim()
    told = as_json("info", tmp_path / "two.bagwise")["model"]
    assert (told["n_words"], told["vocabulary_size"]) == (2, 12)
    assert "--groups must be from 1 to 2" in bagwise("cut", tmp_path / "two.bagwise", "--groups", 5, code=1)
    bagwise("cut", tmp_path / "two.bagwise", "--groups", 1)
    assert Model.load(tmp_path / "two-1.bagwise").n_groups == 1


def test_a_cut_without_a_classifier_says_so(tmp_path):
    MADE["texts"]().save(tmp_path / "m.bagwise")
    told = CliRunner().invoke(app, ["cut", str(tmp_path / "m.bagwise"), "--groups", "5"]).stderr
    assert "There is no classifier for 5 groups, so the new model cannot predict; sizes with one: 3." in told
    dataclasses.replace(MADE["texts"](), heads={}).save(tmp_path / "none.bagwise")
    told = " ".join(bagwise("evaluate", tmp_path / "none.bagwise", tmp_path, code=1).split())
    assert "This model has no classifier" in told


def test_compact_models_are_small_and_say_what_they_lost(tmp_path):
    source, model = write_text_folder(tmp_path / "things"), tmp_path / "things.bagwise"
    options = ("--groups", 5, "--folds", 0, "--no-page", "--no-index", "--jobs", 1, "--out", model)
    bagwise("fit", source, *options)
    whole = Model.load(model)
    output = bagwise("fit", source, *options, "--compact", "--force")
    words = whole.hierarchy.n_words
    assert f"Compact: 0 of {words} words have the hash of another, weights are rounded by at most 0." in output
    assert "0 of 36 predictions differ." in output
    assert Model.load(model).lookup.size == words
    assert "words have no names; 0 words lost to equal hashes" in " ".join(bagwise("info", model).split())
    whole.save(tmp_path / "whole.bagwise")
    found = as_json("cut", tmp_path / "whole.bagwise", "--groups", 5, "--compact", "--out", tmp_path / "small.bagwise")
    assert found["compact"]["n_words_lost"] == 0
    small = Model.load(tmp_path / "small.bagwise")
    np.testing.assert_array_equal(small.word_hashes, Model.load(model).word_hashes)
    assert small.predict(["a ripe pear"]).tolist() == ["fruit"]
    assert "This model is compact: it always has 5 groups" in bagwise("cut", model, "--groups", 6, code=1)


def test_evaluate_prints_the_errors_of_the_library(stripes, tmp_path):
    page = tmp_path / "tried.html"
    found = as_json("evaluate", stripes / "stripes.bagwise", stripes / "stripes.zip", "--page", page)
    expected = evaluate_model(Model.load(stripes / "stripes.bagwise"), stripes / "stripes.zip")
    assert found["sizes"] == list(expected.sizes)
    assert found["errors"] == list(expected.errors)
    assert found["confusion"] == expected.confusion(4).tolist()
    assert found["written"] == [str(page)]
    assert "a test on 12 items" in page.read_text()
    output = bagwise("evaluate", stripes / "stripes.bagwise", stripes / "stripes.zip")
    assert "<- this model" in output
    assert "rows are true classes" in output


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
def test_features_can_be_opened_again(stripes, tmp_path, ending):
    out = tmp_path / f"features.{ending}"
    bagwise("transform", stripes / "stripes.bagwise", stripes / "stripes.zip", "--out", out)
    features = open_collection(out, "table")
    source = open_collection(stripes / "stripes.zip")
    model = Model.load(stripes / "stripes.bagwise")
    assert (features.ids, features.labels.tolist(), features.splits) == (
        source.ids,
        source.labels.tolist(),
        source.splits,
    )
    assert features.feature_names == model.feature_names().tolist()
    found = features.X.toarray() if sp.issparse(features.X) else features.X
    np.testing.assert_allclose(found, model.transform(source).toarray(), rtol=1e-6, atol=1e-9)
    assert sp.issparse(features.X) == (ending == "npz")


def test_a_manifest_is_a_source_and_features_go_to_parts(stripes, tmp_path):
    with zipfile.ZipFile(stripes / "stripes.zip") as archive:
        archive.extractall(tmp_path / "stripes")
    manifest, model = tmp_path / "stripes.csv", stripes / "stripes.bagwise"
    found = as_json("list", tmp_path / "stripes", "--out", manifest)
    source = open_collection(tmp_path / "stripes")
    assert (found["n_items"], found["written"]) == (len(source), [str(manifest)])
    assert found["classes"] == {
        str(label): n for label, n in zip(*np.unique(source.labels, return_counts=True), strict=True)
    }
    assert "exists already. Give --force" in bagwise("list", tmp_path / "stripes", "--out", manifest, code=1)
    bagwise("transform", model, manifest, "--out", f"{tmp_path}/parts/")
    bagwise("transform", model, manifest, "--out", tmp_path / "one.parquet")
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["_SUCCESS", "part-00000.parquet"]
    parts, one = (open_collection(tmp_path / name) for name in ("parts/part-00000.parquet", "one.parquet"))
    np.testing.assert_array_equal(parts.X, one.X)
    assert one.ids == source.ids
    assert "Parquet" in bagwise("transform", model, manifest, "--histograms", "--out", tmp_path / "h.csv", code=1)
    assert "in / for a folder" in bagwise("transform", model, manifest, "--out", tmp_path / "h.xlsx", code=1)


def test_texts_are_found_by_texts(words, tmp_path):
    query = tmp_path / "query.txt"
    query.write_text("ripe pear apple")
    found = as_json("search", words / "words.index", query, "--query-text", "steel saw", "-k", 3)
    assert [entry["query"] for entry in found["queries"]] == ["steel saw", str(query)]
    assert [{hit["label"] for hit in entry["hits"]} for entry in found["queries"]] == [{"tools"}, {"fruit"}]
    bagwise("search", words / "words.index", "-t", "steel saw", "--page", tmp_path / "found.html")
    assert "steel" in (tmp_path / "found.html").read_text()


def test_nothing_is_like_a_query_without_known_words(words, tmp_path):
    page = tmp_path / "found.html"
    found = as_json("search", words / "words.index", "-t", "zyzzyva", "-t", "steel saw", "-k", 2, "--page", page)
    assert [len(entry["hits"]) for entry in found["queries"]] == [0, 2]
    assert "No results" in page.read_text()


def test_rows_of_tables_are_queries(tmp_path):
    source = write_table(tmp_path / "counts.csv")
    bagwise("fit", source, "--groups", 4, "--folds", 2, "--no-page", "--out", tmp_path / "counts.bagwise")
    assert not (tmp_path / "counts.report.html").exists()
    every = as_json("search", tmp_path / "counts.index", source, "-k", 1, "--keep-query")["queries"]
    assert [entry["hits"][0]["id"] for entry in every[:1]] == ["0"]
    one = as_json("search", tmp_path / "counts.index", source, "-k", 1, "--row", 7, "--keep-query")["queries"]
    assert one == every[7:8]
    assert "--row must be from 0 to 44" in bagwise("search", tmp_path / "counts.index", source, "--row", 99, code=1)


def test_the_command_line_wins_over_the_configuration(tmp_path):
    source = write_records(tmp_path / "texts.csv")
    config = tmp_path / "fit.toml"
    config.write_text('[fit]\ngroups = 3\nfolds = 2\ncriterion = "aib"\nmin-count = 1\n')
    fit = ("fit", source, "--config", config, "--no-index", "--no-page")
    assert as_json(*fit, "--out", tmp_path / "a.bagwise")["model"]["n_words"] == 3
    model = as_json(*fit, "--groups", 5, "--criterion", "mmi", "--out", tmp_path / "b.bagwise")["model"]
    assert (model["n_words"], model["criterion"], model["options"]["min_count"]) == (5, "mmi", 1)
    config.write_text("group = 3")
    assert "Did you mean 'groups'?" in bagwise(*fit, "--out", tmp_path / "c.bagwise", code=1)


def test_configurations_have_the_names_of_the_command_line():
    known = {name: one for name, one in options_of(FitOptions).items() if one.names}
    names = {
        one.names[0].removeprefix("--").partition("/")[0]: one.config for name, one in known.items() if name != "limits"
    }
    assert all(name == in_file for name, in_file in names.items())
    assert {"groups", "words", "frames", "jobs", "seed", "on-error"} <= names.keys()
    assert known["limits"].config == "limits"  # --limit, one by one


def test_a_cache_is_measured_step_by_step(tmp_path):
    source, cache = write_records(tmp_path / "texts.csv"), tmp_path / "cache"
    fit = ("fit", source, "--folds", 2, "--groups", 3, "--no-page", "--no-index", "--cache", cache, "--force")
    bagwise(*fit, "--out", tmp_path / "m.bagwise")
    (cache / "mine.txt").write_text("not of the cache")
    files = list(cache.rglob("*.arrays"))
    told = as_json("info", "--cache", cache)["cache"]
    assert (told["files"], told["bytes"]) == (len(files), sum(path.stat().st_size for path in files))
    assert {"groups", "errors", "histograms", "vocabulary"} == set(told["steps"])
    assert sum(step["bytes"] for step in told["steps"].values()) == told["bytes"]
    output = bagwise("info", "--cache", cache)
    assert "To clear it, remove the folder" in output
    assert "1 other file in this folder is not of the cache." in output
    shutil.rmtree(cache / "groups")
    assert set(as_json("info", "--cache", cache)["cache"]["steps"]) == {"errors", "histograms", "vocabulary"}
    assert "is not a folder" in bagwise("info", "--cache", tmp_path / "gone", code=1)
    for both in ((), (tmp_path / "m.bagwise", "--cache", cache)):
        assert "Give one: a FILE" in bagwise("info", *both, code=1)


def test_a_dry_run_writes_nothing(stripes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = bagwise("fit", stripes / "stripes.zip", *IMAGES, "--dry-run", "--cache", tmp_path / "cache")
    assert "12 images, 2 classes; 12 more in the test split" in output
    assert "Memory: about" in output
    assert "nothing was written" in output
    assert list(tmp_path.iterdir()) == []
    plan = as_json("fit", stripes / "stripes.zip", *IMAGES, "--dry-run")["plan"]
    assert (plan["n_words"], plan["sizes"], plan["n_folds"]) == (12, [2, 4, 5, 10, 12], 2)


def test_criteria_are_compared_on_the_same_folds(tmp_path):
    source = write_records(tmp_path / "texts.csv")
    page = tmp_path / "compared.html"
    common = (source, "--folds", 2, "--sizes", "2,5", "--criteria", "csm, aib")
    found = as_json("compare", *common, "--page", page)
    assert [entry["name"] for entry in found["criteria"]] == ["csm", "aib"]
    assert found["sizes"] == [2, 5]
    assert "csm" in page.read_text()
    table = bagwise("compare", *common).splitlines()
    assert table[1].split() == ["groups", "csm", "aib"]
    everything = as_json("compare", source, "--folds", 2, "--sizes", "2,5", "--page", page, "--force")
    assert {"aib", "classifier", "mlt"} <= {entry["name"] for entry in everything["criteria"]}
    assert everything["references"][0]["name"] == "all words, TF-IDF"
    assert "of the references is" in page.read_text()
    table = bagwise("compare", source, "--folds", 2, "--sizes", "2,5").splitlines()
    assert table[1].split() == ["groups", "2", "5", "time"]
    assert any(line.startswith("SVD") for line in table)
    assert "Did you mean 'csm'" in bagwise("compare", source, "--criteria", "cms", code=1)
    assert "integers separated by commas" in bagwise("compare", source, "--sizes", "2,five", code=1)
    assert "--criterion" in bagwise("compare", source, "--criterion", "csm", code=2)  # it would do nothing


@pytest.mark.parametrize("groups", ["--5", "²", "some"])
def test_what_is_no_number_of_groups_is_refused(tmp_path, groups):
    assert "--groups must be" in bagwise("fit", write_records(tmp_path / "texts.csv"), f"--groups={groups}", code=1)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("fit", "SOURCE", "--ngrams", 0), "--ngrams must be at least 1"),
        (("fit", "SOURCE", "--modality", "text"), "Unknown --modality: 'text'. Did you mean 'texts'?"),
        (("fit", "SOURCE", "--encoding", "utf8000"), "--encoding 'utf8000' is not known"),
        (("compare", "SOURCE", "--criteria", "csm,aibb"), "Unknown --criteria: 'aibb'. Did you mean 'aib'?"),
        (("cluster", "MODEL", "SOURCE", "-c", 2, "--method", "means"), "Unknown --method: 'means'"),
        (("index", "MODEL", "SOURCE", "--metric", "chi"), "Unknown --metric: 'chi'. Did you mean 'chi2'?"),
        (("index", "MODEL", "SOURCE", "--map", "tsn"), "Unknown --map: 'tsn'. Did you mean 'tsne'?"),
        (("fit", "SOURCE", "--map", "pca"), "Unknown --map: 'pca'"),
        (("cut", "MODEL", "--groups", 9999), "--groups must be from 1 to"),
    ],
)
def test_errors_name_the_option(words, tmp_path, monkeypatch, command, said):
    monkeypatch.chdir(tmp_path)
    paths = {"SOURCE": write_records(tmp_path / "texts.csv"), "MODEL": words / "words.bagwise"}
    assert said in bagwise(*(paths.get(argument, argument) for argument in command), code=1)


def test_export_writes_what_onnxruntime_reads(words, tmp_path):
    import onnxruntime

    bagwise("export", words / "words.bagwise", "--onnx", tmp_path / "words.onnx")
    run = onnxruntime.InferenceSession(tmp_path / "words.onnx")
    model = Model.load(words / "words.bagwise")
    counts = model.histograms([text for text, _ in texts(n_each=2)]).toarray()
    features = run.run(["features"], {run.get_inputs()[0].name: counts})[0]
    np.testing.assert_allclose(features, model.group(counts), rtol=1e-5, atol=1e-6)


def test_commands_that_are_printed_can_be_pasted(tmp_path, monkeypatch):
    called = tmp_path / "a folder" / "bagwise"
    called.parent.mkdir()
    called.write_text("#!/bin/sh")
    called.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(called), "demo"])
    monkeypatch.setenv("PATH", "/bin")
    assert shlex.split(command_line("explore", "my photos.index")) == [str(called), "explore", "my photos.index"]
    monkeypatch.setenv("PATH", str(called.parent))
    assert command_line("explore", "a.index") == "bagwise explore a.index"
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "bagwise" / "__main__.py"), "demo"])
    assert shlex.split(command_line("explore")) == [sys.executable, "-m", "bagwise", "explore"]


def test_the_demo_ends_with_the_place_of_its_report(tmp_path, monkeypatch):
    from sklearn import datasets

    bunch = datasets.load_digits()
    bunch.images, bunch.target = bunch.images[:120], bunch.target[:120]
    monkeypatch.setattr(datasets, "load_digits", lambda: bunch)
    for _ in range(2):  # a second demo replaces the first
        lines = bagwise("demo", "--out", tmp_path / "demo").splitlines()
        assert lines[-2] == f"Open the report: {(tmp_path / 'demo' / 'digits.report.html').resolve()}"
        command = shlex.split(lines[-1].removeprefix("Explore it in the browser: "))
        assert command == [sys.executable, "-m", "bagwise", "explore", str(tmp_path / "demo" / "digits.index")]
    assert open_workspace(command[-1]).items is not None
    assert "Handwritten" not in lines[0]
    assert (tmp_path / "demo" / "digits.report.html").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    assert "not from an earlier demo" in bagwise("demo", "--out", tmp_path / "mine", code=1)


def test_warming_up_says_how_long_it_took(monkeypatch):
    called = []
    monkeypatch.setattr("bagwise.warmup", lambda: called.append(True), raising=False)
    assert as_json("warmup")["seconds"] >= 0
    assert called == [True]


def test_markdown_for_papers(words, tmp_path):
    out = ("--out", tmp_path / "m.bagwise", "--markdown", tmp_path / "paper", "--no-index", "--no-page")
    written = as_json("fit", words / "words", *TEXTS, *out)["written"]
    assert written[0] == str(tmp_path / "m.bagwise")
    assert (tmp_path / "paper" / "report.md").exists()


def test_missing_libraries_of_reports_are_named_before_any_work(words, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    out = ("--out", tmp_path / "m.bagwise", "--markdown", tmp_path / "paper", "--no-index", "--no-page")
    assert "bagwise[app]" in bagwise("fit", words / "words", *TEXTS, *out, code=1)
    assert list(tmp_path.iterdir()) == []


def test_json_is_one_object_also_for_errors(tmp_path):
    found = as_json("info", tmp_path / "nothing.bagwise", code=1)
    assert found["exit_code"] == 1
    assert "does not exist" in found["error"]
    assert json.dumps(found)


def test_csv_files_hold_no_formulas_and_are_read_back_as_they_were(words, tmp_path):
    """What programs for tables would compute gets an apostrophe, which reading takes away; --raw leaves it out."""
    ids = ["=1+1", "@x", "-y", "+", "-1.5", "plain", "'=z", "'tis", "-2+3+cmd|x!A0", "+7e-3"]
    labels = ["=a", "fruit"] * 5
    rows = [json.dumps({"id": id, "text": "ripe pear", "label": label}) for id, label in zip(ids, labels, strict=True)]
    source, features = tmp_path / "texts.jsonl", tmp_path / "features.csv"
    source.write_text("\n".join(rows))
    bagwise("transform", words / "words.bagwise", source, "--out", features)
    table = list(csv.reader(features.read_text().splitlines()))
    written = ["'=1+1", "'@x", "'-y", "'+", "-1.5", "plain", "''=z", "'tis", "'-2+3+cmd|x!A0", "+7e-3"]
    assert [row[0] for row in table[1:]] == written
    assert [row[1] for row in table[1:3]] == ["'=a", "fruit"]
    found = open_collection(features)
    assert (found.ids, found.labels.tolist()) == (ids, labels)
    for command, *options in (("predict",), ("cluster", "--clusters", 1)):
        bagwise(command, words / "words.bagwise", source, *options, "--out", tmp_path / f"{command}.csv")
        bagwise(command, words / "words.bagwise", source, *options, "--out", tmp_path / "raw.csv", "--raw", "--force")
        quoted, raw = (
            list(csv.reader((tmp_path / f"{name}.csv").read_text().splitlines())) for name in (command, "raw")
        )
        assert [row[0] for row in quoted[1:4]] == ["'=1+1", "'@x", "'-y"]
        assert [row[0] for row in raw[1:]] == ids
    (tmp_path / "labels.csv").write_text("filename,label\n'=a.txt,'=b\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "=a.txt").write_text("pear")
    assert open_collection(folder, labels=tmp_path / "labels.csv").labels.tolist() == ["=b"]
