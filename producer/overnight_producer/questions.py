"""Ask what to run, line by line; what is wrong is asked for again. Knows no terminal and no file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from overnight_producer.views.standing import data_name
from overnight_producer.views.wording import one_line, percent

if TYPE_CHECKING:
    from overnight_producer.reports.status_report import JobStanding

Ask = Callable[[str], str]
Say = Callable[[str], None]
Check = Callable[[str], str | None]
Auto = Literal["auto"]


@dataclass(frozen=True, slots=True)
class MenuChoice:
    """Hold what is to be run: `resume` names an earlier job, or the rest describes a new one.

    Either `method` or `command` is None.
    """

    resume: str | None = None
    method: str | None = None
    command: str | None = None
    data: str = ""
    start: int = 0
    batch: int | Auto = "auto"
    slots: int | Auto = "auto"


@dataclass(frozen=True, slots=True)
class _Checks:
    method: Check | None
    data: Check | None
    start: Callable[[str, int], str | None] | None


class MenuLeft(Exception):  # noqa: N818 - no error: the person went away
    """Say that the person ended the questions with Ctrl-C or Ctrl-D: exit status 130."""


def ask_what_to_run(
    ask: Ask,
    say: Say,
    unfinished: JobStanding | None = None,
    check_method: Check | None = None,
    check_data: Check | None = None,
    check_start: Callable[[str, int], str | None] | None = None,
) -> MenuChoice | None:
    """Return what the person wants to run, or None to exit.

    Args:
        ask: shows a prompt and returns the answer; may raise EOFError or KeyboardInterrupt.
        say: shows a line.
        unfinished: the latest job that is not finished and not driven, if any.
        check_method: returns why a method cannot be used, or None if it can.
        check_data: the same for a data set.
        check_start: returns why a job over a data set cannot begin at an index, or None if it can.

    Raises:
        MenuLeft: the person left.
    """
    try:
        return _choose(ask, say, unfinished, _Checks(check_method, check_data, check_start))
    except (EOFError, KeyboardInterrupt):
        raise MenuLeft from None


def _choose(ask: Ask, say: Say, unfinished: JobStanding | None, checks: _Checks) -> MenuChoice | None:
    say("Overnight: one result for each data point.")
    say("  1  start a job")
    if unfinished is not None:
        say(f"  2  resume {_described(unfinished)}")
    leave = "3" if unfinished is not None else "2"
    say(f"  {leave}  exit")
    while True:
        answer = ask("Your choice: ").strip().lower()
        if answer in ("1", "start"):
            return _new_job(ask, say, checks)
        if unfinished is not None and answer in ("2", "resume"):
            return MenuChoice(resume=unfinished.spec.id)
        if answer in (leave, "exit", "quit", "q"):
            return None
        say(f"{_shown(answer)} is none of the choices: type a number from 1 to {leave}.")


def _new_job(ask: Ask, say: Say, checks: _Checks) -> MenuChoice:
    method, command = _method_or_command(ask, say, checks.method)
    data = _text(ask, say, "Data set (a file, range:N or glob:PATTERN): ", "a data set", checks.data)
    start = _number(ask, say, "Start index", default=0)
    while checks.start is not None and (why := checks.start(data, start)) is not None:
        say(why)
        start = _number(ask, say, "Start index", default=0)
    batch = _number_or_auto(ask, say, "Batch size, in points")
    slots = _number_or_auto(ask, say, "Number of workers")
    return MenuChoice(method=method, command=command, data=data, start=start, batch=batch, slots=slots)


def _method_or_command(ask: Ask, say: Say, check: Check | None) -> tuple[str | None, str | None]:
    while True:
        answer = _text(ask, say, "Method (a name, module:function, or ! and a command): ", "a method")
        if answer.startswith("!") and (command := answer[1:].strip()):
            return None, command
        if answer.startswith("!"):
            say("A command is needed after the !, for example !python job.py")
        elif not _refused(answer, check, say):
            return answer, None


def _text(ask: Ask, say: Say, prompt: str, what: str, check: Check | None = None) -> str:
    while True:
        answer = ask(prompt).strip()
        if not answer:
            say(f"{what[0].upper()}{what[1:]} is needed; Ctrl-C leaves.")
        elif not _refused(answer, check, say):
            return answer


def _number(ask: Ask, say: Say, name: str, default: int) -> int:
    while True:
        answer = ask(f"{name} [{default}]: ").strip()
        if not answer:
            return default
        number = whole_number(answer)
        if number is not None and number >= 0:
            return number
        say(_why_wrong(answer, number, 0, ""))


def _number_or_auto(ask: Ask, say: Say, name: str) -> int | Auto:
    while True:
        answer = ask(f"{name} (a number or auto) [auto]: ").strip()
        if answer.lower() in ("", "auto"):
            return "auto"
        number = whole_number(answer)
        if number is not None and number >= 1:
            return number
        say(_why_wrong(answer, number, 1, ", or auto"))


def whole_number(text: str) -> int | None:
    """Return the whole number in plain digits, or None; `1_000`, `1e3` and huge ones are none."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        return None
    return int(text)


def _why_wrong(answer: str, number: int | None, least: int, also: str) -> str:
    if number is None:
        return f"{_shown(answer)} is no whole number: type digits{also}."
    return f"{number} is too small: type {least} or more{also}."


def _refused(answer: str, check: Check | None, say: Say) -> bool:
    why = check(answer) if check is not None else None
    if why is not None:
        say(why)
    return why is not None


def _described(job: JobStanding) -> str:
    name = one_line(job.spec.command or job.spec.method, 40)
    done = percent(job.progress.done, job.progress.total)
    return f"{name} over {one_line(data_name(job.spec), 40)}, {done} done (job {job.spec.id})"


def _shown(answer: str) -> str:
    return f"'{one_line(answer, 40)}'" if answer else "Nothing"
