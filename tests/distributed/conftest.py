import logging

import pytest
from distributed import Client, LocalCluster


@pytest.fixture(scope="session")
def client():
    """A cluster of two processes on this machine, shared by all tests of this folder: none may lose its workers."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            memory_limit="1GiB",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


class Workers:
    """A cluster in this process, whose workers are lost when a test wants it, with what they hold and compute."""

    def __init__(self, cluster, client):
        self.cluster, self.client = cluster, client

    def lose(self, address=None):
        """Take a worker from the scheduler as one whose connection ended, the first one unless another is named."""
        address = address or min(self.client.nthreads())
        self.cluster.sync(self.cluster.scheduler.remove_worker, address, stimulus_id="lost")
        assert address not in self.client.nthreads()


@pytest.fixture
def workers():
    """Six workers of a test's own, which it may lose."""
    with (
        LocalCluster(
            n_workers=6,
            threads_per_worker=1,
            processes=False,
            protocol="tcp://",  # what workers pass on is pickled, as between processes: files of a lost one are gone
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield Workers(cluster, client)
