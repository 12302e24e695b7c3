"""Be the commands of `overnight` that only look: jobs, results, failures, queues, dead letters, the machine.

Each imports what it needs itself, so that none waits for what another one needs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from overnight_common.errors import BadInputError
from overnight_common.messages import DEFAULT_MAX_MESSAGE_BYTES
from overnight_producer import command_options as options
from overnight_producer.options import environment
from overnight_producer.views.outlet import Outlet
from overnight_producer.views.view import console_kind
from overnight_producer.views.wording import count, counted


def status(job: options.Job = None, json: options.Json = False, home: options.Home = options.HOME) -> None:
    """Show all jobs, or one of them in detail."""
    from overnight_producer.reports.status_report import status
    from overnight_producer.views.tables import make_console

    status(home, job, as_json=json, console=make_console())


def watch(job: options.Job = None, json: options.Json = False, home: options.Home = options.HOME) -> None:
    """Follow a job that another process drives."""
    from overnight_producer.reports.watching import watch

    raise typer.Exit(watch(home, job, console_kind(as_json=json, term=environment().get("TERM"))))


def failures(
    job: options.Job = None,
    full: Annotated[bool, typer.Option("--full", help="With tracebacks.")] = False,
    json: options.Json = False,
    home: options.Home = options.HOME,
) -> None:
    """Show the points that were given up, and why."""
    from overnight_producer.reports.failure_report import failures
    from overnight_producer.views.tables import make_console

    failures(home, job, as_json=json, full=full, console=make_console())


def export_command(
    output: Annotated[Path, typer.Argument(help="Where to: .npy, .npz, .jsonl or .csv.")],
    job: options.Job = None,
    home: options.Home = options.HOME,
) -> None:
    """Write the results so far; works while the job runs."""
    from overnight_producer.exports.export import check_output, export
    from overnight_producer.jobs.home import resolve
    from overnight_producer.jobs.jobfile import JobFile

    say = Outlet(sys.stdout).line
    path = resolve(home, job)
    faults = check_output(output)
    if faults:
        raise BadInputError(*faults)
    with JobFile.open(path) as opened:
        exported = export(opened, output)
    for note in exported.notes:
        say(note)
    say(f"{count(exported.points - exported.missing)} of {counted(exported.points, 'point')} are in {output}")


def queues(
    json: options.Json = False,
    home: options.Home = options.HOME,
    broker: options.Broker = "",
    broker_file: options.BrokerFile = None,
    broker_timeout: options.BrokerTimeout = 30.0,
) -> None:
    """Show how many tasks and dead letters wait."""
    place = options.place_of(home, broker, broker_file, broker_timeout, DEFAULT_MAX_MESSAGE_BYTES)
    import asyncio

    from overnight_producer.reports.queue_report import report_queues
    from overnight_producer.views.tables import make_console

    asyncio.run(report_queues(place, as_json=json, console=make_console()))


def doctor_command(
    json: options.Json = False,
    home: options.Home = options.HOME,
    broker: options.Broker = "",
    broker_file: options.BrokerFile = None,
    broker_timeout: options.BrokerTimeout = 5.0,
) -> None:
    """Look at this machine and the broker, and say what would hold a run up."""
    place = options.place_of(home, broker, broker_file, broker_timeout, DEFAULT_MAX_MESSAGE_BYTES)
    from overnight_producer.reports.doctor import examine
    from overnight_producer.views.tables import make_console

    raise typer.Exit(examine(place, json, make_console()))


dead = typer.Typer(
    help="Look at messages that nobody could use, and replay or purge them.", no_args_is_help=True
)
Letters = Annotated[list[str] | None, typer.Argument(help="Ids, or their first letters.")]
Everything = Annotated[bool, typer.Option("--all", help="All of them.")]


@dead.command("list")
def dead_list(
    json: options.Json = False,
    home: options.Home = options.HOME,
    broker: options.Broker = "",
    broker_file: options.BrokerFile = None,
    broker_timeout: options.BrokerTimeout = 30.0,
) -> None:
    """List the dead letters: reason, age, where from."""
    place = options.place_of(home, broker, broker_file, broker_timeout, DEFAULT_MAX_MESSAGE_BYTES)
    import asyncio

    from overnight_producer.reports.dead_report import list_letters
    from overnight_producer.views.tables import make_console

    asyncio.run(list_letters(place, json, make_console()))


@dead.command("show")
def dead_show(
    letter: Annotated[str, typer.Argument(help="Id, or its first letters.")],
    home: options.Home = options.HOME,
    broker: options.Broker = "",
    broker_file: options.BrokerFile = None,
    broker_timeout: options.BrokerTimeout = 30.0,
) -> None:
    """Show all that is known of a dead letter."""
    place = options.place_of(home, broker, broker_file, broker_timeout, DEFAULT_MAX_MESSAGE_BYTES)
    import asyncio

    from overnight_producer.reports.dead_report import show_letter
    from overnight_producer.views.tables import make_console

    asyncio.run(show_letter(place, letter, make_console()))


@dead.command("replay")
def dead_replay(
    letters: Letters = None,
    everything: Everything = False,
    home: options.Home = options.HOME,
    broker: options.Broker = "",
    broker_file: options.BrokerFile = None,
    broker_timeout: options.BrokerTimeout = 30.0,
) -> None:
    """Put dead letters back into the queues that they came from."""
    place = options.place_of(home, broker, broker_file, broker_timeout, DEFAULT_MAX_MESSAGE_BYTES)
    import asyncio

    from overnight_producer.reports.dead_report import replay_letters
    from overnight_producer.views.tables import make_console

    if asyncio.run(replay_letters(place, letters or [], everything, make_console())):
        raise typer.Exit(1)


@dead.command("purge")
def dead_purge(
    letters: Letters = None,
    everything: Everything = False,
    home: options.Home = options.HOME,
    broker: options.Broker = "",
    broker_file: options.BrokerFile = None,
    broker_timeout: options.BrokerTimeout = 30.0,
) -> None:
    """Delete dead letters for good."""
    place = options.place_of(home, broker, broker_file, broker_timeout, DEFAULT_MAX_MESSAGE_BYTES)
    import asyncio

    from overnight_producer.reports.dead_report import purge_letters
    from overnight_producer.views.tables import make_console

    asyncio.run(purge_letters(place, letters or [], everything, make_console()))
