"""Data sets of others: from the cache, or an error that says what to do."""

import urllib.error

import pytest
import sklearn.datasets

from bagwise import BagwiseError, datasets


@pytest.fixture
def no_net(monkeypatch):
    def refuse(*args, **options):
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr("sklearn.datasets._base.urlretrieve", refuse)
    monkeypatch.setattr("sklearn.datasets._openml.urlopen", refuse)


@pytest.mark.filterwarnings("ignore:.*Retry.*")
@pytest.mark.parametrize("fetch", [datasets.fetch_20newsgroups, lambda **given: datasets.fetch_openml("wine", **given)])
def test_without_cache_and_net_the_error_says_what_to_do(fetch, no_net, tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(BagwiseError, match=r"not in the cache, .* cannot be downloaded: .*no route.*make_"):
        fetch(data_home=tmp_path)
    with pytest.raises(BagwiseError, match=r"not in the cache, .*download_if_missing=True"):
        fetch(data_home=tmp_path, download_if_missing=False)


def test_what_is_given_goes_to_scikit_learn(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(sklearn.datasets, "fetch_20newsgroups", lambda **given: seen.append(given))
    datasets.fetch_20newsgroups(subset="test", categories=["sci.med"], data_home=tmp_path)
    assert seen[0]["subset"] == "test"
    assert seen[0]["categories"] == ["sci.med"]
    assert seen[0]["remove"] == ("headers", "footers", "quotes")
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda name, **given: seen.append((name, given)))
    datasets.fetch_openml("mnist_784", data_home=tmp_path)
    assert seen[1][0] == "mnist_784"
    assert seen[1][1]["version"] == 1
    with pytest.raises(BagwiseError, match="not in the cache"):
        datasets.fetch_openml("mnist_784", data_home=tmp_path, download_if_missing=False)
    kept = (
        tmp_path
        / "openml"
        / sklearn.datasets._openml._get_local_path(
            sklearn.datasets._openml._SEARCH_NAME.format("mnist_784").partition("org/")[2] + "/data_version/1", ""
        )
    )
    kept.parent.mkdir(parents=True)
    kept.touch()
    datasets.fetch_openml("mnist_784", data_home=tmp_path, download_if_missing=False)
    assert seen[2] == seen[1]
