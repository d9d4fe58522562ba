"""`bagwise cluster`: from a source, a model or an index to named clusters."""

import csv
import json
import shutil

import numpy as np
import pytest

from bagwise.app import ItemIndex
from commands import as_json, bagwise
from small_sources import WORDS, texts, write_table


@pytest.fixture(scope="module")
def posts(tmp_path_factory):
    """Texts without labels in one folder, whose kinds are in their names; a copy of one of them, and an empty one."""
    folder = tmp_path_factory.mktemp("cluster") / "posts"
    folder.mkdir()
    for number, (text, kind) in enumerate(texts(n_each=20)):
        (folder / f"{kind}{number:03}.txt").write_text(text)
    shutil.copy(folder / "fruit000.txt", folder / "copy.txt")
    (folder / "void.txt").write_text("?")
    return folder


@pytest.fixture(scope="module")
def clustered(posts):
    """What the command prints and writes."""
    out = posts.parent / "posts.bagwise"
    told = as_json("cluster", posts, "-c", 3, "--model-out", out, "--groups", 8, "--out", posts.parent / "found.csv")
    return told, posts.parent


def test_one_command_finds_and_names_clusters(clustered):
    told, _folder = clustered
    assert [len(told["clusters"]), told["clusters"][0]["number"]] == [3, 0]
    by_name = {one["name"]: one for one in told["clusters"]}
    assert len(by_name) == 3
    kinds = set()
    for one in told["clusters"]:
        kind = {kind for kind, words in WORDS.items() if one["terms"][0]["name"] in words}
        assert all(set(one["name"].split(", ")) <= set(WORDS[k]) for k in kind)
        inside = [item["id"] for item in told["items"] if item["cluster"] == one["number"] and item["id"] != "copy.txt"]
        assert {id[:5] for id in inside} == {next(iter(kind))}
        assert {one["central"], one["outermost"], *one["typical"]} <= {*inside, "copy.txt"}
        assert one["terms"][0]["inside"] > one["terms"][0]["outside"]
        kinds |= kind
    assert kinds == set(WORDS)
    found = {item["id"]: item for item in told["items"]}
    assert found["copy.txt"]["cluster"] == found["fruit000.txt"]["cluster"]
    assert found["void.txt"] == {"id": "void.txt", "cluster": None, "certainty": 0.0}
    assert told["agreement"] is None
    assert [name.rsplit("/", 1)[-1] for name in told["written"]] == [
        "posts.bagwise",
        "posts.index",
        "found.csv",
        "posts.report.html",
    ]


