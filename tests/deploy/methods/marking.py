"""A slow method of a user's, which notes each start of each point, so that a second run of one is seen."""

import socket
import time
from pathlib import Path

MARKS = Path("/marks")


def mark(points, indices):
    for index in indices:
        with open(MARKS / str(index), "a", encoding="utf-8") as marks:
            marks.write(f"{time.time()} {socket.gethostname()}\n")
        time.sleep(2)
    return points
