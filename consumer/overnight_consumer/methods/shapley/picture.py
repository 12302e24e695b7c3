"""Draw a dozen digits beside their attributions, as a PNG.

    python -m overnight_consumer.methods.shapley.picture \
        --data digits.npy --results out.npy --output digits.png

Needs matplotlib, which the extra `plot` brings.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overnight_common.errors import BadInputError
from overnight_consumer.methods.shapley.classifier import LARGEST_PIXEL, PIXELS, Array, shipped_classifier

ROWS, PAIRS_PER_ROW = 3, 4
DIGITS_SHOWN = ROWS * PAIRS_PER_ROW
INK = "#22262e"
FAINT = "#767d89"


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, draw, and return the exit status: 0, or 2 for input that cannot be used."""
    parser = argparse.ArgumentParser(description="Draw a dozen digits beside their attributions.")
    parser.add_argument("--data", type=Path, required=True, help="the digits, .npy of [n, 64], 0 to 16")
    parser.add_argument("--results", type=Path, required=True, help="what `shapley` made of them, .npy")
    parser.add_argument("--output", type=Path, required=True, help="the PNG to write")
    options = parser.parse_args(arguments)
    try:
        draw(_read(options.data), _read(options.results), options.output)
    except BadInputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"drew {options.output}\n")
    return 0


def draw(digits: NDArray[Any], attributions: NDArray[Any], output: Path) -> None:
    """Draw the first dozen points that have a result.

    Args:
        digits: `[n, 64]` or `[n, 8, 8]`, pixels from 0 to 16.
        attributions: `[n, 64]`; a row with a NaN is a point without a result.
        output: the PNG to write.

    Raises:
        BadInputError: the two arrays do not belong together, nothing is finished, matplotlib is missing, or
            the file cannot be written.
    """
    pixels, values = _paired(digits, attributions)
    figure = _figure(pixels, values)
    try:
        figure.savefig(output, format="png", dpi=150, facecolor="white")
    except OSError as error:
        raise BadInputError(f"cannot write the picture {output}: {error.strerror or error}") from error


def choose(attributions: Array) -> NDArray[np.intp]:
    """Return the indices of the first dozen rows without a NaN."""
    return np.flatnonzero(np.isfinite(attributions).all(axis=1))[:DIGITS_SHOWN]


def _read(path: Path) -> NDArray[Any]:
    try:
        loaded = np.load(path)
    except FileNotFoundError as error:
        raise BadInputError(f"there is no file {path}: check the path") from error
    except (OSError, ValueError, EOFError) as error:
        raise BadInputError(f"{path} cannot be read as .npy: {error}") from error
    if not isinstance(loaded, np.ndarray):
        raise BadInputError(f"{path} holds several arrays: give an .npy file")
    return loaded


def _paired(digits: NDArray[Any], attributions: NDArray[Any]) -> tuple[Array, Array]:
    """Return the chosen points and their attributions, `[m, 64]` each."""
    if len(digits) != len(attributions):
        raise BadInputError(
            f"{len(digits)} digits and {len(attributions)} results do not belong together: "
            "give the data set that the results were made from"
        )
    if digits[0:1].size != PIXELS or attributions[0:1].size != PIXELS:
        raise BadInputError(
            f"digits of shape {digits.shape} and results of shape {attributions.shape} are no 8 x 8 pictures"
        )
    pixels = digits.reshape(-1, PIXELS).astype(np.float64)
    values = attributions.reshape(-1, PIXELS).astype(np.float64)
    chosen = choose(values)
    if chosen.size == 0:
        raise BadInputError("no point has a result yet: export again when some are done")
    return pixels[chosen], values[chosen]


def _figure(pixels: Array, values: Array) -> Any:
    try:
        # Imported here: without the extra, all else in this package must still work.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInputError("a picture needs matplotlib: pip install 'overnight[plot]'") from error
    figure = Figure(figsize=(11.2, 5.9))
    FigureCanvasAgg(figure)
    figure.text(0.03, 0.945, "What makes the classifier see this digit?", size=16, weight="bold", color=INK)
    figure.text(
        0.03,
        0.895,
        "Shapley values of the predicted digit's probability: red pixels speak for it, blue ones against it",
        size=10.5,
        color=FAINT,
    )
    grid = figure.add_gridspec(
        ROWS, PAIRS_PER_ROW, left=0.03, right=0.9, top=0.80, bottom=0.03, wspace=0.14, hspace=0.3
    )
    # One scale for all: a pale picture then means small values. The largest few may saturate.
    limit = float(np.quantile(np.abs(values), 0.995)) or 1.0
    images = [_draw_pair(grid[i], pixels[i], values[i], limit) for i in range(len(pixels))]
    bar = figure.colorbar(images[0], cax=figure.add_axes((0.925, 0.12, 0.013, 0.58)), extend="both")
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, color=FAINT, labelcolor=FAINT)
    bar.ax.set_title("for", size=9, color=INK, pad=12)
    bar.ax.set_xlabel("against", size=9, color=INK, labelpad=12)
    return figure


def _draw_pair(place: Any, digit: Array, attribution: Array, limit: float) -> Any:
    """Draw one digit and its attributions side by side and return the image of the latter."""
    probabilities = shipped_classifier().probabilities(digit)
    seen = int(probabilities.argmax())
    left, right = place.subgridspec(1, 2, wspace=0.06).subplots()
    left.imshow(digit.reshape(8, 8), cmap="gray_r", vmin=0, vmax=LARGEST_PIXEL)
    image = right.imshow(attribution.reshape(8, 8), cmap="RdBu_r", vmin=-limit, vmax=limit)
    for axes in (left, right):
        axes.set(xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set(color="#d5d8de", linewidth=0.8)
    left.set_title(f"a {seen}", size=11, weight="bold", color=INK, loc="left", pad=5)
    right.set_title(_sureness(probabilities[seen]), size=9, color=FAINT, loc="right", pad=5)
    return image


def _sureness(probability: float) -> str:
    # Rounding up to 100 % would claim what no such model can.
    return "over 99.9% sure" if probability > 0.999 else f"{probability:.1%} sure"


if __name__ == "__main__":
    sys.exit(main())
