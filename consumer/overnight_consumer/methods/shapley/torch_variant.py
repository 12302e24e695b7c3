"""Attribute a digit's probability to its pixels with torch: all steps of many permutations at once."""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from overnight_common.facts import method
from overnight_consumer.methods.shapley.classifier import LARGEST_PIXEL, PIXELS, Array, shipped_classifier
from overnight_consumer.methods.shapley.question import DEFAULT_PERMUTATIONS, ask

# 512 permutations are 33,280 mixed pictures, 17 MB in float64.
PERMUTATIONS_AT_ONCE = 512


class _Network:
    """Hold the shipped classifier's weights on one device."""

    def __init__(self, device: torch.device) -> None:
        classifier = shipped_classifier()
        self._hidden_weights = torch.tensor(classifier.hidden_weights, device=device)
        self._hidden_biases = torch.tensor(classifier.hidden_biases, device=device)
        self._output_weights = torch.tensor(classifier.output_weights, device=device)
        self._output_biases = torch.tensor(classifier.output_biases, device=device)

    def probability(self, pixels: torch.Tensor, digit: int) -> torch.Tensor:
        """Return the probability of one digit, `[...]`, for pixels `[..., 64]` from 0 to 16."""
        hidden = torch.relu(pixels / LARGEST_PIXEL @ self._hidden_weights + self._hidden_biases)
        scores = hidden @ self._output_weights + self._output_biases
        return torch.softmax(scores, dim=-1)[..., digit]


@method(name="shapley", device="cuda")
def shapley(
    points: ArrayLike,
    seeds: NDArray[np.uint64],
    permutations: int = DEFAULT_PERMUTATIONS,
    baseline: str = "mean",
    target: int | None = None,
    device: str = "cpu",
) -> Array:
    """Do what the NumPy variant does, with the same permutations, in float64: equal to 1e-6 or better.

    Args:
        points: `[n, 64]` or `[n, 8, 8]`, pixels from 0 to 16.
        seeds: `[n]`, one per point.
        permutations: how many to sample per point.
        baseline: `mean` or `zeros`: what an absent pixel looks like.
        target: the digit to be explained; None for the one that the classifier sees in each point.
        device: where torch computes, for example `cuda` or `cuda:1`.

    Returns:
        `[n, 64]`; row i adds up to the probability at point i less the probability at the baseline.

    Raises:
        ValueError: an argument is out of range, or the points are no 8 x 8 pictures.
    """
    question = ask(shipped_classifier(), points, permutations, baseline, target)
    place = torch.device(device)
    network = _Network(place)
    start = torch.tensor(question.baseline, device=place)
    attributions = np.empty_like(question.points)
    for i, (point, digit, seed) in enumerate(zip(question.points, question.targets, seeds, strict=True)):
        rng = np.random.default_rng(seed)
        end = torch.tensor(point, device=place)
        totals = torch.zeros(PIXELS, dtype=torch.float64, device=place)
        for first in range(0, permutations, PERMUTATIONS_AT_ONCE):
            orders = _draw_orders(rng, min(PERMUTATIONS_AT_ONCE, permutations - first)).to(place)
            totals += _sum_of_changes(network, start, end, int(digit), orders)
        attributions[i] = (totals / permutations).cpu().numpy()
    return attributions


def _draw_orders(rng: np.random.Generator, count: int) -> torch.Tensor:
    """Draw permutations of the pixels, `[count, 64]`, by the same calls as the NumPy variant."""
    return torch.from_numpy(np.stack([rng.permutation(PIXELS) for _ in range(count)]))


def _sum_of_changes(
    network: _Network, start: torch.Tensor, end: torch.Tensor, digit: int, orders: torch.Tensor
) -> torch.Tensor:
    """Walk from `start` to `end` along each of `orders` and add up the change at every pixel, `[64]`."""
    ranks = torch.argsort(orders, dim=1)
    steps = torch.arange(PIXELS + 1, device=orders.device)
    # After k steps, the pixels of rank below k show the point and the others the baseline.
    has_changed = ranks[:, None, :] < steps[None, :, None]
    along = network.probability(torch.where(has_changed, end, start), digit)
    return torch.diff(along, dim=1).gather(1, ranks).sum(dim=0)
