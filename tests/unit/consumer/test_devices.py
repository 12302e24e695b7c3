"""Which devices are chosen, who gets which, and what a child sees of them."""

import pytest

from overnight_common.errors import BadInputError
from overnight_consumer.devices import (
    ON_CPU,
    Devices,
    Found,
    FoundDevice,
    chosen,
    fault_of_text,
    seen_without_torch,
)

H200, T4 = FoundDevice("H200"), FoundDevice("T4")
BROKEN = FoundDevice("T4", "AcceleratorError: CUDA error: unknown error")
NOTHING = Found(fault="PyTorch 2.13.0+cpu is a build without CUDA")
UUIDS = ["GPU-aa11", "GPU-aa22", "GPU-bb33"]


@pytest.mark.parametrize("text", ["auto", "cpu", "cuda", "cuda:0", "cuda:15"])
def test_a_device_is_named_in_four_ways(text):
    assert fault_of_text(text) is None


@pytest.mark.parametrize("text", ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1,2", "CUDA", "cuda:²", "0"])
def test_any_other_text_is_a_fault_that_shows_them(text):
    assert "auto, cpu, cuda, cuda:N" in (fault_of_text(text) or "")


def test_auto_takes_all_that_work_and_says_why_and_what_else_there_is():
    devices = chosen("auto", {}, Found((H200, T4)))
    assert (devices.kind, devices.names, devices.visible) == ("cuda", ("cuda:0", "cuda:1"), ("0", "1"))
    assert devices.why == (
        "device cuda:0 (H200), cuda:1 (T4), found and tried; --device cpu would give one slot a core"
    )
    assert devices.default_slots(cores=16) == 2


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (NOTHING, "a build without CUDA"),
        (Found((BROKEN,)), "cuda:0: AcceleratorError: CUDA error: unknown error"),
        (Found((H200,), by_torch=False), "PyTorch is not installed"),
    ],
)
def test_auto_takes_the_cpu_where_torch_cannot_use_a_device_and_says_why(found, why):
    devices = chosen("auto", {}, found)
    assert (devices.names, devices.visible, devices.default_slots(cores=16)) == (("cpu",), (), 16)
    assert why in devices.why


def test_cuda_without_a_device_is_refused_with_the_reason_and_the_way_out():
    with pytest.raises(BadInputError) as refused:
        chosen("cuda", {}, NOTHING)
    for words in ("--device cuda", "a build without CUDA", "nvidia-smi", "--device cpu"):
        assert words in str(refused.value)


def test_a_device_that_does_not_work_is_left_out_and_the_others_keep_their_numbers():
    devices = chosen("cuda", {}, Found((H200, BROKEN, T4)))
    assert (devices.names, devices.visible) == (("cuda:0", "cuda:2"), ("0", "2"))
    assert "cuda:1 is left out: AcceleratorError" in devices.why


def test_one_device_may_be_named():
    devices = chosen("cuda:1", {}, Found((H200, T4)))
    assert (devices.names, devices.visible, devices.default_slots(cores=16)) == (("cuda:1",), ("1",), 1)


@pytest.mark.parametrize(
    ("wanted", "found", "words"),
    [
        ("cuda:7", Found((H200, T4)), "there are 2 CUDA devices, the last cuda:1"),
        ("cuda:1", Found((H200,)), "there is 1 CUDA device, cuda:0"),
        ("cuda:1", Found((H200, BROKEN)), "cuda:1 cannot be used: AcceleratorError"),
        ("cuda:0", NOTHING, "a build without CUDA"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_how_many_are(wanted, found, words):
    with pytest.raises(BadInputError, match=words):
        chosen(wanted, {}, found)


def test_without_torch_cuda_takes_what_the_driver_shows_and_says_that_nobody_has_tried_it():
    devices = chosen("cuda", {}, Found((H200,), by_torch=False))
    assert devices.names == ("cuda:0",)
    assert "not known whether they work" in devices.why


@pytest.mark.parametrize(
    ("given", "count", "visible"),
    [
        ("2,0", 2, ("2", "0")),
        ("GPU-bb33, GPU-aa11", 2, ("GPU-bb33", "GPU-aa11")),
        ("MIG-4711", 1, ("MIG-4711",)),
        ("1,-1,0", 1, ("1",)),
    ],
)
def test_what_the_container_may_see_is_all_there_is_and_keeps_its_own_words(given, count, visible):
    devices = chosen("cuda", {"CUDA_VISIBLE_DEVICES": given}, Found((H200,) * count))
    assert devices.visible == visible
    assert devices.names == tuple(f"cuda:{number}" for number in range(count))
    assert devices.environment_of_slot(1) == {"CUDA_VISIBLE_DEVICES": visible[0]}


@pytest.mark.parametrize(
    ("environment", "order"),
    [
        ({}, "PCI_BUS_ID"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, None),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, None),
    ],
)
def test_devices_are_counted_as_nvidias_tools_count_unless_somebody_has_counted_already(environment, order):
    devices = chosen("cuda", environment, Found((H200,)))
    assert devices.environment_of_slot(1).get("CUDA_DEVICE_ORDER") == order


def test_slots_take_turns_at_the_devices():
    devices = Devices(("cuda:0", "cuda:2"), ("0", "2"))
    assert [devices.of_slot(slot) for slot in (1, 2, 3, 4, 5)] == [
        "cuda:0",
        "cuda:2",
        "cuda:0",
        "cuda:2",
        "cuda:0",
    ]
    assert [devices.environment_of_slot(slot)["CUDA_VISIBLE_DEVICES"] for slot in (1, 2, 3)] == [
        "0",
        "2",
        "0",
    ]
    assert devices.spread(3) == " (cuda:0: 1, 3; cuda:2: 2)"
    assert devices.spread(1) == " (cuda:0: 1; cuda:2: none)"


def test_a_reply_of_no_slot_names_the_kind_only():
    assert Devices(("cuda:0", "cuda:1"), ("0", "1")).of_slot(0) == "cuda"
    assert ON_CPU.of_slot(0) == "cpu"


def test_on_cpus_nothing_is_hidden_from_a_child():
    assert ON_CPU.of_slot(3) == "cpu"
    assert ON_CPU.environment_of_slot(3) == {}
    assert ON_CPU.spread(3) == ""


@pytest.mark.parametrize(
    ("given", "count"),
    [
        (None, 3),
        ("", 0),
        ("-1", 0),
        ("0,2", 2),
        ("0,3,1", 1),
        ("GPU-bb,1", 2),
        ("GPU-aa,1", 0),
        ("MIG-4711", 1),
        ("no", 0),
    ],
)
def test_what_may_be_seen_is_read_as_cuda_reads_it(given, count):
    environment = {} if given is None else {"CUDA_VISIBLE_DEVICES": given}
    assert seen_without_torch(environment, UUIDS) == count
    assert seen_without_torch(environment, []) == 0
