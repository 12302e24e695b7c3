"""Write digits.npy and labels.npy from the copy of the data that scikit-learn ships.

Run it once, in any environment that has scikit-learn: `python data/digits/make.py`.
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

HERE = Path(__file__).parent


def main() -> None:
    """Store the pixels, whole numbers from 0 to 16, and the labels, each in one byte."""
    digits = load_digits()
    pixels = digits.data.astype(np.uint8)
    if not np.array_equal(pixels, digits.data):
        raise SystemExit("the pixels are not whole numbers from 0 to 255: this is another data set")
    np.save(HERE / "digits.npy", pixels)
    np.save(HERE / "labels.npy", digits.target.astype(np.uint8))


if __name__ == "__main__":
    main()
