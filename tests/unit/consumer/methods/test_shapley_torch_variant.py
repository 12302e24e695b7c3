import numpy as np
import pytest

from overnight_common.facts import facts_of
from overnight_consumer.methods.shapley import shapley
from support.plain_loop import point_seeds

torch = pytest.importorskip(
    "torch", reason="torch is not installed: the torch variant of shapley was NOT tested"
)


@pytest.fixture(scope="module")
def variant():
    from overnight_consumer.methods.shapley import torch_variant

    return torch_variant


@pytest.mark.parametrize("arguments", [{}, {"baseline": "zeros"}, {"target": 3}])
def test_both_variants_agree_from_the_same_seeds(digits, variant, arguments):
    seeds = point_seeds(7, 0, 6)
    expected = shapley(digits[:6], seeds, permutations=20, **arguments)

    found = variant.shapley(digits[:6], seeds, permutations=20, device="cpu", **arguments)

    assert found.dtype == np.float64
    assert np.abs(expected).max() > 0.05
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_permutations_in_several_portions_agree_too(digits, variant, monkeypatch):
    seeds = point_seeds(7, 0, 2)
    monkeypatch.setattr(variant, "PERMUTATIONS_AT_ONCE", 4)

    found = variant.shapley(digits[:2], seeds, permutations=10)

    np.testing.assert_allclose(found, shapley(digits[:2], seeds, permutations=10), rtol=0, atol=1e-6)


def test_the_torch_variant_asks_for_a_device_and_goes_by_the_same_name(variant):
    facts = facts_of(variant.shapley)

    assert (facts.name, facts.device) == ("shapley", "cuda")


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device: the torch variant ran on the CPU only"
)
def test_both_variants_agree_on_a_cuda_device(digits, variant):
    seeds = point_seeds(7, 0, 6)

    found = variant.shapley(digits[:6], seeds, permutations=20, device="cuda")

    np.testing.assert_allclose(found, shapley(digits[:6], seeds, permutations=20), rtol=0, atol=1e-6)
