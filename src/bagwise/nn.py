"""Soft bags of features as a PyTorch layer, and the loss that unfolds the manifold of the data.

Needs PyTorch: ``pip install "bagwise[torch]"``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise._utils.checks import as_numpy
from bagwise._utils.extras import require
from bagwise.bags import Bags
from bagwise.errors import BagwiseError, unknown_name

if TYPE_CHECKING:
    import torch

    from bagwise.codebooks.manifold.manifold_bag_of_features import ManifoldBagOfFeatures
else:
    torch = require("torch", "torch", "bagwise.nn")

__all__ = ["SoftBagOfFeatures", "manifold_loss", "train_manifold"]

# Numbers of a block of pairs of histograms.
_BLOCK_NUMBERS = 2**24
_METRICS = ("chi2", "hellinger")
_LEARNABLE = ("codebook", "all")


class SoftBagOfFeatures(torch.nn.Module):
    """Histograms ``mean_j softmax_k(-|v_k - x_j| / g)`` of bags over learnable words v.

    Parameters
    ----------
    n_words, n_features : int
    bandwidth : float, default=0.02
        g, in units of `scale`.
    scale : float, default=1.0
        Factor of the features.
    codebook : array of shape (n_words, n_features), default=None
        Initial words, in the units of the features. None: random ones.

    Examples
    --------
    >>> import torch
    >>> from bagwise.nn import SoftBagOfFeatures
    >>> layer = SoftBagOfFeatures(4, 2, bandwidth=0.5)
    >>> layer(torch.randn(3, 7, 2)).shape                               # three bags of seven features
    torch.Size([3, 4])
    >>> layer(torch.randn(10, 2), offsets=torch.tensor([0, 4, 10])).shape     # bags of four and of six
    torch.Size([2, 4])
    """

    def __init__(
        self, n_words: int, n_features: int, bandwidth: float = 0.02, *, scale: float = 1.0, codebook: Any = None
    ) -> None:
        super().__init__()
        self.bandwidth = float(bandwidth)
        self.scale: torch.Tensor
        self.register_buffer("scale", torch.tensor(float(scale), dtype=torch.float64))
        if codebook is None:
            words = torch.randn(n_words, n_features)
        else:
            words = torch.as_tensor(as_numpy(codebook)) * scale
            if tuple(words.shape) != (n_words, n_features):
                raise BagwiseError(f"codebook must have the shape ({n_words}, {n_features}); got {tuple(words.shape)}.")
        self.words = torch.nn.Parameter(words.clone())  # multiplied by the scale, as features are

    def forward(self, values: Any, lengths: Any = None, offsets: Any = None) -> Any:
        """Compute histograms.

        Parameters
        ----------
        values : tensor of shape (n_bags, length, n_features) or (n_rows, n_features)
            Padded bags, or the features of all bags one after the other.
        lengths : tensor of int, shape (n_bags,), default=None
            Number of features of each bag before padding. None: no padding.
        offsets : tensor of int, shape (n_bags + 1,), default=None
            Where bags begin and end, for values in two dimensions.

        Returns
        -------
        T : tensor of shape (n_bags, n_words)
            Rows sum to 1; zeros for bags without features.
        """
        if values.ndim == 3 and offsets is None:
            U = self.assign(values)
            if lengths is None:
                return U.mean(dim=1)
            lengths = torch.as_tensor(lengths, device=values.device)
            inside = torch.arange(values.shape[1], device=values.device) < lengths[:, None]
            return torch.where(inside[..., None], U, 0.0).sum(dim=1) / lengths.clamp(min=1)[:, None]
        if values.ndim != 2 or offsets is None or lengths is not None:
            raise BagwiseError(
                "Give padded bags (bags x length x features) with lengths, or rows (rows x features) with offsets; got "
                f"values of shape {tuple(values.shape)}"
                f"{', lengths' if lengths is not None else ''}{', offsets' if offsets is not None else ''}."
            )
        sizes = torch.diff(torch.as_tensor(offsets, device=values.device))
        bag_of = torch.repeat_interleave(torch.arange(len(sizes), device=values.device), sizes)
        T = torch.zeros(len(sizes), len(self.words), dtype=self.words.dtype, device=values.device)
        return T.index_add(0, bag_of, self.assign(values)) / sizes.clamp(min=1)[:, None]

    def assign(self, values: Any) -> Any:
        """Soft assignment of each feature to the words, in the last dimension."""
        scaled = values.to(self.words.dtype) * self.scale.to(self.words.dtype)
        flat = scaled.reshape(-1, scaled.shape[-1])
        distances = torch.cdist(flat, self.words, compute_mode="donot_use_mm_for_euclid_dist")
        return torch.softmax(distances / -self.bandwidth, dim=-1).reshape(*values.shape[:-1], -1)

    @classmethod
    def from_estimator(cls, model: ManifoldBagOfFeatures) -> SoftBagOfFeatures:
        """Take the words of a fitted `ManifoldBagOfFeatures`."""
        n_words, n_features = model.codebook_.shape
        return cls(n_words, n_features, model.bandwidth, scale=model.scale_, codebook=model.codebook_)

    def to_estimator(self, model: ManifoldBagOfFeatures | None = None) -> ManifoldBagOfFeatures:
        """Give the words to a `ManifoldBagOfFeatures`, a new one unless `model` is given; it can transform then."""
        from bagwise.codebooks.manifold.manifold_bag_of_features import ManifoldBagOfFeatures

        n_words, n_features = self.words.shape
        if model is None:
            model = ManifoldBagOfFeatures(n_words)
        model.set_params(n_words=n_words, bandwidth=self.bandwidth)
        model.scale_ = self.scale.item()
        model.codebook_ = self.words.detach().cpu().double().numpy() / model.scale_
        model.n_features_in_ = n_features
        if not hasattr(model, "n_iter_"):  # never fitted: these words are all it knows
            model.initial_codebook_ = model.codebook_.copy()
            model.sigma_histogram_ = 1.0 if model.sigma_histogram == "auto" else float(model.sigma_histogram)
            model.objective_, model.held_out_objective_, model.embedding_ = np.empty(0), np.empty(0), None
            model.n_iter_ = 0
        return model


class _PairLoss(torch.autograd.Function):
    """The objective over all pairs, with its gradient computed block by block on the way."""

    @staticmethod
    def forward(ctx: Any, T: Any, target: Any, sigma: float, metric: str) -> Any:
        gradient = torch.zeros_like(T)
        loss = torch.zeros((), dtype=T.dtype, device=T.device)
        distances = _chi2_block if metric == "chi2" else _hellinger_block
        # one row of the block and all histograms: n x n_words numbers for chi², n for Hellinger
        step = max(_BLOCK_NUMBERS // max(len(T) * (T.shape[1] if metric == "chi2" else 1), 1), 1)
        for start in range(0, len(T), step):
            distance, pull_back = distances(T[start : start + step], T)
            similarity = torch.exp(distance / -sigma)
            error = similarity - target[start : start + step]
            loss += 0.5 * (error**2).sum()
            # both sides of an ordered pair: twice what one row of pairs gives, by symmetry
            gradient[start : start + step] = pull_back((-1.0 / sigma) * error * similarity)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> Any:
        (gradient,) = ctx.saved_tensors
        return upstream * gradient, None, None, None


def _chi2_block(some: Any, T: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Distances of some histograms to all, and what turns slopes with respect to them into twice the gradient."""
    a, b = some[:, None, :], T[None, :, :]
    inverse = 1.0 / (a + b)
    inverse = torch.where(torch.isfinite(inverse), inverse, 0.0)  # two empty bins, or all but empty ones
    difference = (a - b) * inverse
    distance = 0.5 * (difference * (a - b)).sum(dim=2)
    return distance, lambda slope: torch.einsum("ij,ijk->ik", slope, difference * inverse * (a + 3.0 * b))


