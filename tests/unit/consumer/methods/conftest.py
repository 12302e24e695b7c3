from pathlib import Path

import numpy as np
import pytest

DIGITS = Path(__file__).parents[4] / "data" / "digits"


@pytest.fixture(scope="session")
def digits_folder():
    return DIGITS


@pytest.fixture(scope="session")
def digits():
    return np.load(DIGITS / "digits.npy")


@pytest.fixture(scope="session")
def labels():
    return np.load(DIGITS / "labels.npy")