def test_csv_report_and_index_have_the_same_names(clustered):
    told, folder = clustered
    names = [one["name"] for one in told["clusters"]]
    with open(folder / "found.csv", newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert list(rows["copy.txt"]) == ["id", "cluster", "label", "name", "certainty"]
    assert "void.txt" not in rows
    for item in told["items"]:
        if item["cluster"] is not None:
            assert rows[item["id"]]["name"] == names[item["cluster"]]
            assert abs(float(rows[item["id"]]["certainty"]) - item["certainty"]) < 1e-4
    index = ItemIndex.load(folder / "posts.index")
    assert list(index.clusters.names) == names
    np.testing.assert_array_equal(index.map.clusters, index.clusters.labels)
    page = (folder / "posts.report.html").read_text()
    assert page.index('id="clusters"') < page.index('id="map"') < page.index('id="terms"') < page.index('id="setup"')
    assert all(name in page for name in names)


def test_the_same_seed_gives_the_same_bytes(clustered, posts, tmp_path):
    _, folder = clustered
    options = ("-c", 3, "--groups", 8, "--no-page")
    bagwise("cluster", posts, *options, "--model-out", tmp_path / "posts.bagwise", "--out", tmp_path / "found.csv")
    for name in ("posts.bagwise", "posts.index", "found.csv"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes(), name


def test_the_number_is_a_suggestion(posts, tmp_path):
    out = ("--model-out", tmp_path / "m.bagwise", "--groups", 8, "--no-index", "--no-page")
    said = bagwise("cluster", posts, *out)
    assert "is a suggestion: the number at which halves of the items agree most" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.bagwise", "m.clusters.csv"]
    told = as_json("cluster", posts, *out, "--force")
    numbers = told["numbers"]
    assert numbers["suggested"] == len(told["clusters"]) == numbers["sizes"][int(np.argmax(numbers["stability"]))]
    assert numbers["suggested"] not in numbers["others"]


def test_clusters_become_labels_of_a_fit(clustered, posts, tmp_path):
    _, folder = clustered
    labels = tmp_path / "labels.csv"
    told = as_json("cluster", folder / "posts.bagwise", posts, "-c", 3, "--labels-out", labels, "--min-certainty", 0.6)
    kept = [item["id"] for item in told["items"] if item["certainty"] >= 0.6]
    with open(labels, newline="") as file:
        assert [row["filename"] for row in csv.DictReader(file)] == kept
    model = as_json("fit", posts, "--labels", labels, "--out", tmp_path / "m.bagwise", "--no-index", "--no-page")
    assert set(model["model"]["classes"]) == {one["name"] for one in told["clusters"]}
    assert model["model"]["path"]["errors"][-1] < 0.1


def test_new_items_are_assigned_and_an_index_is_clustered_by_itself(clustered, posts, tmp_path):
    told, folder = clustered
    new = tmp_path / "new"
    new.mkdir()
    for number, (text, kind) in enumerate(texts(n_each=4, seed=5)):
        (new / f"{kind}{number:03}.txt").write_text(text)
    index = tmp_path / "posts.index"
    shutil.copy(folder / "posts.index", index)
    before = index.read_bytes()
    given = as_json("cluster", "--assign", index, new, "--out", tmp_path / "new.csv")
    cluster_of = {item["id"][:5]: item["cluster"] for item in told["items"] if item["cluster"] is not None}
    del cluster_of["copy."]
    assert [item["cluster"] for item in given["items"]] == [cluster_of[item["id"][:5]] for item in given["items"]]
    assert index.read_bytes() == before
    assert "has clusters already" in bagwise("cluster", index, "-c", 2, code=1)
    again = as_json("cluster", index, "-c", 3, "--force", "--out", tmp_path / "again.csv")
    assert [item["cluster"] for item in again["items"]] == [item["cluster"] for item in told["items"]]
    assert [one["name"] for one in again["clusters"]] == [one["name"] for one in told["clusters"]]
    fewer = as_json("cluster", index, "-c", 2, "--force", "--method", "spectral")
    assert [fewer["method"], len(fewer["clusters"])] == ["spectral", 2]
    assert len(ItemIndex.load(index).clusters) == 2


def test_labels_are_not_used_but_compared(tmp_path):
    table = write_table(tmp_path / "counts.csv", n_each=15)
    out = ("--model-out", tmp_path / "counts.bagwise", "-c", 3)
    told = as_json("cluster", table, *out)
    assert told["model"]["classes"] == []
    assert told["agreement"]["nmi"] > 0.9
    assert [told["agreement"]["n_items"], told["agreement"]["n_classes"]] == [45, 3]
    unlabelled = tmp_path / "only.csv"
    rows = [line.split(",", 1)[1] for line in table.read_text().splitlines()]
    unlabelled.write_text("\n".join(rows))
    other = as_json("cluster", unlabelled, "--model-out", tmp_path / "only.bagwise", "-c", 3)
    assert [item["cluster"] for item in other["items"]] == [item["cluster"] for item in told["items"]]
    assert "which were not used: NMI" in (tmp_path / "counts.report.html").read_text()
    assert "NMI" in bagwise("cluster", table, *out, "--force")


def test_what_is_wrong_is_told(clustered, posts, tmp_path):
    _, folder = clustered
    model, index, new = folder / "posts.bagwise", folder / "posts.index", ("--model-out", tmp_path / "new.bagwise")
    for arguments, part in (
        ((model,), "is a model: it knows words, but no items. Give the items too"),
        ((posts, model), "is a model, which comes first"),
        ((posts, index), "is an index, which comes first"),
        ((posts, posts), "are two sources. Cluster one at a time"),
        ((tmp_path / "gone", posts), "gone does not exist"),
        ((index, posts), "has items already"),
        ((model, posts, "--groups", 5), "--groups is for learning words"),
        ((model, posts, "--words", 5), "--words is for learning words"),
        ((model, posts, "--method", "manifold", "-c", 2), "learns words of its own"),
        ((model, posts, "-c", 500), "only 61 items with words"),
        (("--assign", model, posts), "--assign takes an index"),
        (("--assign", index, posts, "-c", 5), "--clusters is for finding clusters"),
        (("--assign", index, posts, "--method", "kmeans"), "--method is for finding clusters"),
        (("--assign", index, posts, "--seed", 5), "--seed is for finding clusters"),
        ((posts, "--criterion", "csm", *new), "labels are not used here"),
        ((posts, "--method", "means", *new), "Unknown --method"),
        ((posts, "--method", "manifold", "-c", 2, *new), "texts have words already"),
        ((posts, "--model-out", model), "exists already"),
        ((posts, "--network", "n.onnx"), "--network is for a model"),
    ):
        said = bagwise("cluster", *arguments, code=1)
        assert part in said, said
    bagwise("cluster", posts, "-c", 0, code=2)
    bagwise("cluster", posts, "--min-certainty", 1.5, code=2)
    for n, part in ((0, "it is empty"), (1, "learning needs at least 2"), (3, "Give the number of clusters")):
        few = tmp_path / f"few{n}"
        few.mkdir()
        for path in sorted(posts.glob("fruit*"))[:n]:
            shutil.copy(path, few)
        assert part in bagwise("cluster", few, "--model-out", tmp_path / "few.bagwise", code=1)
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


def test_labels_of_the_index_are_compared(clustered, posts, tmp_path):
    table = write_table(tmp_path / "counts.csv", n_each=10)
    bagwise("fit", table, "--folds", 0, "--out", tmp_path / "m.bagwise", "--no-page")
    told = as_json("cluster", tmp_path / "m.index", "-c", 3)
    assert told["agreement"]["nmi"] > 0.9
    said = bagwise("cluster", tmp_path / "m.index", "-c", 3, "--force")  # an index keeps one label of several
    assert "Agreement with the first labels of 30 items, 3 classes: NMI" in said


def test_no_label_of_several_is_lost(clustered, posts, tmp_path):
    told, folder = clustered
    texts = {path.name: path.read_text() for path in sorted(posts.glob("*0*.txt"))}
    labels = {name: [name[:5], "odd"] if number % 2 else [name[:5]] for number, name in enumerate(texts)}
    rows = [{"id": name, "text": text, "label": labels[name]} for name, text in texts.items()]
    (tmp_path / "posts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    runs = (
        (tmp_path / "posts.jsonl", "--model-out", tmp_path / "new.bagwise", "-c", 3),
        (folder / "posts.bagwise", tmp_path / "posts.jsonl", "-c", 3),
        ("--assign", folder / "posts.index", tmp_path / "posts.jsonl"),
    )
    for number, arguments in enumerate(runs):
        out = tmp_path / f"{number}.csv"
        told = as_json("cluster", *arguments, "--out", out)
        with open(out, newline="") as file:
            found = {row["id"]: row["label"] for row in csv.DictReader(file)}
        assert found == {name: "|".join(some) for name, some in labels.items()}
        assert told.get("agreement") is None  # with which of them?
