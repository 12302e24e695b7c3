"""Turn the arguments of the method `shapley` into what is asked about each point, alike for all variants."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from overnight_consumer.methods.shapley.classifier import PIXELS, Array, Classifier

# The 1,797 digits then take about two minutes on two cores.
DEFAULT_PERMUTATIONS = 200
BASELINES = ("mean", "zeros")


@dataclass(frozen=True)
class Question:
    """Ask for the attributions of a batch.

    Attributes:
        points: `[n, 64]`, pixels from 0 to 16.
        targets: `[n]`, the digit whose probability is explained, one per point.
        baseline: `[64]`.
    """

    points: Array
    targets: NDArray[np.intp]
    baseline: Array


def ask(
    classifier: Classifier, points: ArrayLike, permutations: int, baseline: str, target: int | None
) -> Question:
    """Check the arguments and look up what they stand for.

    Args:
        classifier: the model to be explained.
        points: `[n, 64]` or `[n, 8, 8]`, pixels from 0 to 16, of any dtype.
        permutations: at least 1.
        baseline: `mean` for the mean digit of the training data, `zeros` for an empty picture.
        target: the digit to be explained, or None for the one that the classifier sees in each point.

    Returns:
        The question.

    Raises:
        ValueError: an argument is out of range, or the points are no 8 x 8 pictures.
    """
    pixels = np.asarray(points, dtype=np.float64, order="C")
    if pixels.shape[1:] not in {(PIXELS,), (8, 8)}:
        raise ValueError(
            f"points of shape {pixels.shape[1:]} are no 8 x 8 pictures: give [n, 64] or [n, 8, 8]"
        )
    if permutations < 1:
        raise ValueError(f"permutations={permutations} is below 1")
    if baseline not in BASELINES:
        raise ValueError(f"baseline={baseline!r} is unknown: choose one of {', '.join(BASELINES)}")
    if target is not None and not 0 <= target <= 9:
        raise ValueError(f"target={target} is no digit: choose 0 to 9, or leave it out")
    pixels = pixels.reshape(len(pixels), PIXELS)
    # One by one: a product over the batch may round differently than one over a single point.
    targets = [int(classifier.predict(point)) if target is None else target for point in pixels]
    return Question(
        points=pixels,
        targets=np.array(targets, dtype=np.intp),
        baseline=classifier.mean_digit.copy() if baseline == "mean" else np.zeros(PIXELS),
    )
