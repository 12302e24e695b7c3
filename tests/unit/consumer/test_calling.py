import numpy as np
import pytest

from overnight_common.messages import VERSION, Cause, Task
from overnight_consumer.calling import Caller, checked, stacked
from overnight_consumer.failures import TaskFailedError, exception_failure


def task(start=0, stop=3):
    return Task(VERSION, "job", "replies", start, stop, 1, "m")


def call(target, points, per_point=False, **params):
    return Caller(target, params, "cpu", per_point=per_point)(points, task(0, len(points)), lambda *_: None)


def test_numpy_results_of_one_kind_become_one_array_whatever_the_batch():
    for count in (1, 4):
        results = stacked([np.float32(i) for i in range(count)])
        assert isinstance(results, np.ndarray)
        assert (results.dtype, results.shape) == (np.dtype(np.float32), (count,))
    assert stacked([np.zeros((2, 3)), np.ones((2, 3))]).shape == (2, 2, 3)


@pytest.mark.parametrize(
    "results",
    [
        [1.0, 2.0],
        [np.float32(1), np.float64(2)],
        [np.zeros(2), np.zeros(3)],
        [np.float64(1), 2.0],
        [{}, np.float64(1)],
    ],
)
def test_results_of_several_kinds_stay_as_they_are(results):
    assert stacked(results) is results


@pytest.mark.parametrize("results", [[1, 2, 3], (1, 2, 3), np.zeros((3, 2))])
def test_lists_tuples_and_arrays_of_the_right_length_are_results(results):
    assert len(checked(results, 3)) == 3


@pytest.mark.parametrize(
    "results", [None, 1.0, "abc", {1: 2}, iter("abc"), np.float64(3), np.array(3.0), [1, 2], np.zeros(4)]
)
def test_anything_else_is_a_bad_result(results):
    with pytest.raises(TaskFailedError) as caught:
        checked(results, 3)
    assert caught.value.failure.cause is Cause.BAD_RESULT
    assert "3 points" in caught.value.failure.message


def test_an_object_that_offers_an_array_is_taken_as_one():
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            return np.arange(3)

    assert checked(Tensor(), 3).tolist() == [0, 1, 2]


def test_only_what_is_asked_for_by_name_is_given():
    def greedy(points, **others):
        return [others] * len(points)

    def modest(points, *, indices):
        return indices

    assert call(greedy, [1, 2], a=5) == [{"a": 5}, {"a": 5}]
    assert call(modest, [1, 2]).tolist() == [0, 1]


def test_a_class_without_a_call_is_told_as_such():
    class Data:
        pass

    with pytest.raises(TypeError, match="__call__"):
        call(Data, [1])


def test_load_may_do_without_a_device():
    class Model:
        def load(self):
            self.loaded = True

        def __call__(self, points):
            return [self.loaded] * len(points)

    assert call(Model, [1]) == [True]


def test_a_point_of_a_list_and_a_row_of_an_array_are_one_point_each():
    assert call(len, [[1], [1, 2]], per_point=True) == [1, 2]
    assert call(np.sum, np.ones((2, 3)), per_point=True).tolist() == [3, 3]


def test_a_very_long_message_is_shortened_in_the_middle():
    failure = exception_failure(ValueError("a" * 100_000 + "the end"), ())
    assert len(failure.message) < 20_000
    assert failure.message.endswith("the end")
    assert "left out" in failure.message
