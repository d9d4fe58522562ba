"""A fit on a cluster: the model of the fit in memory, for any partitions and workers, also if some are lost."""

import logging
import operator
import signal
import time

import numpy as np
import onnx
import pytest
from dask import config
from dask.utils import parse_timedelta
from distributed import Client, Future, LocalCluster
from onnx import helper, numpy_helper

from bagwise import BagwiseError, Model, fit_model
from bagwise.app import FitOptions, evaluate_model, run_fit
from bagwise.distributed import connected, executors
from bagwise.distributed.executors import LocalExecutor, executor_of
from bagwise.sources.items import NothingReadError
from commands import bagwise
from model_cases import saved
from small_sources import write_image_folder, write_records, write_table
from waiting import until

JOBS = {
    "images": {"descriptor": "patches+hog-lbp", "n_words": 12, "n_groups": 4, "folds": 2},
    "texts": {"n_words": 15, "n_groups": 4, "folds": 2},
    "table": {"n_groups": "auto", "folds": 3, "criterion": "aib"},
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    return {
        "images": write_image_folder(folder / "images"),
        "texts": write_records(folder / "texts.csv"),
        "table": write_table(folder / "table.csv"),
    }


@pytest.fixture(scope="module")
def in_memory(sources):
    return {name: run_fit(sources[name], FitOptions(**JOBS[name], n_jobs=1)) for name in JOBS}


def options(name, **more):
    return FitOptions(**JOBS[name] | {"n_jobs": 1, "partition": 5} | more)


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("partition", [1, 7, 1000])
def test_partitions_do_not_change_the_model(sources, in_memory, name, partition, tmp_path):
    found = run_fit(sources[name], options(name, partition=partition), client=LocalExecutor())
    assert saved(found.model, tmp_path) == saved(in_memory[name].model, tmp_path)
    assert found.data.samples.keys() == in_memory[name].data.samples.keys()
    np.testing.assert_array_equal(found.held_out, in_memory[name].held_out)
    assert found.held_out_top.margin.tobytes() == in_memory[name].held_out_top.margin.tobytes()


@pytest.mark.parametrize("name", JOBS)
def test_a_cluster_gives_the_same_bytes(client, sources, in_memory, name, tmp_path):
    told = []
    found = run_fit(sources[name], options(name), client=client, progress=lambda *step: told.append(step))
    assert saved(found.model, tmp_path) == saved(in_memory[name].model, tmp_path)
    assert ("Counting words", len(found.data.collection), len(found.data.collection)) in told
    assert found.timings.keys() == in_memory[name].timings.keys() or name == "table"


def test_workers_open_the_network_of_a_file(client, tmp_path):
    """Sessions are not pickled; workers read the file that was named, and models hold its hash alone."""
    photographs = write_image_folder(tmp_path / "photographs", color=True, side=72)
    random = np.random.default_rng(0)
    weights = numpy_helper.from_array(random.normal(size=(6, 3, 16, 16)).astype(np.float32) / 16, "weights")
    node = helper.make_node("Conv", ["image", "weights"], ["map"], kernel_shape=[16, 16], strides=[16, 16])
    values = [helper.make_tensor_value_info(*one) for one in (("image", 1, ["N", 3, "H", "W"]), ("map", 1, None))]
    graph = helper.make_graph([node], "test", values[:1], values[1:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "n.onnx")
    given = {"n_words": 12, "n_groups": 4, "folds": 2, "n_jobs": 1, "partition": 5}
    for name in ("network", f"network:{tmp_path / 'n.onnx'}"):
        chosen = FitOptions(descriptor=name, **given)
        expected, found = run_fit(photographs, chosen), run_fit(photographs, chosen, client=client)
        assert saved(found.model, tmp_path) == saved(expected.model, tmp_path)
        np.testing.assert_array_equal(found.data.pooled, expected.data.pooled)
    loaded = Model.load(expected.model.save(tmp_path / "m.bagwise"), network=tmp_path / "n.onnx")
    counted = evaluate_model(loaded, photographs, client=client, n_jobs=1)
    np.testing.assert_array_equal(counted.errors, evaluate_model(loaded, photographs, n_jobs=1).errors)


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("n_workers", [1, 4])
def test_workers_do_not_change_the_model(sources, in_memory, n_workers, name, tmp_path):
    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        found = run_fit(sources[name], options(name), client=client)
    assert saved(found.model, tmp_path) == saved(in_memory[name].model, tmp_path)


def test_a_worker_lost_in_each_step(workers, sources, in_memory, tmp_path):
    lost = []

    def lose(step, done, total):
        kind = step.split()[0]
        if kind in ("Describing", "Sampling", "Counting", "Cross-validating") and kind not in lost and done < total:
            lost.append(kind)
            workers.lose()

    found = run_fit(sources["images"], options("images", partition=2), client=workers.client, progress=lose)
    assert len(lost) == 4
    assert saved(found.model, tmp_path) == saved(in_memory["images"].model, tmp_path)


def test_results_that_are_lost_with_their_worker_are_waited_for_again(client, monkeypatch):
    """Between the end of a task and the look at it, its worker may go."""
    told, looks = [], []
    executor = executor_of(client, lambda *step: told.append(step))
    status = Future.status

    def lost_at_first(future):
        looks.append(future.key)
        return "lost" if looks.count(future.key) == 1 else status.fget(future)

    monkeypatch.setattr(Future, "status", property(lost_at_first))
    handles = executor.map(abs, [-1, -2, -3], step="one")
    monkeypatch.undo()
    assert executor.gather(handles) == [1, 2, 3]
    assert told == [("one", done, 3) for done in range(4)]


def test_results_are_given_up_when_they_are_joined(client):
    held = []

    def look(step, done, total):
        if done == total:
            held.append(sum(client.run(lambda dask_worker: len(dask_worker.data)).values()))

    executor = executor_of(client, look)
    assert executor.map_reduce(operator.neg, operator.add, list(range(200)), step="one") == -sum(range(200))
    assert len(held) == 1
    assert held[0] < 100


def test_interrupted_sums_leave_no_tasks(client):
    connection = client.scheduler_comm

    def interrupt(step, done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executor_of(client, interrupt).map_reduce(time.sleep, operator.is_, [0.05] * 40, step="one")
    until(lambda: not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))
    assert executor_of(client).map_reduce(abs, operator.add, [-1, -2, -3]) == 6
    assert client.scheduler_comm is connection  # an error of the scheduler would have closed it


def test_an_interrupted_fit_goes_on(client, sources, in_memory, tmp_path):
    def interrupt(step, done, total):
        if step == "Counting words" and done > total / 2:
            raise KeyboardInterrupt

    chosen = options("images", cache=str(tmp_path / "cache"), partition=2)
    with pytest.raises(KeyboardInterrupt):
        run_fit(sources["images"], chosen, client=client, progress=interrupt)
    counted = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache" / "histograms").rglob("*.arrays")}
    assert counted
    found = run_fit(sources["images"], chosen, client=client)
    assert "words of 12 images" in found.cached
    assert counted == {path: path.stat().st_mtime_ns for path in counted}
    assert len(list((tmp_path / "cache" / "histograms").rglob("*.arrays"))) == 6
    assert saved(found.model, tmp_path) == saved(in_memory["images"].model, tmp_path)


def test_the_scheduler_is_lost(sources, in_memory, tmp_path):
    chosen = options("texts", cache=str(tmp_path / "cache"))
    with connected(workers=1) as lost:
        assert list(lost.run(signal.getsignal, signal.SIGINT).values()) == [signal.SIG_IGN]  # Ctrl-C is for the job
        sockets = lost.cluster.scheduler.http_server._sockets.values()
        assert {one.getsockname()[0] for one in sockets} == {"127.0.0.1"}  # nobody else sees the dashboard

        def lose(step, done, total):
            if step == "Counting words" and done:
                lost.cluster.close()

        with pytest.raises(BagwiseError, match=r"The connection to the scheduler tcp://.* was lost.*goes on"):
            run_fit(sources["texts"], chosen, client=lost, progress=lose)
    assert len(list((tmp_path / "cache" / "vocabulary").rglob("*.arrays"))) == 1
    found = run_fit(sources["texts"], chosen, client=LocalExecutor())
    assert saved(found.model, tmp_path) == saved(in_memory["texts"].model, tmp_path)


def test_a_cluster_without_workers_is_waited_for_and_then_an_error(monkeypatch):
    """Dask waits for ever, since workers may come."""
    told, limits = [], "bagwise.distributed.executors"
    monkeypatch.setattr(f"{limits}._LOOK", 0.01)
    with (
        LocalCluster(
            n_workers=0, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
        Client(cluster, set_as_default=False) as empty,
    ):

        def hire(step, done, total):
            told.append(step)
            if step == "Waiting for workers" and told.count(step) == 2:
                cluster.scale(1)

        executor = executor_of(empty, hire)
        assert executor.gather(executor.map(abs, [-1, -2], step="one")) == [1, 2]
        assert told[0] == "one"
        assert "Waiting for workers" in told
        cluster.scale(0)
        until(lambda: not empty.nthreads())
        monkeypatch.setattr(f"{limits}._WITHOUT_WORKERS", 0.02)
        gone = r"The scheduler \S+ has had no worker for 0\.02 seconds: all were lost.*start workers again\. With a"
        for wait in (
            lambda: executor.map(abs, [-1], step="two"),
            lambda: executor.map_reduce(abs, operator.add, [-1, -2]),
            lambda: executor.gather([executor.share(1)]),
        ):
            with pytest.raises(BagwiseError, match=gone):
                wait()


def test_a_worker_is_not_given_up_before_the_job(monkeypatch):
    """A worker that was lost again within Dask's 15 seconds was given up, and the job waited for ever."""
    seen = []

    def cluster(**options):
        seen.append(config.get("distributed.deploy.lost-worker-timeout"))
        raise KeyboardInterrupt

    monkeypatch.setattr("distributed.LocalCluster", cluster)
    with pytest.raises(KeyboardInterrupt), connected(workers=1):
        pass
    assert parse_timedelta(seen[0]) > executors._WITHOUT_WORKERS


def test_workers_that_end_while_they_start_are_an_error(monkeypatch):
    def cluster(**options):
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr("distributed.LocalCluster", cluster)
    told = pytest.raises(BagwiseError, match=r"workers=2 could not be started \(Nanny .*want of memory")
    with told, connected(workers=2):
        pass


def test_a_cache_by_url(sources, in_memory, tmp_path):
    chosen = options("texts", cache="memory://cluster-cache")
    first, second = (run_fit(sources["texts"], chosen, client=LocalExecutor()) for _ in range(2))
    assert not first.cached
    words = ("words of 36 texts", "histograms of 36 texts")
    assert second.cached == (*words, "groups by classifier", "errors of classifier")
    for found in (first, second):
        assert saved(found.model, tmp_path) == saved(in_memory["texts"].model, tmp_path)


def test_items_that_cannot_be_read(client, tmp_path):
    folder = write_image_folder(tmp_path / "images")
    for name in ("0.png", "1.png"):
        next(folder.rglob(f"*{name}")).write_bytes(b"not an image")
    chosen = options("images", partition=1)
    here, found = (run_fit(folder, chosen, client=where) for where in (None, LocalExecutor()))
    assert found.data.skipped == here.data.skipped
    assert saved(found.model, tmp_path) == saved(here.model, tmp_path)
    with pytest.raises(BagwiseError, match="Cannot read"):
        run_fit(folder, options("images", on_error="raise"), client=client)
    for path in folder.rglob("*.png"):
        path.write_bytes(b"not an image")
    with pytest.raises(NothingReadError):
        run_fit(folder, options("images", descriptor="patches"), client=LocalExecutor())


def test_evaluating_on_a_cluster(client, sources, in_memory):
    model = in_memory["images"].model
    here, there = (evaluate_model(model, sources["images"], client=where, partition=5) for where in (None, client))
    assert here.histograms.data.tobytes() == there.histograms.data.tobytes()
    np.testing.assert_array_equal(here.predicted, there.predicted)
    assert here.samples.keys() == there.samples.keys()


def test_the_command_line_runs_on_a_cluster(client, sources, in_memory, tmp_path):
    out, address = tmp_path / "model.bagwise", client.scheduler.address
    given = ("--words", "15", "--groups", "4", "--folds", "2", "--partition", "5", "--jobs", "1")
    bagwise("fit", sources["texts"], *given, "--scheduler", address, "--out", out, "--no-page", "--no-index")
    assert Model.load(out).hierarchy == in_memory["texts"].model.hierarchy
    both = bagwise("fit", sources["texts"], "--workers", "1", "--scheduler", "tcp://localhost:1", code=1)
    assert "--scheduler and --workers exclude each other" in both


def test_bad_clients(sources, monkeypatch):
    with pytest.raises(BagwiseError, match=r"must be a distributed.Client .* got str"):
        fit_model(sources["table"], client="tcp://localhost:8786")
    monkeypatch.setattr("bagwise.distributed.clusters._SECONDS", 0.5)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with pytest.raises(BagwiseError, match=r"no answer from a scheduler at scheduler='tcp://localhost:1'"):  # noqa: SIM117
        with connected("tcp://localhost:1"):
            pass
    for address in ("nonsense", "tcp://host", "foo://host:1"):
        with pytest.raises(BagwiseError, match="is no address of a scheduler"), connected(address):
            pass
    with pytest.raises(BagwiseError, match="workers must be"):  # noqa: SIM117
        with connected(workers=0):
            pass
