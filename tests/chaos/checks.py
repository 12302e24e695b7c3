"""Look at what a chaos run has left, and say everything that is not as it must be."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from chaos.explaining import Rerun, reruns, unexplained
from chaos.schedule import Kind
from chaos.stage import BATCHES
from overnight_common.brokers.base import reply_queue, task_queue
from overnight_common.brokers.opening import open_broker
from overnight_common.messages import Cause
from overnight_producer.driving.reckoning import PUBLISH_FAILED, SILENT_TASK
from overnight_producer.letters import Letter, with_letters
from support.plain_loop import point_seeds
from support.rabbitmq_use import unacked

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from chaos.stage import Stage
    from overnight_common.brokers.base import Broker
    from support.rabbitmq import RabbitMQNode

EMPTY_SECONDS = 30.0
# Of the failed publishes only these may be in the queue all the same.
IN_DOUBT = f"{PUBLISH_FAILED}NotConnectedError"
GONE_SECONDS = 15.0
# What a user finds in the folder afterwards, beside what was there before; anything else was left behind.
NEW_IN_FOLDER = {".overnight", "out.npy", "begun", "__pycache__"}


def plain_loop(seed: int, points: int) -> NDArray[np.float64]:
    """Return what `chaotic.noisy` gives in one plain loop that nobody disturbs."""
    rows = []
    for one in point_seeds(seed, 0, points):
        random = np.random.Generator(np.random.PCG64(int(one)))
        random.random()  # how long it would have slept
        rows.append(random.standard_normal(4))
    return np.array(rows)


def begun(stage: Stage) -> dict[int, list[float]]:
    """Return when the runs of each point began, in monotonic seconds."""
    times: dict[int, list[float]] = {}
    for line in (stage.desk.folder / "begun").read_text().splitlines():
        point, at, _consumer = line.split()
        times.setdefault(int(point), []).append(float(at))
    return times


def results(stage: Stage, seed: int, points: int) -> list[str]:
    """Look for points without result, with two, with another than the plain loop, or given up."""
    found = []
    done = stage.desk.points_done()
    if done != list(range(points)):
        twice = [point for point, times in Counter(done).items() if times > 1]
        found.append(f"results: {sorted(set(range(points)) - set(done))[:20]} lost, {twice[:20]} twice")
    with stage.desk.job() as job:
        progress, failures = job.progress(), job.failures()
    if progress.given_up:
        found.append(f"{progress.given_up} points were given up")
    killed = sum(happened.kind is Kind.CHILD for happened in stage.happened)
    causes = Counter(row.failure.cause for row in failures)
    if causes[Cause.KILLED_BY_SIGNAL] > killed or set(causes) - {Cause.KILLED_BY_SIGNAL, Cause.LOST_CONSUMER}:
        found.append(f"failures that {killed} killed children do not explain: {dict(causes)}")
    exported = stage.desk.results()
    if exported.tobytes() != plain_loop(seed, points).tobytes():
        found.append("the exported results differ from those of the plain loop")
    if len(stage.desk.jobs()) != 1:
        found.append(f"more than one job: {stage.desk.jobs()}")
    return found


def runs(stage: Stage, points: int) -> tuple[list[Rerun], int, list[str]]:
    """Return the further runs, how many tasks were published again in doubt, and what nothing explains."""
    times = begun(stage)
    again = reruns(times)
    with stage.desk.job() as job:
        dropped = job.dropped()
    republished = sum(count for reason, count in dropped.items() if reason in (IN_DOUBT, SILENT_TASK))
    found = [
        f"point {rerun.point} ran again at {rerun.again:.2f} (before: {rerun.before:.2f}) for no reason"
        for rerun in unexplained(again, stage.happened, max(BATCHES), republished)
    ]
    if set(times) != set(range(points)):
        found.append("some points have a result though they never ran")
    return again, republished, found


async def queues(stage: Stage, node: RabbitMQNode | None) -> list[str]:
    """Look for messages that nobody will ever take, and for a reply queue that is still there."""
    with stage.desk.job() as job:
        spec = job.spec
    broker = open_broker(stage.desk.broker, stage.desk.home, max_message_bytes=1 << 20)
    await broker.open(15)
    try:
        found = []
        if not await _within(EMPTY_SECONDS, lambda: _empty(broker, task_queue("default"), stage, node)):
            found.append(f"task queue: {await broker.depth(task_queue('default'))}")
        found += [
            f"dead letter: {letter}" for letter in await _dead(broker) if not _of_a_lost_epoch(letter, stage)
        ]
        replies = [reply_queue(spec.id, epoch) for epoch in range(1, spec.epoch + 1)]
        return found + [f"{queue} is still there" for queue in replies if await broker.depth(queue)]
    finally:
        await broker.close()


async def _dead(broker: Broker) -> list[Letter]:
    found: list[Letter] = []

    async def act(letters: list[Letter]) -> list[Letter]:
        found.extend(letters)
        return []

    await with_letters(broker, act)
    return found


def _of_a_lost_epoch(letter: Letter, stage: Stage) -> bool:
    """Tell whether it is a reply whose queue went with the broker's disk; its task has come again since."""
    wiped = any(happened.kind is Kind.WIPED for happened in stage.happened)
    with stage.desk.job() as job:
        spec = job.spec
    earlier = {reply_queue(spec.id, epoch) for epoch in range(1, spec.epoch)}
    return wiped and letter.type == "reply" and letter.from_queue in earlier


async def _empty(broker: Broker, queue: str, stage: Stage, node: RabbitMQNode | None) -> bool:
    depth = await broker.depth(queue)
    if depth is None or depth.ready:
        return False
    if node is None:
        return depth.unacked == 0
    assert stage.desk.broker is not None
    return await asyncio.to_thread(unacked, node, stage.desk.broker, queue) == 0


async def processes_and_files(stage: Stage) -> list[str]:
    """Look for processes and temporary files that outlived their owner."""
    desk = stage.desk
    found = []
    if not await _within(GONE_SECONDS, lambda: _true(not desk.processes())):
        found.append(f"processes left: {desk.processes()}")
    if not await _within(GONE_SECONDS, lambda: _true(not any(stage.scratch.iterdir()))):
        found.append(f"temporary files left: {[path.name for path in stage.scratch.iterdir()]}")
    strays = {path.name for path in desk.folder.iterdir()} - NEW_IN_FOLDER - stage.there_before
    if strays:
        found.append(f"files left in the user's folder: {sorted(strays)}")
    return found


async def no_growth(count: Callable[[], int], before: int) -> list[str]:
    """Look whether the consumer that was never killed has more files open than before it all began."""
    if await _within(GONE_SECONDS, lambda: _true(count() <= before)):
        return []
    return [f"the surviving consumer had {before} files open and now has {count()}"]


async def _true(value: bool) -> bool:
    return value


async def _within(seconds: float, condition: Callable[[], object]) -> bool:
    give_up = time.monotonic() + seconds
    while not await condition():  # type: ignore[misc]
        if time.monotonic() > give_up:
            return False
        await asyncio.sleep(0.1)
    return True
