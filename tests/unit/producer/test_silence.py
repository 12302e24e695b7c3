from overnight_producer.driving.silence import Silences


def silent_after_publishing(*starts, limit_seconds=90.0):
    silences = Silences(limit_seconds)
    for start in starts:
        silences.published(start, attempt=1, now=0.0)
    return silences


def test_no_probe_is_sent_while_tasks_were_heard_of_lately():
    silences = silent_after_publishing(0)
    assert silences.probe_due(89.0, queue_is_empty=False) is None
    silences.heard(0, 80.0)
    assert silences.probe_due(100.0, queue_is_empty=False) is None


def test_a_task_is_lost_only_when_its_probe_came_back_and_it_stayed_silent_as_long_again():
    silences = silent_after_publishing(0, 7)
    assert silences.probe_due(91.0, queue_is_empty=False) == 1
    assert silences.lost(1000.0) == []

    silences.probe_back(1, 1000.0)
    assert silences.lost(1089.0) == []
    assert silences.lost(1091.0) == [(0, 1), (7, 1)]


def test_a_task_that_speaks_after_the_probe_is_not_lost():
    silences = silent_after_publishing(0, 7)
    silences.probe_due(91.0, queue_is_empty=False)
    silences.probe_back(1, 100.0)
    silences.heard(7, 150.0)
    assert silences.lost(200.0) == [(0, 1)]
    assert silences.lost(241.0) == [(0, 1), (7, 1)]


def test_a_probe_says_nothing_of_tasks_that_were_published_after_it():
    silences = silent_after_publishing(0)
    silences.probe_due(91.0, queue_is_empty=False)
    silences.published(7, attempt=1, now=92.0)
    silences.probe_back(1, 100.0)
    assert silences.lost(500.0) == [(0, 1)]


def test_one_probe_is_out_at_a_time_however_long_the_queue_is():
    silences = silent_after_publishing(0)
    assert silences.probe_due(91.0, queue_is_empty=False) == 1
    assert silences.probe_due(10_000.0, queue_is_empty=False) is None


def test_a_probe_that_vanished_from_an_empty_queue_is_sent_again():
    silences = silent_after_publishing(0)
    assert silences.probe_due(91.0, queue_is_empty=True) == 1
    assert silences.probe_due(180.0, queue_is_empty=True) is None
    assert silences.probe_due(182.0, queue_is_empty=True) == 2
    silences.probe_back(2, 183.0)
    assert silences.lost(274.0) == [(0, 1)]


def test_a_late_probe_still_counts_for_what_was_published_before_it():
    silences = silent_after_publishing(0)
    silences.probe_due(91.0, queue_is_empty=True)
    silences.published(7, attempt=1, now=100.0)
    silences.probe_due(200.0, queue_is_empty=True)
    silences.probe_back(1, 201.0)
    assert silences.lost(400.0) == []  # both were published before probe 2, the newest that went out
    silences.probe_back(2, 202.0)
    assert silences.lost(400.0) == [(0, 1), (7, 1)]


def test_a_probe_that_could_not_be_published_is_sent_again_at_once():
    silences = silent_after_publishing(0)
    silences.probe_due(91.0, queue_is_empty=False)
    silences.probe_failed(1)
    assert silences.probe_due(92.0, queue_is_empty=False) == 2


def test_an_answered_task_is_forgotten_and_a_new_attempt_starts_afresh():
    silences = silent_after_publishing(0, 7)
    silences.forget(0)
    silences.published(7, attempt=2, now=80.0)
    assert silences.probe_due(100.0, queue_is_empty=False) is None
    assert silences.probe_due(171.0, queue_is_empty=False) == 1
    silences.probe_back(1, 172.0)
    assert silences.lost(263.0) == [(7, 2)]


def test_the_answer_to_an_earlier_drivers_probe_is_not_taken_for_ones_own():
    silences = Silences(90.0, number=100)
    silences.published(0, attempt=1, now=0.0)
    assert silences.probe_due(91.0, queue_is_empty=False) == 101
    for stranger in (1, 100, 5000):
        silences.probe_back(stranger, 92.0)
    assert silences.lost(1000.0) == []
    silences.probe_back(101, 1000.0)
    assert silences.lost(1091.0) == [(0, 1)]


def test_time_in_which_nobody_could_be_heard_is_no_silence():
    silences = silent_after_publishing(0)
    silences.probe_due(91.0, queue_is_empty=False)
    silences.probe_back(1, 92.0)
    silences.published(7, attempt=1, now=92.0)
    silences.deaf(1000.0)
    assert silences.lost(1089.0) == []
    assert silences.probe_due(1089.0, queue_is_empty=False) is None
    assert silences.lost(1091.0) == [(0, 1)]
    assert silences.probe_due(1091.0, queue_is_empty=False) == 2
