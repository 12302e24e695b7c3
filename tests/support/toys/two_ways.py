"""Methods with a variant for CUDA, as a user would write them; this one needs no torch."""

import os
import sys

from overnight_common.facts import method


@method(name="where", variants={"cuda": "two_ways_torch:where"})
def where(points, device):
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return [["numpy", device, visible, int("torch" in sys.modules)] for _ in points]


@method(name="tenfold", variants={"cuda": "two_ways_torch:tenfold"})
def tenfold(points):
    return points * 10


@method(name="unlucky", variants={"cuda": "two_ways_torch:unlucky"})
def unlucky(points, how="nothing"):
    raise AssertionError("this variant is for CPUs")


@method(name="half", variants={"cuda": "no_such_module:half"})
def half(points):
    return points / 2
