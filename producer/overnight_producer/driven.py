"""Drive one job on an open broker to some ending: the driver, a consumer of its own if it has one, the view."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from overnight_common.brokers.base import task_queue
from overnight_common.datasets import check_current
from overnight_common.errors import DataChangedError
from overnight_producer.driving.driver import Driver
from overnight_producer.driving.driver_settings import DriverSettings
from overnight_producer.driving.ending import Ending, EndingKind
from overnight_producer.exports.export import check_first_result
from overnight_producer.jobs.ranges import Policy
from overnight_producer.live_figures import LiveFigures
from overnight_producer.local_consumer import LOCAL_MAX_DELIVERIES, ConsumerGoneError, LocalConsumer
from overnight_producer.options import environment

if TYPE_CHECKING:
    from overnight_common.brokers.base import Broker
    from overnight_common.datasets import DataSet
    from overnight_producer.driving.observer import DriveObserver
    from overnight_producer.driving.share import QueueShare
    from overnight_producer.driving.snapshot import Snapshot
    from overnight_producer.jobs.jobfile import JobFile
    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.options import Driving, Place
    from overnight_producer.views.view import View

CONSUMER_GRACE_SECONDS = 5.0
VIEW_SECONDS = 0.25
DATA_SECONDS = 1.0


class DrivenJob:
    """Hold together all that works on one job in this process."""

    def __init__(
        self,
        job: JobFile,
        dataset: DataSet,
        broker: Broker,
        driving: Driving,
        place: Place,
        view: View,
        onlooker: DriveObserver,
        recall: bool,
        share: QueueShare | None = None,
    ) -> None:
        """Prepare to drive a locked job; `recall` and `share` (None: no other job here) are for the driver."""
        self._job = job
        self._dataset = dataset
        self._driving = driving
        self._place = place
        self._view = view
        self._onlooker = onlooker
        self._spec = spec = job.spec
        self._driver = Driver(
            job,
            broker,
            dataset,
            task_queue(spec.queue),
            _settings(driving, place, alone=share is None),
            view.task,
            recall,
            onlooker,
            share,
        )
        self._consumer = self._own_consumer(spec)
        self._live = LiveFigures(job.path)

    @property
    def paused(self) -> bool:
        """Tell whether somebody asked for a pause."""
        return self._driver.paused

    def snapshot(self) -> Snapshot:
        """Return the figures of this moment."""
        return self._driver.snapshot()

    def wake(self) -> None:
        """Look soon: the state of the broker has changed."""
        self._driver.wake()

    def interrupt(self) -> None:
        """Stop soon; the job can be gone on with."""
        self._driver.end(Ending(EndingKind.INTERRUPTED))

    async def run(self) -> Ending:
        """Drive, and let go of everything but the broker at the end.

        Raises:
            OvernightError: the job file, the data set or the broker cannot be used any more. Data that has
                changed only pauses the job: somebody has to choose.
        """
        tasks = [asyncio.create_task(self._show()), asyncio.create_task(self._watch_data())]
        if self._consumer is not None:
            tasks.append(asyncio.create_task(self._keep_consumer(self._consumer)))
        try:
            ending = await self._drive()
            if self._consumer is not None:
                # What it still runs is void or interrupted: nothing waits for it but a little courtesy.
                await self._consumer.stop(CONSUMER_GRACE_SECONDS if ending.kind is EndingKind.DONE else 1.0)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._view.show(self._driver.snapshot())
            self._live.clear()
            self._onlooker.job_left(self._spec.id)
            if self._consumer is not None:
                await self._consumer.stop(0.0)
        return ending

    async def _drive(self) -> Ending:
        try:
            return await self._driver.run()
        except DataChangedError as error:
            return Ending(EndingKind.PAUSED, str(error))

    async def _watch_data(self) -> None:
        """Pause the job when its data has changed: consumers that read the file refuse its tasks from then on."""
        while True:
            await asyncio.sleep(DATA_SECONDS)
            try:
                await asyncio.to_thread(check_current, self._dataset, self._spec.data_fingerprint)
            except DataChangedError as error:
                self._driver.end(Ending(EndingKind.PAUSED, str(error)))
                return

    async def _keep_consumer(self, consumer: LocalConsumer) -> None:
        try:
            await consumer.keep_running()
        except ConsumerGoneError as error:
            self._driver.end(Ending(EndingKind.PAUSED, str(error)))

    async def _show(self) -> None:
        checked = self._job.spec.output is None
        while True:
            snapshot = self._driver.snapshot()
            self._view.show(snapshot)
            self._onlooker.job_seen(self._spec, snapshot)
            self._live.show(snapshot)
            if not checked and (first := next(self._job.results(), None)) is not None:
                checked = True
                fault = check_first_result(
                    first.encoded, Path(str(self._job.spec.output)), self._job.spec.points
                )
                if fault is not None:
                    self._view.say(fault)
            await asyncio.sleep(VIEW_SECONDS)

    def _own_consumer(self, spec: JobSpec) -> LocalConsumer | None:
        if self._driving.slots == "0" or not self._place.embedded:
            return None
        what = ["--command", spec.command] if spec.command is not None else ["--methods", spec.method]
        arguments = [
            *("--home", str(self._place.home.absolute())),
            *(("--broker", self._place.broker) if self._place.broker else ()),
            *("--queue", spec.queue),
            *what,
            *("--source", spec.source),
            *("--slots", self._driving.slots),
            *("--name", "local"),
            *("--max-deliveries", str(LOCAL_MAX_DELIVERIES)),
            *("--parent", str(os.getpid())),
            *("--max-message-bytes", str(self._place.max_message_bytes)),
            *("--log-level", "info" if self._driving.verbose else "error"),
        ]
        # Two programs cannot listen at one port: the consumer of a run shows no figures of its own.
        inherited = {name: value for name, value in environment().items() if name != "OVERNIGHT_METRICS_PORT"}
        # One slot a GPU would be slow for most methods; whoever wants that says so in the variable.
        if "OVERNIGHT_DEVICE" not in inherited:
            arguments += ("--device", "cpu")
        return LocalConsumer(arguments, inherited, self._answers_so_far, self._view.say)

    def _answers_so_far(self) -> int:
        """Count what a consumer may die for in vain: that a point was given up is an answer, too."""
        return self._job.progress().done + len(self._job.failures())


def _settings(driving: Driving, place: Place, alone: bool) -> DriverSettings:
    return DriverSettings(
        max_message_bytes=place.max_message_bytes,
        window_seconds=driving.window_seconds,
        window=driving.window,
        silence_seconds=driving.silence_seconds,
        no_consumer_timeout_seconds=driving.no_consumer_timeout_seconds,
        policy=Policy(point_attempts=driving.attempts),
        leave_when_paused=not alone,  # among several, a paused job must not hold a place
    )
