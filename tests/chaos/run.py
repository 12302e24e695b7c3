"""Run a job while everything around it is killed and cut, then see whether anything was lost: `make chaos`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chaos import checks
from chaos.schedule import EMBEDDED, RABBITMQ, schedule
from chaos.stage import Stage, descriptors
from support.command_line import Desk
from support.rabbitmq import private_node
from support.rabbitmq_installation import RabbitMQMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chaos.schedule import Fault
    from support.rabbitmq import RabbitMQNode

POINTS_PER_SECOND = 80  # somewhat more than three consumers do under fire
BEGIN_SECONDS = 60.0
AT_WORK_SECONDS = 5.0  # a fault that hits nobody at work shows nothing, but recovering may be hit too
FINISH_SECONDS = 150.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Say how a run went.

    Attributes:
        figures: one line for a person.
        faults: what is not as it must be; empty if nothing was lost.
    """

    figures: str
    faults: list[str]


async def run_chaos(folder: Path, seed: int, seconds: float, node: RabbitMQNode | None) -> Outcome:
    """Run one seed in an empty folder, on a private node or, without one, on the embedded broker."""
    points = int(seconds * POINTS_PER_SECOND)
    stage = Stage(Desk(folder, node.vhost() if node else None), seed, points, node)
    began = time.monotonic()
    try:
        await stage.set_up()
        faults = await _play(stage, seed, seconds, node)
        if not faults:
            faults = await _look(stage, seed, points, node)
        return Outcome(_figures(stage, seed, points, time.monotonic() - began), faults)
    finally:
        await stage.tear_down()


async def _play(stage: Stage, seed: int, seconds: float, node: RabbitMQNode | None) -> list[str]:
    """Begin, let everything go wrong that is to, and let the job finish; return why it could not."""
    survivor = stage.consumers[0].program.pid
    if not await _until(stage, lambda: stage.work_begun() > 0, BEGIN_SECONDS):
        return stage.troubles() or [f"no task in {BEGIN_SECONDS:g} s\n{stage.driver.program.output}"]
    await asyncio.sleep(1.0)
    before = descriptors(survivor)
    await _torment(stage, schedule(seed, RABBITMQ if node else EMBEDDED), time.monotonic() + seconds)
    if not await _until(stage, lambda: stage.driver.status == 0, FINISH_SECONDS):
        status = stage.desk.overnight("status").output
        return stage.troubles() or [
            f"not done {FINISH_SECONDS:g} s after the last fault\n{status}\n{stage.driver.program.output[-3000:]}"
        ]
    return await checks.no_growth(lambda: descriptors(survivor), before)


async def _torment(stage: Stage, faults: Iterator[Fault], until: float) -> None:
    """Let one thing after the other go wrong, each when work has gone on for a while since the last."""
    while time.monotonic() < until and stage.driver.status != 0 and not stage.troubles():
        fault = next(faults)
        at_work = stage.work_begun()
        await _until(stage, lambda: stage.work_begun() > at_work, AT_WORK_SECONDS)  # noqa: B023 - awaited here
        await asyncio.sleep(fault.after)
        stage.do(fault)
        await stage.broker_is_there()
    await stage.mended()


async def _until(stage: Stage, condition: Callable[[], bool], seconds: float) -> bool:
    give_up = time.monotonic() + seconds
    while not condition():
        if stage.troubles() or time.monotonic() > give_up:
            return False
        await asyncio.sleep(0.05)
    return True


async def _look(stage: Stage, seed: int, points: int, node: RabbitMQNode | None) -> list[str]:
    faults = checks.results(stage, seed, points)
    faults += await checks.queues(stage, node)
    faults += await stage.stop_consumers()
    faults += await checks.processes_and_files(stage)
    return faults + checks.runs(stage, points)[2]


def _figures(stage: Stage, seed: int, points: int, seconds: float) -> str:
    done = Counter(happened.kind.value for happened in stage.happened)
    with contextlib.suppress(Exception):
        again, republished, _ = checks.runs(stage, points)
        with stage.desk.job() as job:
            dropped = job.dropped()
        return (
            f"seed {seed} on {_where(stage)}: {points} points in {seconds:.0f} s; "
            f"{sum(done.values())} faults ({', '.join(f'{count} {kind}' for kind, count in sorted(done.items()))}); "
            f"{len(again)} further runs, {republished} tasks published again in doubt, {dropped}"
        )
    return f"seed {seed}: {dict(done)} in {seconds:.0f} s"


def _where(stage: Stage) -> str:
    return "the embedded broker" if stage.node is None else f"RabbitMQ {stage.node.version()}"


def main() -> int:
    """Run some seeds and return the exit status: 0 if nothing was lost in any of them."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; drawn if not given")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, one after the other")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long things go wrong")
    parser.add_argument("--broker", choices=["embedded", "rabbitmq"], default="embedded")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended as by Ctrl-C, it leaves nothing running
    first = given.seed if given.seed is not None else random.SystemRandom().randrange(1_000_000)
    try:
        with private_node() if given.broker == "rabbitmq" else contextlib.nullcontext() as node:
            lost = [
                seed for seed in range(first, first + given.seeds) if not _run_one(seed, given.seconds, node)
            ]
    except RabbitMQMissingError as error:
        print(f"NOT RUN: {error}", file=sys.stderr)
        return 0
    print(f"{given.seeds - len(lost)} of {given.seeds} seeds without a fault of ours", flush=True)
    return 1 if lost else 0


def _run_one(seed: int, seconds: float, node: RabbitMQNode | None) -> bool:
    folder = Path(tempfile.mkdtemp(prefix="overnight-chaos-"))
    print(f"seed {seed}, {seconds:g} s", flush=True)
    outcome = asyncio.run(run_chaos(folder, seed, seconds, node))
    print(outcome.figures, flush=True)
    if outcome.faults:
        print(
            "\n".join(outcome.faults),
            f"\nall of it: {folder}\n{repeat_with(seed, seconds, node)}",
            flush=True,
        )
        return False
    shutil.rmtree(folder)
    return True


def repeat_with(seed: int, seconds: float, node: RabbitMQNode | None) -> str:
    """Return the command that runs the same schedule again."""
    version = os.environ.get("OVERNIGHT_TEST_RABBITMQ")
    prefix = f"OVERNIGHT_TEST_RABBITMQ={version} " if node and version else ""
    return f"again: {prefix}make chaos SEED={seed} SECONDS={seconds:g} BROKER={'rabbitmq' if node else 'embedded'}"


if __name__ == "__main__":
    sys.exit(main())
