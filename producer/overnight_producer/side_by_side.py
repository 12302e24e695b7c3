"""Drive several jobs at once, in one event loop and on one broker; each begins, ends and fails by itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from overnight_common.errors import BrokerError, OvernightError, QueueMismatchError
from overnight_producer.conclusion import announce, conclude, record
from overnight_producer.driven import DrivenJob
from overnight_producer.driving.ending import Ending, EndingKind
from overnight_producer.driving.share import QueueShare
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.lock import JobBusyError
from overnight_producer.jobs.records import JobState
from overnight_producer.statuses import DONE, SOME_GIVEN_UP
from overnight_producer.views.view_log import LogView

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from overnight_common.brokers.base import Broker
    from overnight_common.datasets import DataSet
    from overnight_producer.driving.observer import DriveObserver
    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.jobs.records import Progress
    from overnight_producer.options import Driving, Place

T = TypeVar("T")
STOP_SECONDS = 5.0
BROKER_PAUSE_SECONDS = 5.0
FAULT_PAUSE_SECONDS = 60.0
_log = logging.getLogger("overnight.jobs")


class SideBySide:
    """Hold the jobs that are driven now.

    Attributes:
        statuses: job id -> exit status of those that have ended here, or need not be driven.
        changed: set whenever a job begins to wait or ends; whoever waits for it clears it.
    """

    def __init__(
        self,
        broker: Broker,
        driving: Driving,
        place: Place,
        onlooker: DriveObserver,
        wanted: Callable[[JobSpec, Progress], bool],
        prepare: Callable[[JobFile], tuple[DataSet, bool]],
    ) -> None:
        """Prepare to drive jobs on `broker`, which the caller opens and closes.

        Args:
            broker: shared by all of them.
            driving: how each is driven; a job on a queue of its own gets a consumer if that says so.
            place: where they live.
            onlooker: looks on at all of them.
            wanted: looks at a job again once it is locked: another process may have changed it.
            prepare: checks a locked job, opens its data set, and tells whether tasks that are out are void;
                runs in a thread.
        """
        self._broker = broker
        self._driving = driving
        self._place = place
        self._onlooker = onlooker
        self._wanted = wanted
        self._prepare = prepare
        self._tasks: dict[Path, asyncio.Task[None]] = {}
        self._driven: dict[Path, DrivenJob] = {}
        self._not_before: dict[Path, float] = {}  # monotonic seconds
        self._shares: defaultdict[str, QueueShare] = defaultdict(QueueShare)
        self._stopping = False
        self.statuses: dict[str, int] = {}
        self.changed = asyncio.Event()
        broker.on_state(lambda _state: self._wake())

    @property
    def at_work(self) -> set[Path]:
        """Return the files of the jobs that are driven now."""
        return set(self._tasks)

    @property
    def places_taken(self) -> int:
        """Count the jobs that publish; one that is paused lets another have its place."""
        return sum(path not in self._driven or not self._driven[path].paused for path in self._tasks)

    def may_take(self, path: Path) -> bool:
        """Tell whether a job is not at work here, and did not fail to be taken a moment ago."""
        return path not in self._tasks and time.monotonic() >= self._not_before.get(path, 0.0)

    def take(self, path: Path) -> None:
        """Begin to drive a job."""
        task = asyncio.create_task(self._drive(path), name=path.parent.name)
        self._tasks[path] = task
        task.add_done_callback(lambda _task: self._let_go(path))

    async def stop(self) -> None:
        """Interrupt all jobs and wait until they are let go of; they can be gone on with."""
        self._stopping = True
        for driven in self._driven.values():
            driven.interrupt()
        tasks = list(self._tasks.values())
        if tasks:
            _done, late = await asyncio.wait(tasks, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _wake(self) -> None:
        for driven in self._driven.values():
            driven.wake()
        self.changed.set()

    def _let_go(self, path: Path) -> None:
        task = self._tasks.pop(path)
        if not task.cancelled():
            task.exception()  # whatever it was, it has been logged
        self.changed.set()

    def _wait(self, path: Path, seconds: float) -> None:
        self._not_before[path] = time.monotonic() + seconds

    async def _drive(self, path: Path) -> None:
        """Take a job, if nobody else has it, and drive it until it ends one way or another."""
        try:
            with contextlib.ExitStack() as stack:
                job = stack.enter_context(await asyncio.to_thread(JobFile.open, path, True))
                stack.enter_context(job.lock())
                if self._wanted(job.spec, job.progress()):
                    await self._drive_locked(job)
                else:
                    self.statuses[job.spec.id] = DONE  # another process was faster
        except JobBusyError as error:
            self._wait(path, FAULT_PAUSE_SECONDS)
            self.statuses[path.parent.name] = DONE
            _log.info("job %s is left alone: %s", path.parent.name, error)
        except OvernightError as error:
            self._wait(path, FAULT_PAUSE_SECONDS)
            self.statuses[path.parent.name] = SOME_GIVEN_UP
            _log.error("job %s cannot be driven, nor can that be written down: %s", path.parent.name, error)
        except Exception:  # noqa: BLE001 - as for a fault in driving
            self._wait(path, FAULT_PAUSE_SECONDS)
            self.statuses[path.parent.name] = SOME_GIVEN_UP
            _log.exception("job %s: a fault of Overnight's own", path.parent.name)

    async def _drive_locked(self, job: JobFile) -> None:
        view = LogView(job.spec, self._driving.verbose)
        try:
            ending = await self._course(job, view)
        except BrokerError as error:
            if not isinstance(error, QueueMismatchError):
                self._wait(job.path, BROKER_PAUSE_SECONDS)
                view.say(f"waits for the broker: {error}")
                return
            ending = Ending(EndingKind.PAUSED, str(error))
        except OvernightError as error:
            ending = Ending(EndingKind.PAUSED, str(error))
        except Exception as error:  # noqa: BLE001 - a fault of ours in one job must not stop the others
            _log.exception("job %s: a fault of Overnight's own", job.spec.id)
            ending = Ending(EndingKind.PAUSED, f"a fault of Overnight's own: {error!r}")
        self.statuses[job.spec.id] = await _in_thread(conclude, job, ending, view)
        await announce(job, ending, view.say)

    async def _course(self, job: JobFile, view: LogView) -> Ending:
        """Drive a job that is checked first, and return how that ended."""
        dataset, recall = await _in_thread(self._prepare, job)
        with contextlib.closing(dataset):
            if job.progress().finished:
                return Ending(EndingKind.DONE)  # but its results may not have been exported
            if self._stopping:
                return Ending(EndingKind.INTERRUPTED)
            record(job, JobState.RUNNING)
            view.start()
            spec = job.spec
            driving = self._driving if spec.has_own_queue else replace(self._driving, slots="0")
            share = self._shares[spec.queue]
            driven = DrivenJob(
                *(job, dataset, self._broker, driving, self._place, view, self._onlooker, recall, share)
            )
            self._driven[job.path] = driven
            try:
                return await driven.run()
            finally:
                del self._driven[job.path]


async def _in_thread(call: Callable[..., T], *arguments: object) -> T:
    """Run what blocks; who is cancelled meanwhile waits for its end first, since a thread cannot be stopped."""
    work = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
