"""A method whose import kills the process."""

import os
import sys

print("deadly import", file=sys.stderr, flush=True)
os._exit(7)


def double(points):
    return points * 2
