"""What is said and written down when driving a job has ended."""

from overnight_common.values import encode_values
from overnight_producer.conclusion import conclude
from overnight_producer.driving.ending import Ending, EndingKind
from overnight_producer.jobs.records import JobState
from support.job_files import new_job


class Ear:
    """Be a view that keeps the last words."""

    def say(self, text):
        pass

    def finish(self, text, exit_status=None, state=""):
        self.text = text


def test_what_was_asked_while_a_done_job_was_exported_is_answered_and_meets_no_later_retry(tmp_path):
    with new_job(tmp_path, 0) as job:
        number = job.request("cancel")
        assert conclude(job, Ending(EndingKind.DONE), Ear()) == 0
        assert job.find_request(number).outcome == "came too late: the job was done"
        assert job.requests_pending() == []


def test_results_that_do_not_fit_the_file_are_said_to_be_beside_it(tmp_path):
    ear = Ear()
    with new_job(tmp_path, 2, output=str(tmp_path / "out.npy")) as job:
        with job.commit() as tx:
            tx.add_result(0, 2, encode_values([{"a": 1}, {"a": 2}], 2), 1.0, "c", 1, 1.0)
        assert conclude(job, Ending(EndingKind.DONE), ear) == 0
        assert ear.text.endswith("results in {0} and {0}.others.jsonl".format(tmp_path / "out.npy"))


def test_a_reason_that_is_a_sentence_gets_no_second_full_stop(tmp_path):
    ear = Ear()
    with new_job(tmp_path, 5) as job:
        assert conclude(job, Ending(EndingKind.PAUSED, "Keep the results: --accept-changes."), ear) == 1
        assert ear.text.startswith("paused: Keep the results: --accept-changes. 0 of 5 points are done")
        assert job.progress().state is JobState.PAUSED
