"""Say how many threads a slot may use, in variables that numeric libraries read when imported."""

from __future__ import annotations

VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "OVERNIGHT_THREADS",
)


def threads_per_slot(cores: int, slots: int) -> int:
    """Return how many threads each slot gets: cores divided by slots, at least 1."""
    return max(1, cores // max(1, slots))


def thread_environment(threads: int) -> dict[str, str]:
    """Return the variables that hold OpenMP, MKL, OpenBLAS, numexpr and Accelerate to `threads`."""
    return dict.fromkeys(VARIABLES, str(threads))
