"""Choose the devices of a consumer's slots, and say what each child may see of them; pure.

Two counts meet here. A consumer's devices are `cuda:0`, `cuda:1` and so on: that is what replies and figures
say. A child sees one device only and calls it `cuda`, as its method does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from overnight_common.errors import BadInputError

AUTO, CPU, CUDA = "auto", "cpu", "cuda"
VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
_ONE = re.compile(r"cuda:([0-9]{1,4})")
_WAY_OUT = (
    "`nvidia-smi` must list one here (in a container: NVIDIA's container toolkit, and `--gpus all` or compose's "
    "profile gpu), and PyTorch must be a build for CUDA; or give --device cpu"
)


class FoundDevice(msgspec.Struct, frozen=True):
    """Describe a device; `fault` says why it cannot be used, and is empty if it can."""

    name: str
    fault: str = ""


class Found(msgspec.Struct, frozen=True):
    """Tell which devices were found, in the order in which CUDA counts them here.

    Attributes:
        devices: those that are visible.
        fault: why there is none.
        by_torch: PyTorch has tried them; else it is not installed, and they are only known to be there.
    """

    devices: tuple[FoundDevice, ...] = ()
    fault: str = ""
    by_torch: bool = True


@dataclass(frozen=True, slots=True)
class Devices:
    """Hold the devices that the slots of a consumer share.

    Attributes:
        names: what replies call them: `cpu` alone, or for example `cuda:0` and `cuda:1`.
        visible: for each CUDA device the text by which a child sees it alone.
        order: what numbers mean in those texts, if we say so; else empty.
        why: what was chosen and why, for the log.
    """

    names: tuple[str, ...] = (CPU,)
    visible: tuple[str, ...] = ()
    order: str = ""
    why: str = "device cpu"

    @property
    def kind(self) -> str:
        """Return `cpu` or `cuda`."""
        return kind_of(self.names[0])

    def default_slots(self, cores: int) -> int:
        """Return how many slots there are unless a number is given: one a device, or one a core."""
        return len(self.names) if self.visible else cores

    def of_slot(self, number: int) -> str:
        """Return the device of a slot, from 1: they take turns. For no slot, 0, only its kind is known."""
        return self.names[(number - 1) % len(self.names)] if number else self.kind

    def spread(self, slots: int) -> str:
        """Return which slots each device has, for example ` (cuda:0: 1, 3; cuda:1: 2)`; nothing on CPUs."""
        if not self.visible:
            return ""
        turns = {name: range(at, slots + 1, len(self.names)) for at, name in enumerate(self.names, 1)}
        return (
            " ("
            + "; ".join(f"{name}: {', '.join(map(str, own)) or 'none'}" for name, own in turns.items())
            + ")"
        )

    def environment_of_slot(self, number: int) -> dict[str, str]:
        """Return the variables by which a slot's child sees its own device; on CPUs nothing is hidden."""
        if not self.visible:
            return {}
        order = {ORDER: self.order} if self.order else {}
        return {VISIBLE: self.visible[(number - 1) % len(self.visible)], **order}


ON_CPU = Devices()


def kind_of(device: str) -> str:
    """Return `cuda` for `cuda:1`."""
    return device.partition(":")[0]


def fault_of_text(wanted: str) -> str | None:
    """Return what is wrong with the text of `--device`."""
    if wanted in (AUTO, CPU, CUDA) or _ONE.fullmatch(wanted):
        return None
    return f"--device {wanted!r} is not known here; choose one of {AUTO}, {CPU}, {CUDA}, {CUDA}:N."


def order_of(environment: Mapping[str, str]) -> str:
    """Return in which order to count devices: as NVIDIA's tools do, unless somebody has chosen or counted."""
    return "" if environment.get(VISIBLE) is not None or environment.get(ORDER) else "PCI_BUS_ID"


def chosen(wanted: str, environment: Mapping[str, str], found: Found) -> Devices:
    """Return the devices to use.

    Args:
        wanted: `auto`, `cpu`, `cuda` or `cuda:N`; the N-th of those that this process may see.
        environment: of this process; what CUDA_VISIBLE_DEVICES names in it is all there is.
        found: see `Found`.

    Raises:
        BadInputError: there is no such device, or it cannot be used; says what to do.
    """
    if wanted == CPU:
        return Devices(why="device cpu, as asked for")
    usable = [number for number, device in enumerate(found.devices) if not device.fault]
    if wanted == AUTO and not (usable and found.by_torch):
        return Devices(why=f"device cpu: {_why_not(found)}")
    if not usable:
        raise BadInputError(f"--device {wanted}: no CUDA device can be used: {_why_not(found)}. {_WAY_OUT}.")
    if wanted not in (AUTO, CUDA):
        usable = [_the_one(wanted, found)]
    visible = _visible(environment, len(found.devices))
    return Devices(
        tuple(f"{CUDA}:{number}" for number in usable),
        tuple(visible[number] for number in usable),
        order_of(environment),
        _why(wanted, usable, found),
    )


def _the_one(wanted: str, found: Found) -> int:
    number, count = int(wanted.partition(":")[2]), len(found.devices)
    if number >= count:
        there = (
            "is 1 CUDA device, cuda:0"
            if count == 1
            else f"are {count} CUDA devices, the last cuda:{count - 1}"
        )
        raise BadInputError(f"--device {wanted}: there {there}; the count begins at 0.")
    if fault := found.devices[number].fault:
        raise BadInputError(f"--device {wanted} cannot be used: {fault}. {_WAY_OUT}.")
    return number


def _why_not(found: Found) -> str:
    if not found.devices:
        return found.fault
    if not found.by_torch:
        return f"there is {found.devices[0].name}, but PyTorch is not installed"
    return "; ".join(f"{CUDA}:{number}: {each.fault}" for number, each in enumerate(found.devices))


def _why(wanted: str, usable: Sequence[int], found: Found) -> str:
    names = ", ".join(f"{CUDA}:{number} ({found.devices[number].name})" for number in usable)
    how = "found and tried" if wanted == AUTO else "as asked for"
    left = [f"{CUDA}:{n} is left out: {each.fault}" for n, each in enumerate(found.devices) if each.fault]
    if not found.by_torch:
        left.append("PyTorch is not installed, so it is not known whether they work")
    if wanted == AUTO:
        left.append("--device cpu would give one slot a core")
    return "; ".join([f"device {names}, {how}", *left])


def _visible(environment: Mapping[str, str], count: int) -> list[str]:
    """Return the text for each of `count` devices: a number, or what already stands in the environment."""
    given = environment.get(VISIBLE)
    if given is None:
        return [str(number) for number in range(count)]
    return [word.strip() for word in given.split(",")][:count]


def seen_without_torch(environment: Mapping[str, str], uuids: Sequence[str]) -> int:
    """Return how many of the GPUs a process may see; as CUDA has it, the first wrong word ends the list."""
    given = environment.get(VISIBLE)
    if given is None or not uuids:
        return len(uuids)
    words = [word.strip() for word in given.split(",")]
    good = [_is_one(word, uuids) for word in words]
    return good.index(False) if False in good else len(good)


def _is_one(word: str, uuids: Sequence[str]) -> bool:
    if word.isascii() and word.isdigit():
        return int(word) < len(uuids)
    return word.startswith("MIG-") or (
        word.startswith("GPU-") and sum(uuid.startswith(word) for uuid in uuids) == 1
    )
