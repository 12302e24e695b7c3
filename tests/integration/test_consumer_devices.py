"""A consumer with GPUs: who computes where, and what becomes of a child whose device fails.

There is no GPU: torch is a stand-in that raises what the real one raises. Only what CUDA itself would do is not shown.
"""

import asyncio
import signal

import pytest

from overnight_common.messages import Cause
from overnight_common.values import decode_values
from support.broker_use import until
from support.fake_cuda import with_fake_cuda
from support.farm import Farm, farm_in

SERVED = ("--methods", "two_ways")
ON_CUDA = ("--device", "cuda", *SERVED)


def in_farm(tmp_path, act):
    async def run():
        async with farm_in(tmp_path) as farm:
            await act(farm)
            await farm.until_empty()

    asyncio.run(run())


async def seen_by_slots(farm: Farm, tasks: int) -> dict[int, tuple[str, list]]:
    """Return for each slot its device and what its child saw."""
    published = [farm.publish("where", start) for start in range(tasks)]
    replies = [await farm.reply_to_task(task) for task in published]
    assert {reply.kind for reply in replies} == {"done"}
    found = {}
    for reply in replies:
        (value,) = decode_values(reply.result)
        assert found.setdefault(reply.slot, (reply.device, value)) == (reply.device, value)
    return found


def test_each_device_has_a_slot_whose_child_sees_it_alone_and_takes_the_variant_for_it(tmp_path):
    async def act(farm: Farm):
        consumer = farm.start(*ON_CUDA, environment=with_fake_cuda(2))
        await until(lambda: "takes tasks from" in consumer.log, "it is there")
        assert "device cuda:0 (Fake GPU 0), cuda:1 (Fake GPU 1), as asked for" in consumer.log
        seen: dict = {}
        while len(seen) < 2:
            seen |= await seen_by_slots(farm, 20)
        assert seen == {
            1: ("cuda:0", ["torch", "cuda", "0", 1]),
            2: ("cuda:1", ["torch", "cuda", "1", 1]),
        }
        assert "slots: 2 (cuda:0: 1; cuda:1: 2)" in consumer.log

    in_farm(tmp_path, act)


def test_what_the_container_may_see_is_kept_by_its_own_name(tmp_path):
    async def act(farm: Farm):
        environment = with_fake_cuda(4) | {"CUDA_VISIBLE_DEVICES": "GPU-3,1"}
        farm.start("--device", "cuda:0", *SERVED, environment=environment)
        assert await seen_by_slots(farm, 1) == {1: ("cuda:0", ["torch", "cuda", "GPU-3", 1])}

    in_farm(tmp_path, act)


def test_a_cpu_slot_takes_the_plain_variant_and_loads_no_torch(tmp_path):
    async def act(farm: Farm):
        farm.start("--slots", "1", "--device", "cpu", *SERVED, environment=with_fake_cuda(2))
        assert await seen_by_slots(farm, 1) == {1: ("cpu", ["numpy", "cpu", "", 0])}

    in_farm(tmp_path, act)


def test_both_kinds_do_one_job_together_for_one_fingerprint(tmp_path):
    async def act(farm: Farm):
        farm.start("--slots", "1", "--device", "cpu", *SERVED)
        first = await farm.run("tenfold", 0)
        farm.start(*ON_CUDA, environment=with_fake_cuda(1))
        while {reply.device for reply in farm.replies} != {"cpu", "cuda:0"}:
            tasks = [farm.publish("tenfold", start, fingerprint=first.fingerprint) for start in range(50)]
            for task in tasks:
                reply = await farm.reply_to_task(task)
                assert reply.kind == "done", reply.failure
                assert decode_values(reply.result).tolist() == [10 * task.start]
        assert {reply.fingerprint for reply in farm.replies} == {first.fingerprint}

    in_farm(tmp_path, act)


def test_a_full_device_is_out_of_memory_with_its_own_figures_and_the_child_lives_on(tmp_path):
    async def act(farm: Farm):
        farm.start(*ON_CUDA, environment=with_fake_cuda(1))
        pid = await farm.values("unlucky")
        failure = (await farm.run("unlucky", params={"how": "memory"})).failure
        assert (failure.cause, failure.type) == (Cause.OUT_OF_MEMORY, "OutOfMemoryError")
        assert "Tried to allocate 2.00 GiB" in failure.message
        assert "(cuda:0: 700 MiB held by this child at its peak, 12 of 800 MiB free)" in failure.message
        assert await farm.values("unlucky") == pid

    in_farm(tmp_path, act)


