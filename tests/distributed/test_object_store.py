"""Shards in a bucket, listed and read by the workers of a cluster: the collection and the model of one process."""

import logging
import pickle

import numpy as np
import pytest

from bagwise import BagwiseError, fit_model, open_collection
from bagwise.app import build_index, evaluate_model
from bagwise.app.options import FitOptions
from bagwise.app.training.items import open_source
from bagwise.distributed.executors import LocalExecutor, executor_of
from bagwise.sources import archives, shards
from bagwise.sources.places import list_place
from commands import as_json
from model_cases import saved
from object_store import served, write_shards

OPTIONS = {"descriptor": "patches", "n_words": 12, "n_groups": 4, "folds": 2, "n_jobs": 1}
N_SHARDS, N_EACH = 6, 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), N_SHARDS, N_EACH)


@pytest.fixture(scope="module")
def store(folder):
    with served(folder) as store:
        yield store


@pytest.fixture
def only_there(monkeypatch):
    """This process may not list a shard."""

    def refuse(*given):
        raise AssertionError("a shard was listed in the process of the client")

    monkeypatch.setattr(shards, "list_archive", refuse)


def equal_collections(one, two):
    assert (one.ids, one.label_sets, one.splits, one.modality) == (two.ids, two.label_sets, two.splits, two.modality)
    assert one == two
    for part, same in zip(one.partitions(items_per_partition=5), two.partitions(items_per_partition=5), strict=True):
        assert part.open() == same.open()


@pytest.mark.parametrize("pattern", ["shard-{000..005}.tar", "shard-00[0-5].tar", ""])
def test_workers_list_shards(client, store, folder, pattern, only_there, monkeypatch):
    told = []
    options = FitOptions(storage_options=store.options)
    executor = executor_of(client, lambda *step: told.append(step))
    there = open_source(store.url(f"data/{pattern}"), options, executor)
    local = open_source(folder / pattern, FitOptions(), executor)
    monkeypatch.undo()
    equal_collections(there, open_collection(store.url(f"data/{pattern}"), storage_options=store.options))
    equal_collections(local, open_collection(folder / pattern))
    assert [one for one in told if one[0] == "Listing shards"][-1] == ("Listing shards", N_SHARDS, N_SHARDS)


def test_what_a_worker_sends_is_small(folder):
    whole = open_collection(folder)
    listing = shards._Listing("images", whole.decoder, frozenset([".png"]), True, whole.limits)
    (whole,) = shards.shards_of_listing(list_place(folder)).parts(1)
    n_items = N_SHARDS * N_EACH
    assert len(pickle.dumps(listing(whole))) < n_items * 40 + N_SHARDS * 600


def test_compressed_shards_are_unpacked_where_they_are_read(client, tmp_path, only_there, monkeypatch):
    folder = write_shards(tmp_path / "packed", 2, 4, compressed=True)
    archives._unpacked.cache_clear()
    there = open_source(folder, FitOptions(), executor_of(client))
    assert archives._unpacked.cache_info().currsize <= 1  # the first, whose names tell the modality
    monkeypatch.undo()
    here = open_collection(folder)
    equal_collections(there, here)
    for one, two in zip(there, here, strict=True):
        np.testing.assert_array_equal(one.load(), two.load())


def test_a_fit_of_shards_nobody_has_listed(client, store, folder, only_there, monkeypatch, tmp_path):
    store.requests.clear()
    pattern, given = store.url("data/shard-{000..005}.tar"), {"storage_options": store.options}
    there = fit_model(pattern, client=client, partition=N_EACH, **OPTIONS, **given)
    local = fit_model(folder / "shard-{000..005}.tar", client=client, **OPTIONS)
    asked = [store.asked("GET", f"shard-{k:03}") for k in range(N_SHARDS)]
    # listed and read by workers, and looked at for the modality and colours here: each shard is one block
    assert max(map(len, asked)) <= 4
    evaluated = evaluate_model(there, pattern, client=client, **given)
    index = build_index(there, pattern, tmp_path / "x.index", client=client, **given)
    monkeypatch.undo()
    here = fit_model(folder / "shard-{000..005}.tar", **OPTIONS)
    assert there.hierarchy == here.hierarchy
    assert there.heads == here.heads
    assert saved(local, tmp_path) == saved(here, tmp_path)
    np.testing.assert_array_equal(evaluated.predicted, evaluate_model(here, folder).predicted)
    assert len(index) == N_SHARDS * N_EACH


def test_with_a_cache_shards_are_not_fetched_again(client, store, folder):
    """Results are found by the content of items, which is known from when they were read."""
    pattern, given = store.url("data/shard-{000..005}.tar"), OPTIONS | {"storage_options": store.options}
    given |= {"cache": store.url("cache"), "partition": N_EACH, "client": client}
    store.requests.clear()
    first = fit_model(pattern, **given)
    asked = [store.asked("GET", f"shard-{k:03}") for k in range(N_SHARDS)]
    assert max(map(len, asked)) <= 4
    again = fit_model(pattern, **given)
    assert "words of 48 images" in again.fit_.cached
    assert again.hierarchy == first.hierarchy == fit_model(folder, **OPTIONS).hierarchy


def test_ctrl_c_and_errors_end_the_listing(client, store, folder):
    def interrupt(step, done, total):
        if step == "Listing shards" and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_model(folder, client=client, progress=interrupt, **OPTIONS)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    for where in (client, LocalExecutor()):
        with pytest.raises(BagwiseError, match=r"shard-006\.tar cannot be read"):
            fit_model(str(folder / "shard-{000..006}.tar"), client=where, **OPTIONS)
        with pytest.raises(BagwiseError, match=r"shard-006\.tar does not exist"):
            fit_model(store.url("data/shard-{000..006}.tar"), client=where, storage_options=store.options, **OPTIONS)


def test_the_command_lists_on_a_cluster(client, folder, only_there, monkeypatch, tmp_path):
    out, address = tmp_path / "shards.parquet", client.scheduler.address
    told = as_json("list", folder / "shard-{000..005}.tar", "--scheduler", address, "--out", out)
    assert told["n_items"] == N_SHARDS * N_EACH
    monkeypatch.undo()
    assert open_collection(out).ids == open_collection(folder / "shard-*.tar").ids
