"""Clients of a Dask cluster: that of a scheduler, or of workers on this machine."""

from __future__ import annotations

import logging
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bagwise._utils.checks import check_integer
from bagwise._utils.extras import require
from bagwise.errors import BagwiseError, argument

__all__ = ["connected"]

_SECONDS = 20  # until a scheduler has to answer
_MOST_WORKERS = 1024
# A worker process that ends is started again, but given up if it is away this long after one was lost: also if it was
# back meanwhile and ended again, so that Dask's 15 seconds can leave a cluster without workers.
_GIVEN_UP = "10 minutes"
# Workers that Dask starts give each freed block of memory back to the system at once, and descriptors and counts then
# take up to twice as long, in page faults. With these, freed memory up to 64 MiB is used again.
_ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": 64 << 20, "MALLOC_MMAP_THRESHOLD_": 32 << 20}


@contextmanager
def connected(scheduler: str | None = None, workers: int | None = None) -> Iterator[Any]:
    """Connect to a scheduler, or start worker processes on this machine; close what was opened at the end.

    Parameters
    ----------
    scheduler : str, default=None
        Address, such as ``"tcp://host:8786"``.
    workers : int, default=None
        Number of worker processes, of one thread each.

    Yields
    ------
    client : distributed.Client or None
        None if neither is given.

    Examples
    --------
    >>> from bagwise.distributed import connected
    >>> with connected() as client:
    ...     client is None
    True
    """
    if scheduler is None and workers is None:
        yield None
        return
    if scheduler is not None and workers is not None:
        raise BagwiseError(
            f"{argument('scheduler')} and {argument('workers')} exclude each other: the first uses the workers of a "
            "scheduler, the second starts workers on this machine. Give one."
        )
    distributed = require("distributed", "dask", "A cluster")
    if scheduler is not None:
        _check_address(scheduler)
        try:
            client = distributed.Client(scheduler, timeout=_SECONDS, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise BagwiseError(
                f"There is no answer from a scheduler at {argument('scheduler', scheduler)} within {_SECONDS} seconds "
                f"({type(error).__name__}). Give the address that dask scheduler prints, such as tcp://host:8786."
            ) from error
        with _quiet(), client:
            _check_workers(client, scheduler)
            yield client
        return
    count = check_integer(workers, "workers", 1, _MOST_WORKERS)
    config = require("dask", "dask", "A cluster").config
    environment = config.get("distributed.nanny.pre-spawn-environ") | _ENVIRONMENT
    with (
        config.set(
            {
                "distributed.nanny.pre-spawn-environ": environment,
                "distributed.deploy.lost-worker-timeout": _GIVEN_UP,
            }
        ),
        _started(distributed, count) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def _started(distributed: Any, count: int) -> Any:
    """Start worker processes, with a scheduler in this one."""
    try:
        return distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            preload=__name__,
        )
    except (OSError, RuntimeError) as error:
        raise BagwiseError(
            f"The processes of {argument('workers', count)} could not be started ({error}): they were ended, most "
            "likely for want of memory, or the system allows no more of them. Start fewer workers."
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask from logging what is raised as an error as well, such as a lost scheduler."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def dask_setup(worker: Any) -> None:
    """Prepare a new worker of this machine.

    It ignores Ctrl-C: a terminal tells it all processes, and this one ends them. Temporary files lie in its folder,
    which Dask removes, also those of results that come from other workers, outside of tasks.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = worker.local_directory


def _check_address(scheduler: str) -> None:
    """Raise an error for what is no address, which would leave a client that waits when the process ends."""
    addresses = require("distributed.comm", "dask", "A cluster")
    try:
        addresses.get_address_host_port(scheduler)
    except ValueError as error:
        raise BagwiseError(
            f"{argument('scheduler', scheduler)} is no address of a scheduler: {error}. Give the one that dask "
            "scheduler prints, such as tcp://host:8786."
        ) from error


def _check_workers(client: Any, scheduler: str) -> None:
    """Raise an error if no worker comes, or one has another version of bagwise."""
    try:
        client.wait_for_workers(1, timeout=_SECONDS)
    except TimeoutError as error:
        raise BagwiseError(
            f"The scheduler {scheduler} has no workers. Start some where bagwise is installed: dask worker {scheduler}"
        ) from error
    versions = client.run(_version)
    strange = {worker: version for worker, version in versions.items() if version != _version()}
    if strange:
        worker, version = next(iter(strange.items()))
        has = "does not have bagwise" if version is None else f"has bagwise {version}"
        raise BagwiseError(
            f"The worker {worker} {has}, but this process has {_version()}. Install the same version on all machines."
        )


def _version() -> str | None:
    try:
        import bagwise
    except ImportError:
        return None
    return bagwise.__version__