@pytest.mark.parametrize(
    ("how", "type_"), [("assert", "AcceleratorError"), ("swallowed", "ValueError")], ids=["seen", "swallowed"]
)
def test_after_a_fall_of_the_device_the_reply_is_given_and_a_fresh_child_takes_the_next_task(
    tmp_path, how, type_
):
    async def act(farm: Farm):
        farm.start(*ON_CUDA, environment=with_fake_cuda(1))
        pid = await farm.values("unlucky")
        fallen = farm.publish("unlucky", params={"how": how})
        following = [farm.publish("unlucky", start) for start in range(5)]
        failure = (await farm.reply_to_task(fallen)).failure
        assert (failure.cause, failure.type) == (Cause.EXCEPTION, type_)
        pids = [decode_values((await farm.reply_to_task(task)).result)[0] for task in following]
        assert len(set(pids)) == 1, "only one child came after the one that fell over"
        assert pids[0] != pid[0]

    in_farm(tmp_path, act)


def test_a_plain_mistake_costs_no_child(tmp_path):
    async def act(farm: Farm):
        farm.start(*ON_CUDA, environment=with_fake_cuda(1))
        pid = await farm.values("unlucky")
        assert (await farm.run("unlucky", params={"how": "mistake"})).failure.type == "ValueError"
        assert await farm.values("unlucky") == pid

    in_farm(tmp_path, act)


def test_a_device_that_is_lost_before_the_method_is_loaded_accuses_the_consumer_until_it_is_back(tmp_path):
    async def act(farm: Farm):
        lost = tmp_path / "lost"
        environment = with_fake_cuda(2) | {"FAKE_CUDA_LOST": str(lost)}
        consumer = farm.start("--device", "cuda:1", *SERVED, environment=environment)
        await until(lambda: "slots: 1 (cuda:1: 1)" in consumer.log, "it is there")
        lost.write_text("1")
        failure = (await farm.run("where")).failure
        assert failure.cause is Cause.START_FAILED
        assert failure.message == "cuda:1 cannot be used: AcceleratorError: CUDA error: unknown error"
        lost.unlink()
        assert await farm.values("where") == [["torch", "cuda", "1", 1]]

    in_farm(tmp_path, act)


def test_a_device_that_is_lost_while_in_use_costs_one_attempt_and_then_accuses_the_consumer(tmp_path):
    async def act(farm: Farm):
        lost = tmp_path / "lost"
        environment = with_fake_cuda(1) | {"FAKE_CUDA_LOST": str(lost)}
        farm.start("--device", "cuda", "--methods", "two_ways:unlucky", environment=environment)
        assert (await farm.run("unlucky")).kind == "done"
        lost.write_text("0")
        assert (await farm.run("unlucky", params={"how": "assert"})).failure.cause is Cause.EXCEPTION
        failure = (await farm.run("unlucky")).failure
        assert failure.cause is Cause.START_FAILED
        assert failure.stderr_tail == "cuda:0 cannot be used: AcceleratorError: CUDA error: unknown error\n"
        lost.unlink()
        # Until the next child is warm, tasks are answered as before.
        while (reply := await farm.run("unlucky")).kind != "done":
            assert reply.failure.cause is Cause.START_FAILED

    in_farm(tmp_path, act)


def test_a_variant_that_cannot_be_imported_accuses_the_consumer_and_not_the_task(tmp_path):
    async def act(farm: Farm):
        gpu = farm.start(*ON_CUDA, environment=with_fake_cuda(1))
        failure = (await farm.run("half")).failure
        assert failure.cause is Cause.METHOD_UNAVAILABLE
        assert "no_such_module" in failure.message
        gpu.send(signal.SIGTERM)
        assert await gpu.exit_status() == 0
        farm.start("--slots", "1", "--device", "cpu", *SERVED)
        assert await farm.values("half", 4) == [2.0]

    in_farm(tmp_path, act)


@pytest.mark.parametrize(
    ("device", "words"),
    [("cuda:7", "there are 2 CUDA devices"), ("cuda:x", "choose one of auto, cpu, cuda, cuda:N")],
)
def test_a_device_that_is_not_there_ends_the_consumer_before_it_touches_the_broker(tmp_path, device, words):
    async def run():
        async with farm_in(tmp_path) as farm:
            home = tmp_path / "untouched"
            consumer = farm.start(
                *("--device", device, "--home", str(home), *SERVED), environment=with_fake_cuda(2)
            )
            assert await consumer.exit_status() == 2
            assert words in consumer.log
            assert not home.exists()

    asyncio.run(run())
