"""Give each test a folder of its own, in which it runs the real commands."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from support.command_line import Desk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Give a folder that uses the embedded broker."""
    with _cleared(Desk(tmp_path)) as desk:
        yield desk


@pytest.fixture
def rabbit_desk(tmp_path: Path, amqp_url: str) -> Iterator[Desk]:
    """Give a folder that uses RabbitMQ."""
    with _cleared(Desk(tmp_path, amqp_url)) as desk:
        yield desk


@pytest.fixture(params=["embedded", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def any_desk(request: pytest.FixtureRequest) -> Desk:
    """Give a folder once with each broker."""
    return request.getfixturevalue("desk" if request.param == "embedded" else "rabbit_desk")


@contextlib.contextmanager
def _cleared(desk: Desk) -> Iterator[Desk]:
    try:
        yield desk
    finally:
        desk.clear()
