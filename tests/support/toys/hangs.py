"""Wait for ever when imported, as for a share that is gone."""

import time

time.sleep(3600)


def at_import(points):
    return points
