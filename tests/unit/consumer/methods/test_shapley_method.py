import subprocess
import sys

import numpy as np
import pytest

from overnight_common.facts import facts_of
from overnight_consumer.methods.shapley import shapley
from overnight_consumer.methods.shapley.classifier import shipped_classifier
from support.plain_loop import plain_shapley, point_seeds


def test_every_cut_into_batches_gives_the_same_bits(digits):
    points, seeds = digits[:11], point_seeds(5, 0, 11)
    expected = plain_shapley(points, seed=5, permutations=3)

    for batch in (1, 2, 7, 11):
        parts = [
            shapley(points[i : i + batch], seeds=seeds[i : i + batch], permutations=3)
            for i in range(0, 11, batch)
        ]
        np.testing.assert_array_equal(np.concatenate(parts), expected, strict=True)


def test_dtype_and_shape_of_the_points_do_not_change_the_result(digits):
    seeds = point_seeds(5, 0, 3)
    expected = shapley(digits[:3], seeds=seeds, permutations=2)

    as_pictures = shapley(digits[:3].reshape(3, 8, 8), seeds=seeds, permutations=2)
    as_floats = shapley(digits[:3].astype(np.float32), seeds=seeds, permutations=2)
    from_fortran = shapley(np.asfortranarray(digits[:3].astype(float)), seeds=seeds, permutations=2)

    for other in (as_pictures, as_floats, from_fortran):
        np.testing.assert_array_equal(other, expected, strict=True)


def test_another_seed_gives_other_values_with_the_same_sum(digits):
    one = shapley(digits[:2], seeds=point_seeds(1, 0, 2), permutations=2)
    other = shapley(digits[:2], seeds=point_seeds(2, 0, 2), permutations=2)

    assert not np.array_equal(one, other)
    np.testing.assert_allclose(one.sum(axis=1), other.sum(axis=1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("baseline", ["mean", "zeros"])
def test_attributions_add_up_to_what_the_prediction_gained_over_the_baseline(digits, baseline):
    classifier = shipped_classifier()
    start = classifier.mean_digit if baseline == "mean" else np.zeros(64)

    sums = shapley(digits[:20], point_seeds(0, 0, 20), permutations=2, baseline=baseline).sum(axis=1)

    for point, total in zip(digits[:20].astype(float), sums, strict=True):
        seen = classifier.predict(point)
        gained = classifier.probabilities(point)[seen] - classifier.probabilities(start)[seen]
        assert total == pytest.approx(gained, abs=1e-12)


def test_a_target_is_explained_instead_of_the_predicted_digit(digits):
    seeds = point_seeds(0, 0, 1)
    seen = int(shipped_classifier().predict(digits[0].astype(float)))

    for_seen = shapley(digits[:1], seeds, permutations=2, target=seen)
    for_other = shapley(digits[:1], seeds, permutations=2, target=(seen + 1) % 10)

    np.testing.assert_array_equal(for_seen, shapley(digits[:1], seeds, permutations=2))
    assert for_seen.sum() > 0.5
    assert for_other.sum() < 0.1


def test_no_points_give_no_rows(digits):
    assert shapley(digits[:0], point_seeds(0, 0, 0)).shape == (0, 64)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"permutations": 0}, "permutations=0 is below 1"),
        ({"baseline": "noise"}, "choose one of mean, zeros"),
        ({"target": 10}, "target=10 is no digit"),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(digits, arguments, message):
    with pytest.raises(ValueError, match=message):
        shapley(digits[:1], point_seeds(0, 0, 1), **arguments)


def test_points_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"give \[n, 64\] or \[n, 8, 8\]"):
        shapley(np.zeros((2, 63)), point_seeds(0, 0, 2))


def test_fewer_seeds_than_points_are_refused(digits):
    with pytest.raises(ValueError, match="shorter"):
        shapley(digits[:2], point_seeds(0, 0, 1), permutations=1)


def test_the_method_carries_its_name_and_its_torch_variant():
    facts = facts_of(shapley)

    assert facts.name == "shapley"
    assert facts.variants == {"cuda": "overnight_consumer.methods.shapley.torch_variant:shapley"}


def test_the_numpy_variant_never_imports_torch():
    code = "import sys, overnight_consumer.methods.shapley; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
