"""Offer the places where benchmarks run, a report, and the points of a no-op task."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.overnight_runs import Place

if TYPE_CHECKING:
    from support.rabbitmq import ExternalNode, RabbitMQNode

POINTS, NUMBERS_A_POINT = 600_000, 25  # 25 numbers of 8 bytes: a point has 200


@pytest.fixture(scope="session")
def points_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a .npy file of 600,000 points of 200 bytes; zeros, so that it takes no disk."""
    path = tmp_path_factory.mktemp("points") / "points.npy"
    np.lib.format.open_memmap(path, "w+", np.float64, (POINTS, NUMBERS_A_POINT)).flush()
    return path


@pytest.fixture
def embedded(tmp_path: Path) -> Place:
    """Give a fresh folder for the embedded broker."""
    home = tmp_path / "embedded"
    home.mkdir()
    return Place("embedded", home)


@pytest.fixture
def rabbitmq(tmp_path: Path, amqp_url: str) -> Place:
    """Give a fresh virtual host on RabbitMQ."""
    home = tmp_path / "rabbitmq"
    home.mkdir()
    return Place("rabbitmq", home, amqp_url)


@pytest.fixture(params=["embedded", "rabbitmq"])
def place(request: pytest.FixtureRequest) -> Place:
    """Give each broker in turn."""
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def fresh_vhost(rabbitmq_node: RabbitMQNode | ExternalNode) -> object:
    """Give a function that returns the URL of a virtual host nobody has used."""
    return rabbitmq_node.vhost


def pytest_report_header() -> str:
    """Say how busy the machine is: figures of a busy one mean little."""
    return f"benchmarks: {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f} before the start"
