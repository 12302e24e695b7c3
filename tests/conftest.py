"""Offer what many tests need; today, a RabbitMQ."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from support.rabbitmq import ExternalNode, RabbitMQNode, private_node
from support.rabbitmq_installation import RabbitMQMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def rabbitmq_node() -> Iterator[RabbitMQNode | ExternalNode]:
    """Give a RabbitMQ: OVERNIGHT_TEST_AMQP_URL's, or a private one; skip loudly without, fail in CI."""
    if url := os.environ.get("OVERNIGHT_TEST_AMQP_URL"):
        yield ExternalNode(url, os.environ.get("OVERNIGHT_TEST_MANAGEMENT_URL"))
        return
    try:
        with private_node() as node:
            yield node
    except RabbitMQMissingError as error:
        if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
            pytest.fail(f"CI must test on RabbitMQ: {error}")
        pytest.skip(f"NOT TESTED ON RABBITMQ: {error}")


@pytest.fixture(scope="session")
def private_rabbitmq(rabbitmq_node: RabbitMQNode | ExternalNode) -> RabbitMQNode:
    """Give a RabbitMQ that a test may stop, freeze and alarm."""
    if not isinstance(rabbitmq_node, RabbitMQNode):
        pytest.skip("NOT TESTED: needs a private RabbitMQ node; unset OVERNIGHT_TEST_AMQP_URL")
    return rabbitmq_node


@pytest.fixture
def amqp_url(rabbitmq_node: RabbitMQNode | ExternalNode) -> str:
    """Give the URL of a fresh virtual host."""
    return rabbitmq_node.vhost()
