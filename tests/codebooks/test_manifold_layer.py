"""The layer in PyTorch gives the numbers and gradients of the compiled code, on any device; models take its words."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from bagwise import Bags, ManifoldBagOfFeatures  # noqa: E402
from bagwise.codebooks.manifold.learning import SoftHistograms, learn_words, pair_objective  # noqa: E402
from bagwise.nn import SoftBagOfFeatures, manifold_loss, train_manifold  # noqa: E402

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    bags = Bags.from_list([rng.normal(size=(length, 3)) for length in (4, 1, 6, 3)], dtype=np.float64)
    words = rng.normal(size=(5, 3))
    target = np.full((4, 4), 0.3) + 0.7 * np.eye(4)
    return bags, words, target


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-10), (np.float32, 1e-5)])
@pytest.mark.parametrize("metric", ["chi2", "hellinger"])
def test_histograms_and_gradients_are_those_of_numpy(problem, device, dtype, tolerance, metric):
    bags, words, target = problem
    soft = SoftHistograms(bags.values, bags.offsets, 0.4)
    expected = pair_objective(soft.histograms(words), target, 0.7, metric=metric)
    by_word, by_feature = soft.pull_back(words, expected.gradient, features=True)

    layer = SoftBagOfFeatures(5, 3, 0.4, codebook=words.astype(dtype)).to(device)
    values = torch.tensor(np.asarray(bags.values).astype(dtype), device=device, requires_grad=True)
    T = layer(values, offsets=torch.tensor(np.asarray(bags.offsets)))
    np.testing.assert_allclose(T.detach().cpu().numpy(), soft.histograms(words), atol=tolerance)
    loss = manifold_loss(T, torch.tensor(target), 0.7, metric)
    assert loss.item() == pytest.approx(expected.value, rel=tolerance)
    loss.backward()
    np.testing.assert_allclose(layer.words.grad.cpu().numpy(), by_word, atol=tolerance)
    np.testing.assert_allclose(values.grad.cpu().numpy(), by_feature, atol=tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("metric", ["chi2", "hellinger"])
def test_training_words_is_learning_words(problem, device, metric):
    bags, words, target = problem
    learning = learn_words(
        SoftHistograms(bags.values, bags.offsets, 0.4), words, target, sigma=0.7, max_iter=5, learning_rate=0.02,
        metric=metric,
    )  # fmt: skip
    layer = SoftBagOfFeatures(5, 3, 0.4, codebook=words).to(device)
    objective = train_manifold(layer, bags, target, sigma=0.7, metric=metric, max_iter=5, learning_rate=0.02, block=2)
    np.testing.assert_allclose(objective, learning.objective, rtol=1e-8)
    np.testing.assert_allclose(layer.words.detach().cpu().numpy(), learning.words, atol=1e-8)


@pytest.mark.parametrize("device", DEVICES)
def test_layers_and_models_exchange_words(device):
    rng = np.random.default_rng(0)
    bags = Bags.from_list([rng.normal(centre, 1.0, (9, 2)) for centre in (0, 0, 0, 3, 3, 3)], dtype=np.float64)
    model = ManifoldBagOfFeatures(4, n_components=2, n_neighbors=2, random_state=0).fit(bags)
    layer = SoftBagOfFeatures.from_estimator(model).to(device)
    T = layer(torch.tensor(np.asarray(bags.values), device=device), offsets=torch.tensor(np.asarray(bags.offsets)))
    np.testing.assert_allclose(T.detach().cpu().numpy(), model.transform(bags), atol=1e-6)
    np.testing.assert_allclose(layer.to_estimator().transform(bags), model.transform(bags), atol=1e-6)
