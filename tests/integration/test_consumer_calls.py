import asyncio

import numpy as np
import pytest

from overnight_common.datasets import open_dataset
from overnight_common.fingerprints import method_fingerprint
from overnight_common.messages import VERSION, Cause, DataReference, Task, decode_task, encode
from overnight_consumer.cores import available_cores
from support.broker_use import until
from support.farm import Farm, farm_in, toys

ARGUMENTS = ("--slots", "1", *toys("double process raises nasty ends interrupts returns noise large one"))
ARGUMENTS += (*toys("random_of random_batch Model threads_left"), "--methods", "toys")


def in_farm(tmp_path, act, *arguments, **options):
    async def run():
        async with farm_in(tmp_path) as farm:
            farm.start(*(arguments or ARGUMENTS), **options)
            await act(farm)
            await farm.until_empty()

    asyncio.run(run())


def test_a_plain_function_gets_the_batch_and_its_results_come_back(tmp_path):
    async def act(farm: Farm):
        assert await farm.values("toys:double", 10, 3) == [20, 22, 24]
        reply = farm.replies[0]
        assert (reply.kind, reply.slot, reply.device) == ("done", 1, "cpu")
        assert reply.fingerprint
        assert reply.peak_rss_bytes > 1_000_000
        assert 0 < reply.seconds < 5
        assert await farm.values("toys:double", 0, 1, fingerprint=reply.fingerprint) == [0]

    in_farm(tmp_path, act)


def test_failures_of_a_method_are_named_and_the_child_lives_on(tmp_path):
    async def act(farm: Farm):
        pid = (await farm.values("toys:process"))[0]["pid"]
        cases = {
            "raises": (Cause.EXCEPTION, "ValueError", "bad point 7"),
            "nasty": (Cause.EXCEPTION, "nasty.<locals>.NastyError", ""),
            "ends": (Cause.EXCEPTION, "SystemExit", "ended the program"),
            "interrupts": (Cause.EXCEPTION, "KeyboardInterrupt", ""),
        }
        for name, (cause, type_, words) in cases.items():
            failure = (await farm.run(f"toys:{name}", 7)).failure
            assert failure is not None
            assert (failure.cause, failure.type) == (cause, type_)
            assert words in failure.message
        failure = farm.replies[1].failure
        assert "toys.py" in failure.traceback
        assert "overnight_consumer" not in failure.traceback
        assert (await farm.values("toys:process", 1))[0]["pid"] == pid

    in_farm(tmp_path, act)


def test_results_that_are_no_results_are_told_with_both_lengths(tmp_path):
    async def act(farm: Farm):
        cases = {
            "none": "None for 3",
            "short": "2 results for 3",
            "scalar": "float for 3",
            "text": "str for 3",
        }
        for number, (what, words) in enumerate(cases.items()):
            failure = (await farm.run("toys:returns", number * 3, 3, params={"what": what})).failure
            assert failure is not None
            assert failure.cause is Cause.BAD_RESULT
            assert words in failure.message
        failure = (await farm.run("toys:returns", 90, 3, params={"what": "object"})).failure
        assert failure is not None
        assert failure.cause is Cause.BAD_RESULT
        assert "[0]" in failure.message
        assert "object" in failure.message

    in_farm(tmp_path, act)


def test_a_result_over_the_limit_is_told_with_both_sizes(tmp_path):
    async def act(farm: Farm):
        failure = (await farm.run("toys:large")).failure
        assert failure is not None
        assert failure.cause is Cause.RESULT_TOO_LARGE
        assert "9,000" in failure.message
        assert f"{8 * 2**20:,}" in failure.message
        reply = await farm.run("toys:large", 1, params={"size": 8_000_000})
        assert reply.kind == "done"

    in_farm(tmp_path, act)


def test_noise_on_standard_output_does_not_break_the_link(tmp_path):
    async def act(farm: Farm):
        assert await farm.values("toys:noise", 4) == [4]
        assert await farm.values("toys:double", 5) == [10]
        assert "slot 1: raw" in farm.consumers[0].log
        assert "slot 1: loud" in farm.consumers[0].log

    in_farm(tmp_path, act)


