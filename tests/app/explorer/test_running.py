"""The explorer from Python."""

import json
from http.cookiejar import CookieJar
from urllib.error import URLError
from urllib.request import HTTPCookieProcessor, build_opener

import numpy as np
import pytest

from bagwise import Model, fit_model
from bagwise.app.explorer import Server, pages, workspace_of
from bagwise.app.training.group_data import hierarchy_tree
from bagwise.sources import Collection
from small_sources import table, write_text_folder
from waiting import PATIENCE


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    return fit_model(write_text_folder(tmp_path_factory.mktemp("run") / "texts", n_each=8), n_groups=3, folds=2)


def visitor(address):
    """A function that asks for JSON, once the token has become a cookie."""
    browser = build_opener(HTTPCookieProcessor(CookieJar()))
    base = address.split("/?")[0]
    assert b"Open the explorer" in browser.open(address, timeout=PATIENCE).read()
    assert b"bagwise explorer" in browser.open(base, timeout=PATIENCE).read()
    return lambda path: json.load(browser.open(f"{base}/api/{path}", timeout=PATIENCE))


def test_a_fitted_model_is_explored_with_its_items(fitted):
    with fitted.explore(open_page=False) as running:
        ask = visitor(running.address)
        told = ask("overview")
        assert told["n_groups"] == 3
        assert told["items"]["n"] == 24
        assert told["held_out"]["error"] == pytest.approx(fitted.path.errors[fitted.path.sizes.index(3)])
        one = ask("items/0")
        assert "".join(piece for piece, *_ in one["text"]) == fitted.fit_.data.collection[0].load()
        running._server.space.editor.edit({"edit": "rename", "n_groups": 3, "group": 0, "name": "first"}, 0)
        assert running.model.given_names == {0: "first"}
        running._server.space.editor.edit({"edit": "join", "n_groups": 3, "groups": [0, 1]}, 1)
        told = ask("overview")  # answers of the edited groups
        assert (told["answered_at"], told["error"]) == (2, pytest.approx(ask("steer")["now"]["error"]))
        assert fitted.given_names == {}
        assert running.address in repr(running)
        assert f'href="{running.address}"' in running._repr_html_()
    assert not running.running
    assert repr(running) == "<Explorer: closed>"
    assert "closed" in running._repr_html_()
    with pytest.raises(URLError):
        visitor(running.address)
    running.close()  # again


def test_a_loaded_model_has_the_items_of_a_source_or_none(fitted, tmp_path):
    model = Model.load(fitted.save(tmp_path / "texts.bagwise"))
    assert workspace_of(model).items is None
    space = workspace_of(model, fitted.fit_.data.collection)
    assert not space.items.stored
    assert space.cut().error == pytest.approx(np.mean(model.predict(space.items.histograms) != space_labels(space)))
    assert workspace_of(fitted.cut(2)).cut().model.n_groups == 2


def space_labels(space):
    return np.array(space.model.classes)[space.items.codes]


def test_rows_of_measurements_are_counted(tmp_path):
    X, y = table()
    ids = [str(k) for k in range(len(y))]
    counts = fit_model(Collection.from_matrix(X, ids, [(name,) for name in y]), n_groups=3, folds=2)
    assert workspace_of(counts).items.histograms is None
    measured = fit_model(Collection.from_matrix(X - 1.5, ids, [(name,) for name in y]), n_groups=3, folds=2)
    tree = hierarchy_tree(measured)
    assert tree.of == "columns"
    assert tree.rows[-1].shares == pytest.approx([1 / 12] * 12, rel=1e-5)  # whatever their scales
    assert hierarchy_tree(counts).of == "occurrences"
    assert "part of all columns" in measured._repr_html_()
    space = workspace_of(measured)
    drawn = pages.groups.hierarchy(space)
    assert (drawn["of"], drawn["rows"][-1]["shares"]) == ("columns", list(tree.rows[-1].shares))
    one = pages.groups.group(space, 3, 0)
    assert one["share"] == pytest.approx(one["n_words"] / 12)
    assert {word["total"] for word in one["words"]} == {None}
    assert space.items.histograms is not None
    np.testing.assert_array_equal(
        space.cut().answers.predicted, measured.fit_.held_out_top.at(measured.path.sizes.index(3)).predicted
    )
    assert space.items.held_out.all()
    assert len(space.items.index.search(X[:1] - 1.5, 3)[0]) == 3
    renamed = counts.rename_groups({0: "first"})
    assert workspace_of(renamed).cut().name(0) == "first"


def test_waiting_ends_with_the_server(fitted, monkeypatch, capsys):
    begin = Server.run

    def ended(self, on_start, **options):
        def start():
            on_start()
            self.stop()

        begin(self, start, **options)

    monkeypatch.setattr(Server, "run", ended)
    running = fitted.explore(open_page=False, block=True)
    assert not running.running
    assert running.address in capsys.readouterr().out
