"""Groups of words can be listed, sorted, written to a file, and named; names stay with the groups."""

import csv
import json
import re

import numpy as np
import pytest
from filelock import FileLock, Timeout

from bagwise import Model
from bagwise.app import ItemIndex
from bagwise.app.cli import groups
from bagwise.runtime import load
from commands import as_json, bagwise
from small_sources import WORDS, write_records


@pytest.fixture(scope="module")
def news(tmp_path_factory):
    """A model of texts with 6 groups."""
    folder = tmp_path_factory.mktemp("groups")
    write_records(folder / "texts.csv")
    bagwise("fit", folder / "texts.csv", "--folds", 0, "--groups", 6, "--no-page", "--no-index", "--out", folder / "m")
    return folder / "m"


def test_all_words_of_all_groups_are_listed_with_weights(news, tmp_path):
    model = Model.load(news)
    told = as_json("groups", news)
    assert [one["group"] for one in told["groups"]] == list(range(6))
    assert [one["name"] for one in told["groups"]] == model.group_names().tolist()
    listed = {row["word"]: one["group"] for one in told["groups"] for row in one["words"]}
    assert listed == dict(zip(model.word_names, model.lookup.tolist(), strict=True))
    for one in told["groups"]:
        numbers = [model.word_names.index(row["word"]) for row in one["words"]]
        assert [row["occurrences"] for row in one["words"]] == model.word_totals[numbers].tolist()
        np.testing.assert_allclose([row["weight"] for row in one["words"]], model.word_weights[numbers])
        weights = model.head.coef[:, one["group"]] - model.head.coef[:, one["group"]].mean()
        assert one["class"] == model.classes[weights.argmax()]
        assert one["class_weight"] == pytest.approx(weights.max(), rel=1e-5)
    spoken = {row["word"]: one["class"] for one in told["groups"] for row in one["words"]}
    assert np.mean([spoken[word] == label for label, words in WORDS.items() for word in words]) > 0.9

    for ending in ("csv", "json"):
        bagwise("groups", news, "--out", tmp_path / f"words.{ending}")
    with open(tmp_path / "words.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["word"]: int(row["group"]) for row in rows} == listed
    assert json.loads((tmp_path / "words.json").read_text()) == told["groups"]


def test_groups_are_sorted_and_chosen(news):
    def order(*options):
        return as_json("groups", news, *options)["groups"]

    sizes = [len(one["words"]) for one in order("--sort", "size")]
    assert sizes == sorted(sizes, reverse=True)
    weights = [one["class_weight"] for one in order("--sort", "weight")]
    assert weights == sorted(weights, reverse=True)
    by_class = [(one["class"], -one["class_weight"]) for one in order("--sort", "by-class")]
    assert by_class == sorted(by_class)
    assert [one["group"] for one in order("--group", 4, "--group", 1)] == [4, 1]
    assert len(order("--groups", 3)) == 3
    printed = bagwise("groups", news, "--group", 2)
    assert all(row["word"] in printed for row in order("--group", 2)[0]["words"])
    assert len(bagwise("groups", news).splitlines()) == 8
    assert "--group must be from 0 to 5" in bagwise("groups", news, "--group", 6, code=1)
    assert "Unknown --sort: 'length'" in bagwise("groups", news, "--sort", "length", code=1)


def test_names_are_kept_by_files_cuts_and_features(news, tmp_path):
    named = tmp_path / "named.bagwise"
    bagwise("groups", news, "--rename", "3=space flight", "--rename", "0=first", "--out", named)
    model = Model.load(named)
    assert model.given_names == {0: "first", 3: "space flight"}
    assert model.group_names().tolist()[3] == model.feature_names().tolist()[3] == "space flight"
    assert "space flight" in bagwise("info", named)
    assert "space flight" in bagwise("groups", named)
    assert "space flight" in model.compact().group_names()
    assert load(named).header["group_names"] == {"0": "first", "3": "space flight"}
    text = "apple pear hammer wren sing the"
    assert {term.name for term in model.explain(text).groups()} & {"first", "space flight"}

    # the same words in another cut have the same name, others have none
    for n in (1, 3, 5, 8, 12):
        cut = model.cut(n)
        for number, words in enumerate(cut.groups()):
            same = [name for old, name in model.given_names.items() if np.array_equal(model.groups()[old], words)]
            assert ([cut.given_names[number]] if number in cut.given_names else []) == same
        assert Model.load(cut.save(tmp_path / "cut")) == cut

    # a list that was edited
    bagwise("groups", named, "--out", tmp_path / "words.csv")
    edited = (tmp_path / "words.csv").read_text().replace("space flight", "rockets, ships")
    (tmp_path / "words.csv").write_text(edited.replace("rockets, ships", '"rockets, ships"'))
    bagwise("groups", named, "--rename", tmp_path / "words.csv", "--force")
    assert Model.load(named).given_names == {0: "first", 3: "rockets, ships"}
    (tmp_path / "names.json").write_text('{"1": "second"}')
    bagwise("groups", named, "--rename", tmp_path / "names.json", "--force")
    assert Model.load(named).given_names == {0: "first", 1: "second", 3: "rockets, ships"}


def test_names_that_cannot_be_are_refused(news, tmp_path):
    out = ["--out", tmp_path / "new.bagwise"]
    assert "numbered from 0 to 5" in bagwise("groups", news, "--rename", "6=x", *out, code=1)
    assert "two names" in bagwise("groups", news, "--rename", "1=x", "--rename", "1=y", *out, code=1)
    assert "must differ" in bagwise("groups", news, "--rename", "1=x", "--rename", "2=x", *out, code=1)
    assert "printable characters" in bagwise("groups", news, "--rename", "1= ", *out, code=1)
    assert "such as 3=NAME" in bagwise("groups", news, "--rename", "nothing.csv", *out, code=1)
    assert "exists already" in bagwise("groups", news, "--rename", "1=x", code=1)
    assert "must end in .csv or .json" in bagwise("groups", news, "--out", tmp_path / "x.txt", code=1)
    assert not (tmp_path / "new.bagwise").exists()


def test_groups_of_an_index_are_renamed_in_it(news, tmp_path):
    index = tmp_path / "texts.index"
    bagwise("index", news, news.parent / "texts.csv", "--out", index)
    before = ItemIndex.load(index)
    bagwise("groups", index, "--rename", "1=things", "--force")
    renamed = ItemIndex.load(index)
    assert renamed.model.given_names == {**before.model.given_names, 1: "things"}
    assert renamed.ids == before.ids
    assert renamed.undo().model == before.model
    bagwise("groups", index, "--rename", "1=things", "--out", tmp_path / "named")
    assert Model.load(tmp_path / "named").given_names == {1: "things"}


def test_names_of_another_cut_do_not_change_the_size_of_a_model(news, tmp_path):
    before = news.read_bytes()
    assert "--out" in bagwise("groups", news, "--groups", 3, "--rename", "1=things", "--force", code=1)
    assert news.read_bytes() == before
    bagwise("groups", news, "--groups", 3, "--rename", "1=things", "--out", tmp_path / "three")
    assert (Model.load(tmp_path / "three").n_groups, Model.load(tmp_path / "three").given_names) == (3, {1: "things"})


def test_lists_of_other_cuts_and_in_other_encodings_give_no_names(news, tmp_path):
    named = ("--out", tmp_path / "named")
    for ending in ("csv", "json"):
        bagwise("groups", news, "--groups", 3, "--out", tmp_path / f"three.{ending}")
        message = bagwise("groups", news, "--rename", tmp_path / f"three.{ending}", *named, code=1)
        assert "other words" in message
        assert "--groups" in message
    (tmp_path / "latin.csv").write_bytes("group,name\n1,Gr\xfcn\n".encode("latin-1"))
    assert "UTF-8" in bagwise("groups", news, "--rename", tmp_path / "latin.csv", *named, code=1)
    assert not (tmp_path / "named").exists()
    # a few words that a program for tables has changed do no harm
    bagwise("groups", news, "--out", tmp_path / "words.csv")
    lines = (tmp_path / "words.csv").read_text().splitlines()
    largest = max(range(6), key=lambda k: sum(line.startswith(f"{k},") for line in lines))
    rows = list(csv.reader(lines))
    changed = next(row for row in rows if row[0] == str(largest))
    changed[2] = changed[2].upper()
    renamed = [[row[0], "things", *row[2:]] if row[0] == str(largest) else row for row in rows]
    with open(tmp_path / "words.csv", "w", newline="") as file:
        csv.writer(file).writerows(renamed)
    bagwise("groups", news, "--rename", tmp_path / "words.csv", *named)
    assert Model.load(tmp_path / "named").given_names == {largest: "things"}


def test_a_model_that_is_renamed_in_its_place_is_locked_from_loading_on(news, tmp_path, monkeypatch):
    """An edit that the explorer saved between loading and saving would be undone."""
    path = tmp_path / "m"
    path.write_bytes(news.read_bytes())
    load_model = groups.load_model

    def load_locked(place):
        with pytest.raises(Timeout):
            FileLock(place.with_name(f".{place.name}.lock")).acquire(timeout=0)
        return load_model(place)

    monkeypatch.setattr(groups, "load_model", load_locked)
    bagwise("groups", path, "--rename", "0=first", "--force")
    assert Model.load(path).given_names == {0: "first"}


def test_one_of_a_thing_is_in_the_singular(news, tmp_path):
    (tmp_path / "texts" / "only").mkdir(parents=True)
    (tmp_path / "texts" / "only" / "a.txt").write_text("a ripe apple")
    one = tmp_path / "one.bagwise"
    texts = bagwise("cut", news, "--groups", 1, "--out", one) + bagwise("info", one) + bagwise("groups", one)
    texts += bagwise("list", tmp_path / "texts")
    texts += bagwise("transform", one, tmp_path / "texts", "--out", tmp_path / "features.csv")
    for part in ("merged into 1 group by", "in 1 group.", "1 text of 1 class", "1 item, 1 feature"):
        assert part in texts
    assert not re.search(r"\b1 (groups|words|classes|items|features|texts)\b", texts)
