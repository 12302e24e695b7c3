"""Attribute a digit's probability to its pixels, on a CPU: one plain loop per point."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from overnight_common.facts import method
from overnight_consumer.methods.shapley.classifier import Array, shipped_classifier
from overnight_consumer.methods.shapley.question import DEFAULT_PERMUTATIONS, ask
from overnight_consumer.methods.shapley.sampling import shapley_values


@method(name="shapley", variants={"cuda": "overnight_consumer.methods.shapley.torch_variant:shapley"})
def shapley(
    points: ArrayLike,
    seeds: NDArray[np.uint64],
    permutations: int = DEFAULT_PERMUTATIONS,
    baseline: str = "mean",
    target: int | None = None,
) -> Array:
    """Tell how much each pixel adds to the probability that the classifier gives to a digit.

    Args:
        points: `[n, 64]` or `[n, 8, 8]`, pixels from 0 to 16.
        seeds: `[n]`, one per point.
        permutations: how many to sample per point.
        baseline: `mean` or `zeros`: what an absent pixel looks like.
        target: the digit to be explained; None for the one that the classifier sees in each point.

    Returns:
        `[n, 64]`; row i adds up to the probability at point i less the probability at the baseline.

    Raises:
        ValueError: an argument is out of range, or the points are no 8 x 8 pictures.
    """
    classifier = shipped_classifier()
    question = ask(classifier, points, permutations, baseline, target)
    attributions = np.empty_like(question.points)
    for i, (point, digit, seed) in enumerate(zip(question.points, question.targets, seeds, strict=True)):

        def probability(pixels: Array, digit: np.intp = digit) -> float:
            return float(classifier.probabilities(pixels)[digit])

        rng = np.random.default_rng(seed)
        attributions[i] = shapley_values(probability, point, question.baseline, permutations, rng)
    return attributions
