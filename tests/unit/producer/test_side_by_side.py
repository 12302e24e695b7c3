"""Several jobs in one process: a fault in one is told, and ends that one only."""

import asyncio

from overnight_producer import side_by_side
from overnight_producer.driving.observer import NOBODY
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.options import Driving, Place
from overnight_producer.side_by_side import SideBySide
from overnight_producer.statuses import SOME_GIVEN_UP
from support.broker_use import until
from support.job_files import spec_of
from support.memory_broker import MemoryBroker


def test_a_fault_in_a_jobs_conclusion_is_logged_counts_as_a_failure_and_is_not_repeated_at_once(
    tmp_path, monkeypatch, caplog
):
    def broken(*_arguments):
        raise ValueError("no way to write this")

    monkeypatch.setattr(side_by_side, "conclude", broken)
    path = tmp_path / "jobs" / "j" / "job.sqlite"
    JobFile.create(path, spec_of(5, id="j")).close()

    def prepare(_job):
        raise side_by_side.OvernightError("it cannot begin")

    async def main():
        place = Place(home=tmp_path)
        jobs = SideBySide(MemoryBroker(), Driving(), place, NOBODY, lambda _spec, _progress: True, prepare)
        jobs.take(path)
        await until(lambda: not jobs.at_work, "it has ended")
        assert jobs.statuses == {"j": SOME_GIVEN_UP}
        assert not jobs.may_take(path)

    asyncio.run(main())
    assert "no way to write this" in caplog.text
