"""Give RabbitMQ tests a node that they may break."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.rabbitmq import RabbitMQNode


@pytest.fixture
def node(private_rabbitmq: RabbitMQNode) -> Iterator[RabbitMQNode]:
    yield private_rabbitmq
    private_rabbitmq.set_memory_alarm(False)


@pytest.fixture
def url(node: RabbitMQNode) -> str:
    return node.vhost()
