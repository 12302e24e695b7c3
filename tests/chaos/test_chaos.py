"""A job survives a minute in which everything around it is killed and cut; `make chaos` runs more of them."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from chaos.run import repeat_with, run_chaos

if TYPE_CHECKING:
    from pathlib import Path

    from support.rabbitmq import RabbitMQNode

SECONDS = 60.0
SEED = int(os.environ.get("OVERNIGHT_TEST_CHAOS_SEED", "1"))


@pytest.mark.timeout(400)
def test_nothing_is_lost_on_the_embedded_broker_while_everything_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, None)


@pytest.mark.timeout(400)
@pytest.mark.rabbitmq
def test_nothing_is_lost_on_rabbitmq_while_everything_is_killed_and_cut(
    tmp_path: Path, private_rabbitmq: RabbitMQNode
) -> None:
    survive(tmp_path, private_rabbitmq)


def survive(folder: Path, node: RabbitMQNode | None) -> None:
    outcome = asyncio.run(run_chaos(folder, SEED, SECONDS, node))
    print(outcome.figures)
    assert not outcome.faults, "\n".join([outcome.figures, *outcome.faults, repeat_with(SEED, SECONDS, node)])
