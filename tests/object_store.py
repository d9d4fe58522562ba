"""A server of the API of S3 on this machine, by moto, that remembers what it is asked for."""

import secrets
import tarfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO

import pytest

from small_sources import images, png


@dataclass
class Store:
    """A bucket: how it is opened, its file system, and the requests so far: method, path, range of bytes."""

    bucket: str
    options: dict
    system: object
    requests: list

    def url(self, name):
        return f"s3://{self.bucket}/{name}"

    def asked(self, method, name):
        """The ranges of the requests for files whose path has this name in it."""
        found = [one for one in self.requests if one[0] == method and f"/{self.bucket}/" in one[1]]
        return [asked for _, path, asked in found if name in path]

    def set_variables(self, monkeypatch):
        """Give credentials by environment variables, as the command line needs them."""
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", self.options["key"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", self.options["secret"])
        monkeypatch.setenv("AWS_ENDPOINT_URL", self.options["client_kwargs"]["endpoint_url"])
        type(self.system).clear_instance_cache()  # one without options may have been opened before


@contextmanager
def served(folder):
    """Serve a bucket with the files of a folder below data/."""
    how = "pip install s3fs 'moto[s3]' flask flask-cors"
    s3fs = pytest.importorskip("s3fs", reason=f"needs s3fs ({how})")
    pytest.importorskip("flask_cors", reason=f"needs moto's server ({how})")
    moto = pytest.importorskip("moto.moto_server.werkzeug_app", reason=f"needs moto's server ({how})")
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log_request(self, *told):
            pass

    requests = []
    app = moto.DomainDispatcherApplication(moto.create_backend_app)

    def counting(environ, start):
        requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("HTTP_RANGE")))
        return app(environ, start)

    server = make_server("127.0.0.1", 0, counting, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    options = {
        "key": "testing",
        "secret": "a secret",
        "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{server.server_port}"},
    }
    bucket, system = f"bucket-{secrets.token_hex(4)}", s3fs.S3FileSystem(**options)
    system.mkdir(bucket)
    system.put(f"{folder}/", f"{bucket}/data/", recursive=True)
    try:
        yield Store(bucket, options, system, requests)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def write_shards(folder, n_shards=3, n_each=12, compressed=False, padding=0):
    """Write tar files of pictures with .cls, as WebDataset does; `padding` bytes of JSON are beside each of them."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = [(png(pixels), label) for pixels, label in images(n_shards * n_each // 2, color=True)]
    for number in range(n_shards):
        name = f"shard-{number:03}.tar{'.gz' if compressed else ''}"
        with tarfile.open(folder / name, "w:gz" if compressed else "w") as archive:
            for k, (content, label) in enumerate(pictures[number::n_shards]):
                members = {"png": content, "cls": label.encode()} | ({"bin": bytes(padding)} if padding else {})
                for end, inside in members.items():
                    info = tarfile.TarInfo(f"{k:04}.{end}")
                    info.size = len(inside)
                    archive.addfile(info, BytesIO(inside))
    return folder
