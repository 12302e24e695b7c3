"""Hold RabbitMQ, through pika, to the contract."""

from __future__ import annotations

import pytest

from contract.broker_contract import BrokerContract


@pytest.mark.rabbitmq
class TestRabbitMQ(BrokerContract):
    @pytest.fixture
    def broker_url(self, amqp_url: str) -> str:
        return amqp_url
