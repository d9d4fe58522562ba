import logging

import pytest
from distributed import Client, LocalCluster


@pytest.fixture(scope="session")
def client():
    """A cluster of two processes on this machine, shared by all tests of this folder."""
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
