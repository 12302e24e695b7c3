"""Write the dashboards as Grafana reads them; run it by `make dashboards` after a change to their source."""

from __future__ import annotations

import argparse
from pathlib import Path

from consumers_and_slots import CONSUMERS_AND_SLOTS
from farm import FARM
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from panels import build
from runbooks import runbooks

_HERE = Path(__file__).parent


def write(folder: Path) -> None:
    """Write one file for each dashboard into `folder`, over those that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    for described in (FARM, CONSUMERS_AND_SLOTS, runbooks()):
        name = described.uid.removeprefix("overnight-")
        text = JSONEncoder(sort_keys=True, indent=2).encode(build(described))
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=_HERE / "dashboards", help="where to write them")
    write(parser.parse_args().folder)
