"""What a child keeps between tasks."""

import sys

from overnight_common.messages import VERSION, Encoded, Task, decode_reply, encode
from overnight_consumer.frames import Setup, Work
from overnight_consumer.worker import Worker

MODEL = """
class Model:
    alive = 0

    def __init__(self, number):
        Model.alive += 1

    def __del__(self):
        Model.alive -= 1

    def __call__(self, points):
        return [most] * len(points)

    def load(self):
        global most
        most = max(most, Model.alive)


most = 0
"""


def test_no_more_than_two_models_are_ever_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "counted_models.py").write_text(MODEL)
    given = ("counted_models:Model",)
    setup = Setup(given, (), False, str(tmp_path), "cpu", "desk", 1, 1, 1 << 20, str(tmp_path))
    worker = Worker(setup, lambda _: None)
    for number in range(4):
        params = {"number": number}
        task = Task(VERSION, "job", "replies", 0, 1, 1, *given, params=params, data=Encoded("json", b"[1]"))
        reply = decode_reply(worker.answer(Work(0, encode(task))).reply)
    assert reply.result.body == b"[2]"
