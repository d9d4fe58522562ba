"""The layer in PyTorch: the same numbers and gradients as without it."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from bagwise import Bags, BagwiseError  # noqa: E402
from bagwise.codebooks.manifold.objective import pair_objective  # noqa: E402
from bagwise.codebooks.manifold.soft import SoftHistograms  # noqa: E402
from bagwise.nn import SoftBagOfFeatures, manifold_loss, train_manifold  # noqa: E402


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    bags = Bags.from_list([rng.normal(size=(length, 3)) for length in (4, 1, 6, 3)], dtype=np.float64)
    words = rng.normal(size=(5, 3))
    target = np.full((4, 4), 0.3) + 0.7 * np.eye(4)
    return bags, words, target


def flat(bags):
    return torch.tensor(np.asarray(bags.values)), torch.tensor(np.asarray(bags.offsets))


def test_histograms_and_gradients_are_those_of_numpy(problem):
    bags, words, target = problem
    soft = SoftHistograms(bags.values, bags.offsets, 0.4)
    expected = pair_objective(soft.histograms(words), target, 0.7)
    by_word, by_feature = soft.pull_back(words, expected.gradient, features=True)

    layer = SoftBagOfFeatures(5, 3, 0.4, codebook=words)
    values, offsets = flat(bags)
    values.requires_grad_(True)
    T = layer(values, offsets=offsets)
    np.testing.assert_allclose(T.detach().numpy(), soft.histograms(words), atol=1e-12)
    loss = manifold_loss(T, torch.tensor(target), 0.7)
    assert loss.item() == pytest.approx(expected.value)
    loss.backward()
    np.testing.assert_allclose(layer.words.grad.numpy(), by_word, atol=1e-10)
    np.testing.assert_allclose(values.grad.numpy(), by_feature, atol=1e-10)


def test_single_precision_is_close_enough(problem):
    bags, words, target = problem
    soft = SoftHistograms(bags.values, bags.offsets, 0.4)
    by_word, _ = soft.pull_back(words, pair_objective(soft.histograms(words), target, 0.7).gradient)
    layer = SoftBagOfFeatures(5, 3, 0.4, codebook=words.astype(np.float32))
    values, offsets = flat(bags)
    manifold_loss(layer(values.float(), offsets=offsets), torch.tensor(target), 0.7).backward()
    np.testing.assert_allclose(layer.words.grad.numpy(), by_word, atol=1e-5)


def test_the_loss_is_differentiated_rightly():
    T = torch.softmax(torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=1)
    target = torch.eye(6, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda t: manifold_loss(t, target, 0.5), T.requires_grad_(True))


def test_blocks_of_pairs_do_not_matter(monkeypatch):
    from bagwise import nn

    T = torch.rand(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    target = torch.eye(9, dtype=torch.float64)
    whole = manifold_loss(T, target, 0.5)
    (expected,) = torch.autograd.grad(whole, T)
    monkeypatch.setattr(nn, "_BLOCK_NUMBERS", 80)
    parts = manifold_loss(T, target, 0.5)
    assert parts.item() == pytest.approx(whole.item())
    torch.testing.assert_close(torch.autograd.grad(parts, T)[0], expected)


def test_padding_is_ignored(problem):
    bags, words, _ = problem
    layer = SoftBagOfFeatures(5, 3, 0.4, codebook=words)
    values, offsets = flat(bags)
    expected = layer(values, offsets=offsets)
    padded = torch.full((4, 6, 3), 1e3, dtype=torch.float64)
    for i in range(4):
        padded[i, : bags.lengths[i]] = torch.tensor(np.asarray(bags[i]))
    lengths = torch.tensor(np.asarray(bags.lengths))
    torch.testing.assert_close(layer(padded, lengths=lengths), expected)
    torch.testing.assert_close(layer(padded[2:3]), expected[2:3])
    assert layer(padded, lengths=torch.zeros(4, dtype=torch.int64)).abs().sum() == 0


def test_a_word_on_a_feature_has_a_finite_gradient():
    values = torch.tensor([[0.0, 0], [1, 1], [2, 0]])
    layer = SoftBagOfFeatures(2, 2, 0.5, codebook=values[:2].numpy())
    manifold_loss(layer(values, offsets=torch.tensor([0, 2, 3])), torch.eye(2), 0.5).backward()
    assert torch.isfinite(layer.words.grad).all()


def test_training_words_is_learning_words(problem):
    from bagwise.codebooks.manifold.learning import learn_words

    bags, words, target = problem
    learning = learn_words(
        SoftHistograms(bags.values, bags.offsets, 0.4), words, target, sigma=0.7, n_iter=5, learning_rate=0.02
    )
    layer = SoftBagOfFeatures(5, 3, 0.4, codebook=words)
    objective = train_manifold(layer, bags, target, sigma=0.7, n_iter=5, learning_rate=0.02, block=2)
    np.testing.assert_allclose(objective, learning.objective, rtol=1e-8)
    np.testing.assert_allclose(layer.words.detach().numpy(), learning.words, atol=1e-8)
    as_list = SoftBagOfFeatures(5, 3, 0.4, codebook=words)
    train_manifold(as_list, [np.asarray(bags[i]) for i in range(4)], target, sigma=0.7, n_iter=5, learning_rate=0.02)
    torch.testing.assert_close(as_list.words, layer.words)


class Extractor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 3, 3, stride=2)

    def forward(self, images):
        return self.conv(images).flatten(2).transpose(1, 2)


def test_an_extractor_is_learned_only_when_asked():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(6, 1, 9, 9, generator=generator)
    target = torch.block_diag(torch.ones(3, 3), torch.ones(3, 3))
    torch.manual_seed(0)
    extractor = Extractor()
    layer = SoftBagOfFeatures(4, 3, 0.3)
    before = [p.detach().clone() for p in extractor.parameters()]
    objective = train_manifold(layer, images, target, sigma=0.5, extractor=extractor, n_iter=3)
    assert all(torch.equal(p, q) for p, q in zip(extractor.parameters(), before, strict=True))
    assert objective[-1] < objective[0]
    longer = train_manifold(
        layer, images, target, sigma=0.5, extractor=extractor, learn="all", n_iter=20, extractor_rate=0.01, block=4
    )
    assert not any(torch.equal(p, q) for p, q in zip(extractor.parameters(), before, strict=True))
    assert longer[-1] < longer[0]


def test_a_callback_ends_training(problem):
    bags, words, target = problem
    layer = SoftBagOfFeatures(5, 3, 0.4, codebook=words)
    assert len(train_manifold(layer, bags, target, sigma=0.7, callback=lambda step, value: step == 2)) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [({"learn": "words"}, "learn"), ({"learn": "all"}, "needs an extractor")],
)
def test_bad_options(problem, options, message):
    bags, words, target = problem
    with pytest.raises(BagwiseError, match=message):
        train_manifold(SoftBagOfFeatures(5, 3, codebook=words), bags, target, sigma=1.0, **options)


def test_bad_input(problem):
    bags, words, _ = problem
    layer = SoftBagOfFeatures(5, 3, codebook=words)
    with pytest.raises(BagwiseError, match=r"Give padded bags.*got values of shape \(14, 3\)"):
        layer(flat(bags)[0])
    with pytest.raises(BagwiseError, match=r"target must have the shape \(4, 4\); got \(3, 3\)"):
        manifold_loss(torch.rand(4, 2), torch.eye(3), 1.0)
    with pytest.raises(BagwiseError, match=r"codebook must have the shape \(4, 3\); got \(5, 3\)"):
        SoftBagOfFeatures(4, 3, codebook=words)
