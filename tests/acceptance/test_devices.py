"""CPUs and GPUs do one job together. The GPU's part is played by the CPU, with the real PyTorch."""

from __future__ import annotations

import json

import numpy as np
import pytest

from support.command_line import DIGITS, Desk, Program
from support.fake_cuda import with_cpu_as_gpu, with_fake_cuda
from support.plain_loop import plain_shapley

POINTS, PERMUTATIONS, SEED = 60, 20, 7
# Each of the two waits until the other has begun, so that none can do the job alone.
MINE = """
import pathlib, time
from overnight_common.facts import method
from overnight_consumer.methods import shapley as shipped

def meet(me, other):
    pathlib.Path(me).touch()
    give_up = time.monotonic() + 60
    while not pathlib.Path(other).exists():
        assert time.monotonic() < give_up, "the other consumer does nothing"
        time.sleep(0.01)

@method(name="mine", variants={"cuda": "mine_torch:mine"})
def mine(points, seeds, permutations):
    meet("cpu-was-here", "gpu-was-here")
    return shipped.shapley(points, seeds, permutations)
"""
MINE_TORCH = """
from mine import meet
from overnight_consumer.methods.shapley import torch_variant

def mine(points, seeds, permutations, device):
    meet("gpu-was-here", "cpu-was-here")
    assert device == "cuda"
    return torch_variant.shapley(points, seeds, permutations, device=device)
"""


def start_job(desk: Desk, method: str, *more: str) -> Program:
    return desk.start(
        *("run", method, "--data", str(DIGITS), "--count", str(POINTS), "--batch", "2", "--seed", str(SEED)),
        *("--param", f"permutations={PERMUTATIONS}", "--output", "out.npy", "--slots", "0", "--json", *more),
        "--verbose",
    )


def devices_of(output: str) -> set[tuple[str, str]]:
    """Return which consumers did tasks on which device, as far as that was told: many at a time are only counted."""
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    done = [event for event in events if event["event"] == "task" and event["kind"] == "done"]
    return {(event["consumer"], event["device"]) for event in done}


def test_consumers_on_cpu_and_gpu_do_one_job_together_each_by_its_own_variant(any_desk: Desk) -> None:
    pytest.importorskip("torch")
    desk = any_desk
    desk.write("mine.py", MINE)
    desk.write("mine_torch.py", MINE_TORCH)
    serve = ("--methods", "mine:mine", "--slots", "1")
    desk.consumer(*serve, "--device", "cpu", "--name", "slow")
    desk.consumer(*serve, "--device", "cuda", "--name", "fast", **with_cpu_as_gpu())
    done = start_job(desk, "mine:mine").wait()
    assert done.status == 0, done
    with desk.job() as job:
        assert job.failures() == []
        assert {row.consumer for row in job.results()} == {"slow", "fast"}
    assert devices_of(done.output) <= {("slow", "cpu"), ("fast", "cuda:0")}
    expected = plain_shapley(np.load(DIGITS)[:POINTS], SEED, PERMUTATIONS, 0)
    np.testing.assert_allclose(desk.results(), expected, atol=1e-6)


def test_a_job_that_names_the_queue_of_gpus_is_left_to_them(desk: Desk) -> None:
    pytest.importorskip("torch")
    serve = ("--methods", "shapley", "--slots", "1")
    cpu = desk.consumer(*serve, "--device", "cpu", "--name", "slow", OVERNIGHT_QUEUE="default cpu")
    cpu.wait_until_it_says("takes tasks from")
    desk.consumer(
        *serve, "--device", "cuda", "--name", "fast", OVERNIGHT_QUEUE="default gpu", **with_cpu_as_gpu()
    )
    done = start_job(desk, "shapley", "--queue", "gpu").wait()
    assert done.status == 0, done
    assert devices_of(done.output) == {("fast", "cuda:0")}, done


LOOK = """
import os
def look(points, device):
    return [[device, os.environ.get("CUDA_VISIBLE_DEVICES", "")] for _ in points]
"""


def test_a_runs_own_consumer_takes_the_cpu_unless_the_variable_says_otherwise(desk: Desk) -> None:
    desk.write("mine.py", LOOK)
    run = ("run", "mine:look", "--data", "range:3", "--output", "out.jsonl", "--verbose")
    done = desk.overnight(*run, **with_fake_cuda(2))
    assert done.status == 0, done
    assert "device cpu, as asked for" in done.output
    done = desk.overnight(*run, "--new", **with_fake_cuda(1), OVERNIGHT_DEVICE="cuda")
    assert done.status == 0, done
    lines = (desk.folder / "out.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [["cuda", "0"]] * 3


def test_a_run_ends_with_the_consumers_reason_where_the_device_is_missing(desk: Desk) -> None:
    desk.write("mine.py", LOOK)
    run = ("run", "mine:look", "--data", "range:3", "--output", "out.jsonl")
    done = desk.overnight(*run, **with_fake_cuda(2), OVERNIGHT_DEVICE="cuda:7")
    assert done.status == 1, done
    assert "there are 2 CUDA devices" in done.output
