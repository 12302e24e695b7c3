from itertools import combinations
from math import factorial

import numpy as np
import pytest

from overnight_consumer.methods.shapley.classifier import shipped_classifier
from overnight_consumer.methods.shapley.sampling import shapley_values


def exact_shapley_values(function, point, baseline):
    """Weigh every subset of the other features, by the definition."""
    n = len(point)
    values = np.zeros(n)
    for feature in range(n):
        others = [i for i in range(n) if i != feature]
        for size in range(n):
            weight = factorial(size) * factorial(n - size - 1) / factorial(n)
            for subset in combinations(others, size):
                mixed = baseline.copy()
                mixed[list(subset)] = point[list(subset)]
                before = function(mixed)
                mixed[feature] = point[feature]
                values[feature] += weight * (function(mixed) - before)
    return values


def curved(x):
    return float(x[0] * x[1] + np.sin(x[2]) * x[0] + max(x[3], x[1]) ** 2 + x[2])


POINT = np.array([1.5, -0.7, 2.0, 1.4])
BASELINE = np.array([0.2, 0.9, -1.0, 0.1])


@pytest.mark.parametrize("permutations", [1, 2, 50])
def test_a_linear_model_gets_its_closed_form_from_any_number_of_permutations(permutations):
    rng = np.random.default_rng(3)
    weights, point, baseline = rng.normal(size=(3, 20))

    values = shapley_values(lambda x: float(weights @ x) + 4.0, point, baseline, permutations, rng)

    np.testing.assert_allclose(values, weights * (point - baseline), rtol=0, atol=1e-13)


def test_values_of_a_curved_function_approach_those_by_definition():
    exact = exact_shapley_values(curved, POINT, BASELINE)
    single = np.array(
        [shapley_values(curved, POINT, BASELINE, 1, np.random.default_rng(seed)) for seed in range(4000)]
    )
    standard_error = single.std(axis=0, ddof=1) / np.sqrt(len(single))

    # Interactions make single permutations differ; else this would test no more than the linear case.
    assert (single.std(axis=0) > 0.1).all()
    assert (np.abs(single.mean(axis=0) - exact) < 4 * standard_error).all()


def test_many_permutations_are_the_mean_of_single_ones():
    together = shapley_values(curved, POINT, BASELINE, 30, np.random.default_rng(8))
    rng = np.random.default_rng(8)

    one_by_one = [shapley_values(curved, POINT, BASELINE, 1, rng) for _ in range(30)]

    np.testing.assert_allclose(together, np.mean(one_by_one, axis=0), rtol=0, atol=1e-14)


def test_values_add_up_to_the_difference_of_the_classifier_at_point_and_baseline(digits):
    classifier = shipped_classifier()

    def probability_of_three(pixels):
        return float(classifier.probabilities(pixels)[3])

    for point in digits[:10].astype(float):
        rng = np.random.default_rng(1)
        values = shapley_values(probability_of_three, point, classifier.mean_digit, 5, rng)
        difference = probability_of_three(point) - probability_of_three(classifier.mean_digit)
        assert values.sum() == pytest.approx(difference, abs=1e-12)


def test_a_feature_that_equals_its_baseline_gets_exactly_nothing():
    point = POINT.copy()
    point[2] = BASELINE[2]

    values = shapley_values(curved, point, BASELINE, 10, np.random.default_rng(0))

    assert values[2] == 0.0
    assert np.count_nonzero(values) == 3


def test_the_function_is_called_with_one_vector_and_as_often_as_promised():
    shapes = []

    def count(x):
        shapes.append(x.shape)
        return 0.0

    shapley_values(count, POINT, BASELINE, 7, np.random.default_rng(0))

    assert shapes == [(4,)] * 7 * 5


def test_point_and_baseline_are_left_as_they_were():
    point, baseline = POINT.copy(), BASELINE.copy()

    shapley_values(curved, point, baseline, 3, np.random.default_rng(0))

    np.testing.assert_array_equal(point, POINT)
    np.testing.assert_array_equal(baseline, BASELINE)
