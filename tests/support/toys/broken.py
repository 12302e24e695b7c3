"""A method that cannot be imported."""

import no_such_module_anywhere  # noqa: F401


def double(points):
    return points * 2
