"""A point that kills every consumer is given up, and the job is done but for it."""

import json
import threading

from overnight_common.messages import Cause

METHOD = """
import os
import signal
import time


def deadly(batch):
    if 7 in list(batch):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
    return batch * 2
"""
CONSUMER = ("--methods", "poison:deadly", "--slots", "2", "--max-deliveries", "3")


def test_a_point_that_kills_its_consumers_is_given_up_as_lost_consumer_and_all_others_are_done(any_desk):
    any_desk.write("poison.py", METHOD)
    ended, deaths = threading.Event(), []

    def keep_a_consumer():
        while not ended.is_set():
            consumer = any_desk.consumer(*CONSUMER)
            while consumer.process.poll() is None:
                if ended.wait(0.02):
                    consumer.kill()
                    return
            deaths.append(consumer.process.returncode)

    keeper = threading.Thread(target=keep_a_consumer)
    keeper.start()
    try:
        done = any_desk.overnight(
            *("run", "poison:deadly", "--data", "range:20", "--batch", "1", "--slots", "0"),
            *("--attempts", "2", "--output", "out.jsonl"),
        )
    finally:
        ended.set()
        keeper.join()
    assert done.status == 1, done
    with any_desk.job() as job:
        assert (job.progress().done, job.progress().given_up) == (19, 1)
    found = any_desk.overnight("failures", "--json")
    assert Cause.LOST_CONSUMER.value in found.output
    results = [json.loads(line) for line in (any_desk.folder / "out.jsonl").read_text().splitlines()]
    assert len(results) == 20
    assert deaths == [-9] * 6


def test_a_run_starts_its_own_consumer_again_until_the_poisonous_point_is_given_up(desk):
    desk.write("poison.py", METHOD)
    done = desk.overnight(
        *("run", "poison:deadly", "--data", "range:20", "--batch", "1", "--slots", "2"),
        *("--attempts", "2", "--output", "out.jsonl"),
    )
    assert done.status == 1, done
    with desk.job() as job:
        assert (job.progress().done, job.progress().given_up) == (19, 1)
        ((range_, failure),) = job.given_up()
    assert (range_.start, failure.failure.cause) == (7, Cause.LOST_CONSUMER)
