"""No task is ever made of points from another file than the job was made for."""

import contextlib

import numpy as np
import pytest

from overnight_common.datasets import open_dataset
from overnight_common.errors import DataChangedError
from overnight_common.messages import decode_task
from overnight_common.values import decode_values
from overnight_producer.driving.task_maker import TaskMaker
from support.job_files import spec_of


@pytest.mark.parametrize("size", [20, 30])
def test_points_of_a_file_that_was_replaced_go_into_no_task(tmp_path, size):
    path = tmp_path / "points.npy"
    np.save(path, np.arange(20))
    with contextlib.closing(open_dataset(str(path))) as dataset:
        spec = spec_of(20, data_uri=str(path), data_by="value", data_fingerprint=dataset.fingerprint())
        maker = TaskMaker(spec, dataset, "replies", 1 << 20)
        stop, message = maker.cut(0, 5)
        assert stop == 5
        assert decode_values(decode_task(message.body).data).tolist() == [0, 1, 2, 3, 4]
        maker.check_data()
        np.save(tmp_path / "new.npy", np.arange(size) + 100)
        (tmp_path / "new.npy").replace(path)
        maker.cut(5, 10)
        with pytest.raises(DataChangedError, match="is not what it was when the job was made"):
            maker.check_data()