def test_per_point_methods_get_one_point_whether_the_task_or_the_mark_says_so(tmp_path):
    async def act(farm: Farm):
        assert await farm.values("toys:one", 2, 3, per_point=True) == [4, 9, 16]
        assert await farm.values("toys:one", 2, 3, per_point=True, params={"power": 3}) == [8, 27, 64]
        assert await farm.values("marked", 2, 3) == [-2, -3, -4]
        assert await farm.values("toys:marked", 5, 2) == [-5, -6]

    in_farm(tmp_path, act)


def test_randomness_belongs_to_the_point_and_not_to_the_batch(tmp_path):
    async def act(farm: Farm):
        whole = await farm.values("toys:random_batch", 0, 6, seed=11)
        parts = [
            *await farm.values("toys:random_batch", 0, 2, seed=11),
            *await farm.values("toys:random_batch", 2, 4, seed=11),
        ]
        single = await farm.values("toys:random_of", 0, 6, seed=11, per_point=True)
        assert whole == parts == single
        assert [row[2] for row in whole] == list(range(6))
        sequence = np.random.SeedSequence(11, spawn_key=(4,))
        assert whole[4][0] == np.random.default_rng(sequence).random()
        assert whole[4][1] == int(sequence.generate_state(1, np.uint64)[0])
        assert await farm.values("toys:random_batch", 6, 1, seed=11) != await farm.values(
            "toys:random_batch", 6, 1, seed=12
        )

    in_farm(tmp_path, act)


def test_a_class_is_built_once_for_its_parameters_and_loaded_on_its_device(tmp_path):
    async def act(farm: Farm):
        first = await farm.values("toys:Model", 1, 2, params={"factor": 3})
        second = await farm.values("toys:Model", 3, 2, params={"factor": 3})
        assert [row[:3] for row in first + second] == [
            [3, 1, "cpu"],
            [6, 1, "cpu"],
            [9, 1, "cpu"],
            [12, 1, "cpu"],
        ]
        other = await farm.values("toys:Model", 5, 1, params={"factor": 2})
        assert other[0][:2] == [10, 2]

    in_farm(tmp_path, act)


def test_points_by_reference_are_read_in_the_child_and_a_change_accuses_the_consumer(tmp_path):
    path = tmp_path / "points.npy"
    np.save(path, np.arange(20))

    async def act(farm: Farm):
        dataset = open_dataset(str(path))
        reference = DataReference(dataset.uri, 20, dataset.fingerprint())
        dataset.close()
        assert await farm.values("toys:double", 4, 3, data=reference) == [8, 10, 12]
        np.save(path, np.arange(21))
        failure = (await farm.run("toys:double", 7, 1, data=reference)).failure
        assert failure is not None
        assert failure.cause is Cause.DATA_UNAVAILABLE
        assert "size" in failure.message
        path.unlink()
        failure = (await farm.run("toys:double", 8, 1, data=reference)).failure
        assert failure is not None
        assert failure.cause is Cause.DATA_UNAVAILABLE
        assert "points.npy" in failure.message

    in_farm(tmp_path, act)


def test_methods_that_are_not_served_broken_or_other_code_accuse_the_consumer(tmp_path):
    async def act(farm: Farm):
        failure = (await farm.run("toys:nothing")).failure
        assert failure is not None
        assert failure.cause is Cause.METHOD_UNAVAILABLE
        assert "toys:double" in failure.message
        failure = (await farm.run("broken:double", 1)).failure
        assert failure is not None
        assert failure.cause is Cause.METHOD_UNAVAILABLE
        assert "no_such_module_anywhere" in failure.traceback
        failure = (await farm.run("toys:double", 2, fingerprint="0" * 32)).failure
        assert failure is not None
        assert failure.cause is Cause.WRONG_FINGERPRINT
        assert "0" * 32 in failure.message
        good = await farm.run("toys:double", 3)
        assert good.kind == "done"
        assert good.fingerprint in failure.message

    in_farm(tmp_path, act, "--slots", "1", "--methods", "toys:double", "--methods", "broken:double")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("toys:duoble", "no 'duoble' (did you mean 'double'"),
        ("broken:double", "no_such_module_anywhere"),
        ("json", "nothing in module 'json' is marked with @method"),
    ],
)
def test_a_method_that_cannot_be_imported_is_told_at_the_start_once_and_not_for_each_child(
    tmp_path, given, why
):
    async def act(farm: Farm):
        consumer = farm.consumers[0]
        for number in range(2):  # the second one meets a fresh child
            failure = (await farm.run(given, number)).failure
            assert failure is not None
            assert failure.cause is Cause.METHOD_UNAVAILABLE
        (said,) = [line for line in consumer.log.splitlines() if f"--methods {given} cannot be used" in line]
        assert "WARNING" in said
        assert why in said

    in_farm(tmp_path, act, "--slots", "2", "--methods", given)


