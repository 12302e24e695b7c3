"""Show, replay and purge dead letters for the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from overnight_common.brokers.opening import open_broker
from overnight_producer.letters import Letter, chosen, replay, with_letters
from overnight_producer.views.tables import print_json, print_line
from overnight_producer.views.wording import amount, counted, duration, one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rich.console import Console

    from overnight_common.brokers.base import Broker
    from overnight_producer.options import Place


async def list_letters(place: Place, as_json: bool, console: Console) -> None:
    """Print every dead letter in a line: id, age, type, where from, size, reason."""

    async def act(_broker: Broker, letters: list[Letter]) -> list[Letter]:
        if as_json:
            print_json(console, {"dead_letters": [_object(letter) for letter in letters]})
            return []
        for letter in letters:
            print_line(console, f"{letter.id}  {_origin(letter)}  {one_line(letter.reason)}")
        print_line(console, counted(len(letters), "dead letter"))
        return []

    await _with_broker(place, act)


async def show_letter(place: Place, name: str, console: Console) -> None:
    """Print all that is known of a letter."""

    async def act(_broker: Broker, letters: list[Letter]) -> list[Letter]:
        for letter in chosen(letters, [name], everything=False):
            print_line(console, f"{letter.id}  {_origin(letter)}")
            print_line(console, f"reason: {letter.reason}")
            print_line(console, f"says: {letter.meaning()}")
        return []

    await _with_broker(place, act)


async def replay_letters(place: Place, names: list[str], everything: bool, console: Console) -> int:
    """Put letters back into the queues that they came from; return how many had to stay."""
    stayed = 0

    async def act(broker: Broker, letters: list[Letter]) -> list[Letter]:
        nonlocal stayed
        gone = []
        for letter in chosen(letters, names, everything):
            if not letter.from_queue:
                print_line(console, f"{letter.id} stays: it does not say which queue it came from")
            elif error := await replay(broker, letter):
                print_line(console, f"{letter.id} stays: {error}")
            else:
                print_line(console, f"{letter.id} is in {letter.from_queue} again")
                gone.append(letter)
        stayed = len(chosen(letters, names, everything)) - len(gone)
        return gone

    await _with_broker(place, act)
    return stayed


async def purge_letters(place: Place, names: list[str], everything: bool, console: Console) -> None:
    """Delete letters for good."""

    async def act(_broker: Broker, letters: list[Letter]) -> list[Letter]:
        doomed = chosen(letters, names, everything)
        print_line(console, f"{counted(len(doomed), 'dead letter')} deleted")
        return doomed

    await _with_broker(place, act)


async def _with_broker(place: Place, act: Callable[[Broker, list[Letter]], Awaitable[list[Letter]]]) -> None:
    broker = open_broker(place.broker, place.home, max_message_bytes=place.max_message_bytes)
    await broker.open(place.broker_timeout_seconds)
    try:
        await with_letters(broker, lambda letters: act(broker, letters))
    finally:
        await broker.close()


def _origin(letter: Letter) -> str:
    age = "age unknown"
    if letter.at is not None:
        age = f"{duration(max((datetime.now(UTC) - letter.at).total_seconds(), 0.0))} old"
    where = letter.from_queue or "an unknown queue"
    return f"{age}, {letter.type or 'message'} of {amount(len(letter.body))} from {where}"


def _object(letter: Letter) -> dict[str, object]:
    return {
        "id": letter.id,
        "reason": letter.reason,
        "from_queue": letter.from_queue,
        "type": letter.type,
        "buried_at": letter.at.isoformat() if letter.at else None,
        "body_bytes": len(letter.body),
        "says": letter.meaning(),
    }
