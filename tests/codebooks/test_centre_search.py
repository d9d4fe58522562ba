import numpy as np
import pytest

from bagwise.codebooks import _kernels as kernels
from bagwise.codebooks import centre_search as module
from bagwise.codebooks import kmeans as kmeans_module
from bagwise.codebooks.centre_search import CentreSearch
from bagwise.codebooks.kmeans import kmeans


@pytest.fixture
def small_blocks(monkeypatch):
    """Bounds pay for few points; several tasks, of several blocks."""
    monkeypatch.setattr(module, "_FEWEST_DISTANCES", 0)
    monkeypatch.setattr(module, "_TASK_ROWS", 150)
    monkeypatch.setattr(module, "_BLOCK_NUMBERS", 90 * 40)


def points_of(n, width=64, seed=0, dtype=np.float32):
    """Points most of whose variance is along some directions, around a few places."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(width, width)))[0]
    places = rng.normal(size=(30, width))[rng.integers(0, 30, n)]
    values = (places + 0.4 * rng.normal(size=(n, width))) * 0.9 ** np.arange(width) @ turn
    return (values - values.mean(axis=0)).astype(dtype)


def whole_points(n, width=64, seed=0):
    """Small whole numbers, so that sums of squares have no rounding, and many distances are equal."""
    rng = np.random.default_rng(seed)
    values = np.zeros((n, width), np.float32)
    values[:, ::5] = rng.integers(-1, 2, (n, len(range(0, width, 5))))
    values[:, 1::9] = rng.random((n, len(range(1, width, 9)))) < 0.1
    return values


def search(points, n_threads=1, n_clusters=90):
    found = CentreSearch.of(points, np.einsum("ij,ij->i", points, points, dtype=np.float64), n_clusters, n_threads)
    assert found is not None
    return found


def distances(points, centres):
    return ((points[:, np.newaxis].astype(np.float64) - centres) ** 2).sum(axis=2)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_nearest_centre_is_the_first_of_equals_from_any_start(small_blocks, seed, n_threads):
    rng = np.random.default_rng(seed)
    points = whole_points(700, seed=seed)
    centres = points[rng.choice(700, 90)]
    centres[40], centres[7] = centres[3], 0  # the same centre twice, and one at the origin
    apart = distances(points, centres)
    nearest = apart.argmin(axis=1)
    assert ((apart == apart.min(axis=1, keepdims=True)).sum(axis=1) > 1).any()  # there are ties
    found = search(points, n_threads)
    for before in (None, nearest, apart.argmax(axis=1), rng.integers(0, 90, 700)):
        kept = None if before is None else before.copy()
        np.testing.assert_array_equal(found.nearest(centres, before), nearest)
        assert before is None or (before == kept).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e12])
def test_the_nearest_centre_at_any_scale(small_blocks, scale, dtype):
    points = points_of(600, 80, dtype=dtype) * dtype(scale)
    centres = np.stack([points[k::90].mean(axis=0) for k in range(90)])
    apart = distances(points, centres)
    found = search(points).nearest(centres)
    own = np.take_along_axis(apart, found[:, np.newaxis], 1)[:, 0]
    np.testing.assert_allclose(own, apart.min(axis=1), rtol=1e-6 if dtype == np.float32 else 1e-13)


def test_distances_fall_to_those_of_nearer_centres(small_blocks):
    points = whole_points(700)
    centres = points[:90]
    apart = distances(points, centres).min(axis=1)
    given = np.random.default_rng(0).permutation(apart) + 1.0
    for limit in (np.full(700, np.inf), given, np.zeros(700)):
        kept = limit.copy()
        np.testing.assert_array_equal(search(points, 2).nearer(centres, limit), np.minimum(kept, apart))
        np.testing.assert_array_equal(limit, kept)


def test_kernels_compute_what_bounds_allow_and_nothing_else():
    points, centres = whole_points(50), whole_points(70, seed=1)
    squares, apart = np.einsum("ij,ij->i", points, points, dtype=np.float64), distances(points, centres)
    start = np.arange(50)
    for bound, labels, least in (
        (np.inf, start, np.full(50, np.inf)),  # no other centre can be nearer
        (-np.inf, apart.argmin(axis=1), apart.min(axis=1)),
    ):
        bounds = np.full(apart.shape, bound, np.float32)
        found, nearer = start.copy(), np.full(50, np.inf)
        kernels.nearest_by_bounds(points, squares, centres, bounds, 0.0, 0.0, found)
        kernels.nearer_by_bounds(points, squares, centres, bounds, 0.0, 0.0, nearer)
        np.testing.assert_array_equal(found, labels)
        np.testing.assert_array_equal(nearer, least)


def test_bounds_are_below_distances_and_most_are_above_the_least(small_blocks, monkeypatch):
    points = points_of(600)
    centres = np.stack([points[k::90].mean(axis=0) for k in range(90)]).astype(np.float32)
    apart, places, looked = distances(points, centres), [], []

    def kernel(some, squares, centres, bounds, epsilon, largest, found):
        rows = found[:]
        exact = apart[rows] - squares[:, np.newaxis]
        assert (bounds <= exact + epsilon * (squares[:, np.newaxis] + largest)).all()
        looked.append((bounds < exact.min(axis=1, keepdims=True)).mean())
        places.extend(rows.tolist())

    search(points)._run(kernel, centres, np.arange(600))
    assert places == list(range(600))
    assert np.mean(looked) < 0.25


def test_where_bounds_do_not_pay_there_is_no_search(monkeypatch):
    points = points_of(600)
    squares = np.einsum("ij,ij->i", points, points, dtype=np.float64)
    assert CentreSearch.of(points, squares, 90, 1) is None  # few distances
    monkeypatch.setattr(module, "_FEWEST_DISTANCES", 0)
    assert CentreSearch.of(points, squares, 90, 1) is not None
    assert CentreSearch.of(points, squares, 5, 1) is None
    assert CentreSearch.of(points[:, :30].copy(), squares, 90, 1) is None
    alike = np.random.default_rng(0).normal(size=(600, 64)).astype(np.float32)  # no directions with most variance
    assert CentreSearch.of(alike, squares, 90, 1) is None
    assert CentreSearch.of(np.zeros((600, 64), np.float32), np.zeros(600), 90, 1) is None


@pytest.mark.parametrize("weighted", [False, True])
def test_kmeans_is_what_it_is_without_bounds(small_blocks, monkeypatch, weighted):
    points = points_of(800, dtype=np.float64)
    weights = np.random.default_rng(1).integers(1, 5, 800).astype(float) if weighted else None
    settings = {"weights": weights, "tol": 0.0, "n_init": 2, "random_state": 3}
    made = []
    monkeypatch.setattr(CentreSearch, "_project", lambda self, f=CentreSearch._project: (made.append(1), f(self)))
    found = [kmeans(points, 90, **settings, n_threads=n) for n in (1, 2, 3)]
    assert len(made) == 3  # one for both runs
    for other in found[1:]:
        assert other.labels.tobytes() == found[0].labels.tobytes()
        assert other.costs.tobytes() == found[0].costs.tobytes()
    monkeypatch.setattr(module, "_FEWEST_DISTANCES", 1 << 62)
    plain = kmeans(points, 90, **settings)
    assert len(made) == 3
    assert found[0].n_iter > 3
    np.testing.assert_array_equal(found[0].labels, plain.labels)
    np.testing.assert_allclose(found[0].costs, plain.costs)


def test_empty_clusters_are_filled_with_bounds_as_without(small_blocks):
    points = points_of(600, dtype=np.float64)
    centres = np.repeat(points[:30], 3, axis=0)  # two of three get no point
    found = []
    for prepared in (False, True):
        problem = kmeans_module.Problem(points, None, False)
        if prepared:
            problem.expect_iterations(90)
        found.append(problem.iterate(centres, 4, 0.0))
    assert problem._search is not None
    assert len(np.unique(found[1].labels)) == 90
    np.testing.assert_array_equal(found[0].labels, found[1].labels)
