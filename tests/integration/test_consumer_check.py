"""`overnight-consumer check` tells a container's health check the truth."""

import asyncio
import re
import signal
import subprocess
import sys

import pytest

from support.broker_use import until, until_async
from support.farm import Farm, farm_in, mark_in, toys

METRICS = ("--metrics-port", "0", "--slots", "1")


def check(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "overnight_consumer", "check", *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).strip()


async def port_of(consumer):
    pattern = re.compile(r"metrics at http://127\.0\.0\.1:(\d+)/")
    await until(lambda: pattern.search(consumer.log) is not None, "the port is named")
    return pattern.search(consumer.log)[1]


async def says(port, status, words):
    async def found():
        answer = await asyncio.to_thread(check, "--metrics-port", port)
        return answer[0] == status and words in answer[1]

    await until_async(found, f"check ends with {status} and says {words!r}")


def test_healthy_means_consuming_and_every_other_state_is_named(tmp_path):
    async def run():
        async with farm_in(tmp_path) as farm:
            await act(farm)

    async def act(farm: Farm):
        consumer = farm.start(*METRICS, *toys("sleep"))
        port = await port_of(consumer)
        await says(port, 0, "connected and consuming")
        mark = tmp_path / "mark"
        farm.publish("toys:sleep", params={"seconds": 1000, "mark": str(mark)})
        await mark_in(mark)
        await says(port, 0, "connected and consuming")
        consumer.send(signal.SIGTERM)
        await says(port, 1, "stopping")
        consumer.kill()
        await says(port, 1, "no consumer answers")

    asyncio.run(run())


def test_a_consumer_at_fault_is_not_healthy_while_it_takes_nothing(tmp_path):
    async def run():
        async with farm_in(tmp_path) as farm:
            consumer = farm.start(*METRICS, "--methods", "broken:double")
            port = await port_of(consumer)
            for start in range(4):
                await farm.run("broken:double", start)
            await says(port, 1, "this consumer is at fault")

    asyncio.run(run())


@pytest.mark.rabbitmq
def test_a_consumer_without_its_broker_is_not_healthy_until_it_is_back(tmp_path, private_rabbitmq):
    url = private_rabbitmq.vhost()

    async def run():
        async with farm_in(tmp_path, url) as farm:
            port = await port_of(farm.start(*METRICS, "--broker", url, *toys("double")))
            await says(port, 0, "connected and consuming")
            await asyncio.to_thread(private_rabbitmq.stop)
            try:
                await says(port, 1, "not connected")
            finally:
                await asyncio.to_thread(private_rabbitmq.start)
            await says(port, 0, "connected and consuming")

    asyncio.run(run())


def test_without_a_port_there_is_nobody_to_ask():
    for arguments in ((), ("--metrics-port", "0")):
        status, words = check(*arguments)
        assert (status, "--metrics-port" in words) == (2, True)
