"""Bytes written by an earlier Overnight are read for ever."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from overnight_common.messages import Encoded, Task, decode_replies, decode_reply, decode_task
from overnight_common.values import decode_values

GOLDEN = Path(__file__).parents[1] / "golden"
_spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
make = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make)


@pytest.mark.parametrize("name", sorted(make.golden_messages()))
def test_a_message_written_long_ago_is_read(name):
    message = make.golden_messages()[name]
    decode = decode_task if isinstance(message, Task) else decode_reply

    assert decode((GOLDEN / f"{name}.v1.bin").read_bytes()) == message


def test_replies_that_were_sent_together_long_ago_are_read():
    assert decode_replies((GOLDEN / "replies.v1.bin").read_bytes()) == make.golden_bundle()


@pytest.mark.parametrize("name", sorted(make.golden_values()))
def test_values_written_long_ago_are_read(name):
    values = make.golden_values()[name]
    back = decode_values(Encoded(name.partition("-")[0], (GOLDEN / f"{name}.v1.bin").read_bytes()))

    if isinstance(values, np.ndarray):
        assert back.dtype == values.dtype
        assert back.tobytes() == values.tobytes()
    else:
        assert repr(back) == repr(values)


def test_every_golden_file_has_its_test():
    names = {path.name.removesuffix(".v1.bin") for path in GOLDEN.glob("*.bin")}

    assert names == {"replies"} | set(make.golden_messages()) | set(make.golden_values())
