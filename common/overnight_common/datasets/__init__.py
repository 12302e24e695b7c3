"""Read data sets: an ordered collection of points, of which any range can be had without reading the rest."""

from overnight_common.datasets.base import DataSet, check_current, check_unchanged
from overnight_common.datasets.opening import open_dataset

__all__ = ["DataSet", "check_current", "check_unchanged", "open_dataset"]