def test_after_an_accusation_the_consumer_pauses_and_then_runs_fresh_code(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "mine.py").write_text("def answer(points):\n    return [1] * len(points)\n")

    async def act(farm: Farm):
        first = await farm.run("mine:answer")
        (source / "mine.py").write_text("def answer(points):\n    return [2] * len(points)\n")
        fingerprint = method_fingerprint("mine", source)
        assert fingerprint != first.fingerprint
        loop = asyncio.get_running_loop()
        refused = await farm.run("mine:answer", 1, fingerprint=fingerprint)
        at = loop.time()
        assert refused.failure is not None
        assert refused.failure.cause is Cause.WRONG_FINGERPRINT
        assert await farm.values("mine:answer", 2, fingerprint=fingerprint) == [2]
        assert loop.time() - at > 0.8

    in_farm(tmp_path, act, "--slots", "1", "--methods", "mine:answer", "--source", str(source))


def test_probes_and_messages_that_nobody_can_use_need_no_slot(tmp_path):
    async def act(farm: Farm):
        farm.publish_raw(b"no task at all")
        probe = await farm.run("whatever", 5, 0)
        assert (probe.kind, probe.result, probe.slot) == ("done", None, 0)
        newer = farm.publish("toys:double", 1)
        farm.publish_raw(encode(newer).replace(b"\xa1v\x01", b"\xa1v\x09"))
        short = farm.publish("toys:double", 8, 2, data=newer.data)
        good = await farm.run("toys:double", 3)
        assert good.kind == "done"
        await until(lambda: len(farm.dead) == 2, "two dead letters")
        reasons = [str(letter.message.headers["reason"]) for letter in farm.dead]
        assert "not a task" in reasons[0]
        assert "1 points for a range of 2" in reasons[1]
        assert decode_task(farm.dead[1].message.body).key == short.key
        for letter in farm.dead:
            farm.broker.ack(letter)

    in_farm(tmp_path, act)


def test_a_task_of_a_newer_version_is_refused_by_accusing_this_consumer(tmp_path):
    async def act(farm: Farm):
        task = Task(VERSION, farm.job, farm.reply_to, 1, 2, 1, "toys:double")
        farm.publish_raw(encode(task).replace(b"\xa1v\x01", b"\xa1v\x09"))
        reply = await farm.reply_to_task(task)
        assert reply.failure is not None
        assert reply.failure.cause is Cause.METHOD_UNAVAILABLE
        assert "version 9" in reply.failure.message

    in_farm(tmp_path, act)


def test_threads_and_the_slot_number_are_in_the_environment_before_anything_is_imported(tmp_path):
    async def act(farm: Farm):
        environment = (await farm.values("toys:environment"))[0]
        assert environment["CONSUMER_WORKER"] == str(farm.replies[0].slot)
        threads = str(max(1, available_cores() // 3))
        assert environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == threads
        assert "OVERNIGHT_BROKER" not in environment

    variables = {"OMP_NUM_THREADS": "77", "OVERNIGHT_BROKER": f"embedded:{tmp_path}"}
    in_farm(tmp_path, act, "--slots", "3", "--methods", "toys:environment", environment=variables)


def test_a_thread_that_the_method_leaves_behind_does_not_hold_the_consumer(tmp_path):
    async def act(farm: Farm):
        assert await farm.values("toys:threads_left", 3) == [3]
        farm.consumers[0].send(15)
        assert await farm.consumers[0].exit_status(5) == 0

    in_farm(tmp_path, act)
