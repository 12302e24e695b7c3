"""Estimate Shapley values of any function of a vector by sampling permutations: the very long loop.

The estimator is Algorithm 1 of Štrumbelj and Kononenko, "Explaining prediction models and individual
predictions with feature contributions", Knowledge and Information Systems 41, 647-665 (2014), with one fixed
baseline in place of points drawn from the data, and with whole permutations: every feature is visited once in
each, so that the values add up to f(x) - f(baseline).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


def shapley_values(
    function: Callable[[NDArray[np.float64]], float],
    point: NDArray[np.float64],
    baseline: NDArray[np.float64],
    permutations: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Share the difference f(point) - f(baseline) out among the features.

    Each permutation walks from the baseline to the point, one feature at a time, and books every change of
    the function on the feature that caused it. The function sees one vector at a time, so the result does
    not depend, not even in its last bit, on what else is computed beside it.

    Args:
        function: f, called `permutations * (features + 1)` times with an array `[features]`, which it must
            neither keep nor change.
        point: `[features]`.
        baseline: `[features]`, what stands for an absent feature.
        permutations: how many to sample, at least 1; the error falls with the square root.
        rng: where the permutations come from, one call of `rng.permutation(features)` for each.

    Returns:
        `[features]`; the sum is f(point) - f(baseline), up to rounding.
    """
    totals = np.zeros(len(point))
    for _ in range(permutations):
        mixed = baseline.copy()
        before = function(mixed)
        for feature in rng.permutation(len(point)):
            mixed[feature] = point[feature]
            after = function(mixed)
            totals[feature] += after - before
            before = after
    return totals / permutations