def _hellinger_block(some: Any, T: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The same for squared Hellinger distances."""
    a, b = some.sqrt(), T.sqrt()
    distance = 0.5 * (some.sum(dim=1)[:, None] + T.sum(dim=1)) - a @ b.T
    inverse = torch.where(some >= torch.finfo(T.dtype).tiny, 1.0 / a, 0.0)

    def pull_back(slope: Any) -> Any:
        return (inverse > 0) * (slope.sum(dim=1)[:, None] - (slope @ b) * inverse)

    return distance.clamp(min=0.0), pull_back


def manifold_loss(T: Any, target: Any, sigma: float, metric: str = "hellinger") -> Any:
    """``½ Σ_ij (exp(-distance(t_i, t_j) / sigma) - target_ij)²`` over all ordered pairs, differentiable in T.

    Parameters
    ----------
    T : tensor of shape (n, n_words)
        Histograms.
    target : tensor of shape (n, n)
        Symmetric similarities.
    sigma : float
    metric : {"hellinger", "chi2"}, default="hellinger"
        Distance, as in `ManifoldBagOfFeatures`: ``½ Σ (√a - √b)²`` (squared, unlike in `SpectralClusterer`) or
        ``½ Σ (a - b)² / (a + b)``.

    Notes
    -----
    Pairs are processed in blocks; nothing of the size n x n x n_words is held, neither forward nor backward.
    """
    if metric not in _METRICS:
        raise unknown_name("metric", metric, _METRICS)
    if target.shape != (len(T), len(T)):
        raise BagwiseError(f"target must have the shape ({len(T)}, {len(T)}); got {tuple(target.shape)}.")
    return _PairLoss.apply(T, target.to(T), float(sigma), metric)


def train_manifold(
    layer: SoftBagOfFeatures,
    inputs: Any,
    target: Any,
    *,
    sigma: float,
    metric: str = "hellinger",
    extractor: Any = None,
    learn: str = "codebook",
    max_iter: int = 10,
    learning_rate: float = 0.01,
    extractor_rate: float = 1e-4,
    block: int = 64,
    callback: Callable[[int, float], Any] | None = None,
) -> list[float]:
    """Learn the words of a layer, and with ``learn="all"`` the extractor of the features as well.

    Each step computes all histograms without a graph, the gradient of the objective with respect to them, and
    propagates it back block by block. Only the n x n similarities grow with the number n of objects.

    Parameters
    ----------
    layer : SoftBagOfFeatures
    inputs : Bags, list of tensors, or tensor
        Features of each object; or, with an extractor, what it takes, one object a row.
    target : array or tensor of shape (n, n)
        Similarities to reach, for example from `ManifoldBagOfFeatures`.
    sigma : float
    metric : {"hellinger", "chi2"}, default="hellinger"
        As in `manifold_loss`.
    extractor : nn.Module, default=None
        Turns a batch of inputs into features: objects x length x features.
    learn : {"codebook", "all"}, default="codebook"
    max_iter, learning_rate
        Steps of Adam.
    extractor_rate : float, default=1e-4
        Learning rate of the extractor.
    block : int, default=64
        Objects processed at a time.
    callback : callable, default=None
        Called with the number of steps and the objective; ends training by returning True.

    Returns
    -------
    objective : list of float
        Mean squared error over pairs before each step and after the last.
    """
    if learn not in _LEARNABLE:
        raise unknown_name("learn", learn, _LEARNABLE)
    if learn == "all" and extractor is None:
        raise BagwiseError("learn='all' needs an extractor to learn; give one, or use learn='codebook'.")
    device, dtype = layer.words.device, layer.words.dtype
    target = torch.as_tensor(target if torch.is_tensor(target) else np.asarray(target)).to(device, dtype)
    groups = [{"params": [layer.words], "lr": learning_rate}]
    if learn == "all":
        groups.append({"params": list(extractor.parameters()), "lr": extractor_rate})
    optimizer = torch.optim.Adam(groups)
    n = len(inputs)
    objective: list[float] = []
    for step in range(max_iter + 1):
        with torch.no_grad():
            T = torch.cat([layer(*part) for _, part in _batches(inputs, extractor, block, device)])
        T.requires_grad_(True)
        loss = manifold_loss(T, target, sigma, metric)
        objective.append(2.0 * loss.item() / max(n * (n - 1), 1))
        answer = None if callback is None else callback(step, objective[-1])
        if step == max_iter or (isinstance(answer, (bool, np.bool_)) and answer):
            break
        (G,) = torch.autograd.grad(loss, T)
        optimizer.zero_grad()
        for rows, part in _batches(inputs, extractor, block, device, keep_graph=learn == "all"):
            (layer(*part) * G[rows]).sum().backward()
        optimizer.step()
    return objective


def _batches(
    inputs: Any, extractor: Any, block: int, device: Any, keep_graph: bool = False
) -> Iterator[tuple[slice, tuple[Any, ...]]]:
    """Arguments of the layer for some objects at a time."""
    for start in range(0, len(inputs), block):
        rows = slice(start, min(start + block, len(inputs)))
        some = inputs[rows]
        if extractor is not None:
            with torch.set_grad_enabled(keep_graph and torch.is_grad_enabled()):
                features = extractor(torch.as_tensor(some).to(device))
            yield rows, (features,)
            continue
        if isinstance(some, Bags):
            values, lengths = torch.tensor(np.asarray(some.values)), torch.tensor(some.lengths)
        else:
            tensors = [one if torch.is_tensor(one) else torch.tensor(np.asarray(one)) for one in some]
            values, lengths = torch.cat(tensors), torch.tensor([len(one) for one in tensors])
        offsets = torch.nn.functional.pad(torch.cumsum(lengths, dim=0), (1, 0))
        yield rows, (values.to(device), None, offsets.to(device))
