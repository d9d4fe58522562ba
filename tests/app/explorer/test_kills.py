"""The explorer is killed while it saves edits: no edit that it acknowledged is lost.

Part of `make stress`; in the environment, KILLS=1000 kills it more often.
"""

import contextlib
import http.client
import json
import os
import random
import re
import subprocess
import sys
import threading
from urllib.parse import urlsplit

import pytest

from bagwise import Model
from bagwise.app import ItemIndex
from bagwise.app.explorer import open_workspace
from commands import SOURCES, a_day_later, leftovers
from waiting import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.stress]
KILLS = int(os.environ.get("KILLS", "100"))
# When a process is killed: after so many edits, and so many seconds, which are about those of one more edit.
MOST_EDITS, MOST_SECONDS = 6, 0.1


class Client:
    """Edits a model by requests; keeps the edits that were acknowledged."""

    def __init__(self, address):
        parts = urlsplit(address)
        self.connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE)
        cookie = self.answer("GET", f"/?{parts.query}").headers["set-cookie"].split(";")[0]
        self.headers = {"Cookie": cookie, "Origin": f"http://{parts.netloc}"}
        self.revision = 0

    def close(self):
        """End the connection."""
        self.connection.close()

    def answer(self, method, path, body=None, headers=None):
        self.connection.request(method, path, body, headers or {})
        answer = self.connection.getresponse()
        self.content = answer.read()
        return answer

    def edit(self, edit):
        """Make an edit; return once the explorer says that it is saved."""
        body = json.dumps({"edit": edit, "revision": self.revision})
        assert self.answer("POST", "/api/steer/edit", body, self.headers).status == 200, self.content
        told = json.loads(self.content)
        assert told["saved"]["problem"] is None
        self.revision = told["revision"]


def edits_of(path):
    """The edits in a file, of which every byte is checked."""
    model = ItemIndex.load(path, verify=True).model if path.suffix == ".index" else Model.load(path)
    return model, list(model.edits)


def killed_while_editing(path, chance, number):
    """Start the explorer and edit until it is killed; return the edits that were acknowledged, and the last one."""
    command = [sys.executable, "-m", "bagwise", "explore", str(path), "--no-open"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    with contextlib.closing(Client(re.search(r"http\S+", server.stdout.readline())[0])) as client:
        return edited_until_killed(server, client, chance, number)


def edited_until_killed(server, client, chance, number):
    """Edit until the explorer is killed, which the first edits of a client bring about."""
    last, end = chance.randrange(MOST_EDITS), threading.Timer(chance.uniform(0, MOST_SECONDS), server.kill)
    made, edit = [], None
    try:
        while True:
            if len(made) == last:
                end.start()
            edit = {"edit": "rename", "n_groups": 5, "group": len(made) % 5, "name": f"{number}/{len(made)}"}
            client.edit(edit)
            made.append(edit)
    except (http.client.HTTPException, OSError):
        pass  # it was killed
    end.join()
    server.communicate(timeout=PATIENCE)
    assert server.returncode == -9
    return made, edit


def test_no_acknowledged_edit_is_lost_by_kills(explored, tmp_path):
    chance, counts = random.Random(0), {"acknowledged": 0, "lost": 0, "kills with a save that was not acknowledged": 0}
    paths = [tmp_path / "texts.index", tmp_path / "texts.bagwise"]
    paths[0].write_bytes(explored.read_bytes())
    ItemIndex.load(explored).model.save(paths[1])
    known = {path: [] for path in paths}
    for number in range(KILLS):
        path = paths[number % 2]
        made, last = killed_while_editing(path, chance, number)
        model, found = edits_of(path)
        expected = known[path] + made
        counts["acknowledged"] += len(made)
        counts["lost"] += sum(edit not in found for edit in made)
        assert found in (expected, [*expected, last])
        counts["kills with a save that was not acknowledged"] += found != expected
        names = {edit["group"]: edit["name"] for edit in found}
        assert model.given_names == names
        known[path] = found
    print(f"{KILLS} kills: {counts}")
    assert counts["lost"] == 0
    assert counts["acknowledged"] > 0
    a_day_later(tmp_path)
    for path in paths:  # what the kills left is removed by the next edit
        space = open_workspace(path)
        space.editor.edit({"edit": "rename", "n_groups": 5, "group": 0, "name": "last"}, 0)
        assert space.editor.shown.problem is None
    assert leftovers(tmp_path) == []
