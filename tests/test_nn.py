"""The layer in PyTorch, on the processor and on CUDA where there is one.

Nothing here needs more than PyTorch, NumPy and pytest, so that it runs on machines made for networks as well. That the
numbers are those of the compiled code is tested in `codebooks/test_manifold_layer.py`.
"""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from bagwise import Bags, BagwiseError  # noqa: E402
from bagwise.nn import SoftBagOfFeatures, manifold_loss, train_manifold  # noqa: E402

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_cuda)])
def device(request):
    return torch.device(request.param)


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    bags = Bags.from_list([rng.normal(size=(length, 3)) for length in (4, 1, 6, 3)], dtype=np.float64)
    words = rng.normal(size=(5, 3))
    target = np.full((4, 4), 0.3) + 0.7 * np.eye(4)
    return bags, words, target


def layer_of(words, device, bandwidth=0.4):
    return SoftBagOfFeatures(*words.shape, bandwidth, codebook=words).to(device)


def flat(bags, device):
    return torch.tensor(np.asarray(bags.values), device=device), torch.tensor(np.asarray(bags.offsets), device=device)


def test_histograms_are_those_of_the_definition(problem, device):
    bags, words, _ = problem
    T = layer_of(words, device)(*flat(bags, device)[:1], offsets=flat(bags, device)[1])
    assert T.device.type == device.type
    for i, t in enumerate(T.detach().cpu().numpy()):
        exponents = -np.linalg.norm(np.asarray(bags[i])[:, None] - words, axis=2) / 0.4
        shares = np.exp(exponents) / np.exp(exponents).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(t, shares.mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("metric", ["chi2", "hellinger"])
def test_the_loss_is_that_of_the_definition(device, metric):
    T = np.random.default_rng(0).dirichlet(np.ones(6), 5)
    T[0, 2] = T[1, 2] = 0  # bins empty in both
    target = 0.5 * (np.eye(5) + 1)
    plain = {
        "chi2": lambda a, b: 0.5 * np.sum((a - b) ** 2 / np.where(a + b > 0, a + b, 1)),
        "hellinger": lambda a, b: 0.5 * np.sum((np.sqrt(a) - np.sqrt(b)) ** 2),
    }[metric]
    distances = np.array([[plain(a, b) for b in T] for a in T])
    expected = 0.5 * ((np.exp(-distances / 0.7) - target) ** 2).sum()
    # a target of the processor will do
    loss = manifold_loss(torch.tensor(T, device=device), torch.tensor(target), 0.7, metric)
    assert loss.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("metric", ["chi2", "hellinger"])
def test_the_loss_is_differentiated_rightly(device, metric):
    T = torch.softmax(torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=1)
    target = torch.eye(6, dtype=torch.float64, device=device)
    assert torch.autograd.gradcheck(lambda t: manifold_loss(t, target, 0.5, metric), T.to(device).requires_grad_(True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("metric", ["chi2", "hellinger"])
def test_bins_that_are_all_but_empty_do_no_harm(device, dtype, metric):
    tiny = torch.finfo(dtype).smallest_normal / 8
    T = torch.tensor([[1.0, tiny, 0.0], [1.0, 0.0, tiny], [0.5, 0.5, 0.0]], dtype=dtype, device=device)
    T.requires_grad_(True)
    (G,) = torch.autograd.grad(manifold_loss(T, torch.eye(3), 0.5, metric), T)
    assert torch.isfinite(G).all()


@pytest.mark.parametrize("metric", ["chi2", "hellinger"])
def test_blocks_of_pairs_do_not_matter(monkeypatch, device, metric):
    from bagwise import nn

    T = torch.rand(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(device)
    T.requires_grad_(True)
    target = torch.eye(9, dtype=torch.float64, device=device)
    whole = manifold_loss(T, target, 0.5, metric)
    (expected,) = torch.autograd.grad(whole, T)
    monkeypatch.setattr(nn, "_BLOCK_NUMBERS", 80 if metric == "chi2" else 20)
    parts = manifold_loss(T, target, 0.5, metric)
    assert parts.item() == pytest.approx(whole.item())
    torch.testing.assert_close(torch.autograd.grad(parts, T)[0], expected)


def test_padding_is_ignored(problem, device):
    bags, words, _ = problem
    layer = layer_of(words, device)
    values, offsets = flat(bags, device)
    expected = layer(values, offsets=offsets)
    padded = torch.full((4, 6, 3), 1e3, dtype=torch.float64, device=device)
    for i in range(4):
        padded[i, : bags.lengths[i]] = torch.tensor(np.asarray(bags[i]))
    lengths = torch.tensor(np.asarray(bags.lengths))
    torch.testing.assert_close(layer(padded, lengths=lengths), expected)
    torch.testing.assert_close(layer(padded, lengths=lengths.to(device)), expected)
    torch.testing.assert_close(layer(padded[2:3]), expected[2:3])
    assert layer(padded, lengths=torch.zeros(4, dtype=torch.int64)).abs().sum() == 0


@pytest.mark.parametrize("metric", ["chi2", "hellinger"])
def test_a_word_on_a_feature_has_a_finite_gradient(device, metric):
    values = torch.tensor([[0.0, 0], [1, 1], [2, 0]], device=device)
    layer = layer_of(values[:2], device, bandwidth=0.5)
    manifold_loss(layer(values, offsets=torch.tensor([0, 2, 3])), torch.eye(2), 0.5, metric).backward()
    assert torch.isfinite(layer.words.grad).all()


def test_the_kind_of_bags_and_the_block_do_not_matter_for_training(problem, device):
    bags, words, target = problem
    arrays = [np.asarray(bags[i]) for i in range(4)]
    tensors = [torch.tensor(array, device=device) for array in arrays]
    learned = []
    for inputs, block in ((bags, 64), (bags, 2), (arrays, 3), (tensors, 64)):
        layer = layer_of(words, device)
        objective = train_manifold(layer, inputs, target, sigma=0.7, max_iter=5, learning_rate=0.02, block=block)
        assert objective[-1] < objective[0]
        learned.append(layer.words.detach())
    for other in learned[1:]:
        torch.testing.assert_close(other, learned[0])


class Extractor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 3, 3, stride=2)

    def forward(self, images):
        return self.conv(images).flatten(2).transpose(1, 2)


def network():
    """Images, their target, an extractor and a layer, the same each time, on the processor."""
    torch.manual_seed(0)
    images = torch.rand(6, 1, 9, 9, dtype=torch.float64)
    target = torch.block_diag(torch.ones(3, 3), torch.ones(3, 3))
    layer = SoftBagOfFeatures(4, 3, 0.3, codebook=torch.randn(4, 3, dtype=torch.float64))
    return images, target, Extractor().double(), layer


def test_an_extractor_is_learned_only_when_asked(device):
    images, target, extractor, layer = network()
    extractor, layer = extractor.to(device), layer.to(device)
    before = copy.deepcopy(extractor)
    objective = train_manifold(layer, images, target, sigma=0.5, extractor=extractor, max_iter=3)
    assert all(torch.equal(p, q) for p, q in zip(extractor.parameters(), before.parameters(), strict=True))
    assert objective[-1] < objective[0]
    longer = train_manifold(
        layer, images, target, sigma=0.5, extractor=extractor, learn="all", max_iter=20, extractor_rate=0.01, block=4
    )
    assert not any(torch.equal(p, q) for p, q in zip(extractor.parameters(), before.parameters(), strict=True))
    assert longer[-1] < longer[0]


@needs_cuda
@pytest.mark.parametrize("learn", ["codebook", "all"])
def test_cuda_learns_what_the_processor_learns(learn):
    results = []
    for device in ("cpu", "cuda"):
        images, target, extractor, layer = network()
        extractor, layer = extractor.to(device), layer.to(device)
        objective = train_manifold(
            layer, images, target, sigma=0.5, extractor=extractor, learn=learn, max_iter=5, extractor_rate=0.01
        )
        results.append((objective, layer.words.detach().cpu(), extractor.conv.weight.detach().cpu()))
    (objective, words, weights), (other_objective, other_words, other_weights) = results
    np.testing.assert_allclose(other_objective, objective, rtol=1e-6)
    torch.testing.assert_close(other_words, words, rtol=0, atol=1e-5)
    torch.testing.assert_close(other_weights, weights, rtol=0, atol=1e-5)


def test_a_state_moves_between_layers(problem, device):
    bags, words, _ = problem
    layer = layer_of(2 * words, device)
    other = SoftBagOfFeatures(5, 3, 0.4, codebook=words, scale=3.0)
    layer.load_state_dict(other.state_dict())
    values, offsets = flat(bags, device)
    torch.testing.assert_close(layer(values, offsets=offsets).cpu(), other(values.cpu(), offsets=offsets.cpu()))


def test_a_callback_ends_training(problem, device):
    bags, words, target = problem
    layer = layer_of(words, device)
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
        layer(torch.tensor(np.asarray(bags.values)))
    with pytest.raises(BagwiseError, match=r"target must have the shape \(4, 4\); got \(3, 3\)"):
        manifold_loss(torch.rand(4, 2), torch.eye(3), 1.0)
    with pytest.raises(BagwiseError, match="Unknown metric: 'chi'"):
        manifold_loss(torch.rand(4, 2), torch.eye(4), 1.0, "chi")
    with pytest.raises(BagwiseError, match=r"codebook must have the shape \(4, 3\); got \(5, 3\)"):
        SoftBagOfFeatures(4, 3, codebook=words)
