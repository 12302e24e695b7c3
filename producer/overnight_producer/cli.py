"""Be the command line `overnight`: turn flags and variables into plain calls, and errors into exit statuses."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from overnight_common.addresses import LOOPBACK
from overnight_common.brokers.opening import given_address
from overnight_common.errors import BadInputError, BrokerError, BrokerUnreachableError, OvernightError
from overnight_common.messages import DEFAULT_MAX_MESSAGE_BYTES
from overnight_producer import asking, running
from overnight_producer.exports.export import check_output, export
from overnight_producer.jobs.home import resolve
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.lock import JobBusyError
from overnight_producer.menu import run_menu
from overnight_producer.options import Driving, Place, Wanted, environment
from overnight_producer.reports import dead_report, reports
from overnight_producer.reports.doctor import examine
from overnight_producer.views.tables import make_console

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Run a slow method over a data set: one result per data point, nothing lost.",
)
console = make_console()


def _option(flag: str, text: str, *short: str) -> Any:
    return typer.Option(flag, *short, envvar="OVERNIGHT_" + flag[2:].upper().replace("-", "_"), help=text)


Home = Annotated[Path, _option("--home", "Folder of job files and of the embedded broker.")]
Broker = Annotated[
    str, _option("--broker", "amqp(s)://user:password@host/vhost; without it, the embedded broker.")
]
BrokerFile = Annotated[
    Path | None, _option("--broker-file", "File that holds this address, such as a container's secret.")
]
BrokerTimeout = Annotated[float, _option("--broker-timeout", "Seconds to wait for the broker at the start.")]
MaxMessageBytes = Annotated[int, _option("--max-message-bytes", "Largest message.")]
Json = Annotated[bool, typer.Option("--json", help="Print figures as JSON.")]
Job = Annotated[str | None, typer.Argument(help="Job id, or its first letters; the newest job if not given.")]
Slots = Annotated[
    str, _option("--slots", "Slots of the consumer started here: a number, auto, or 0 for none.")
]
WindowTasks = Annotated[
    int | None, _option("--window", "Tasks published at a time; found by measuring if not given.")
]
WindowSeconds = Annotated[float, _option("--window-seconds", "Seconds of work that the window aims to hold.")]
Silence = Annotated[float, _option("--silence", "Seconds of silence after which a task is asked for.")]
NoConsumer = Annotated[
    float, _option("--no-consumer-timeout", "Pause when no task was done for so many seconds.")
]
Attempts = Annotated[int, _option("--attempts", "Attempts that a single point gets.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say each task that a slot finishes.")]
MetricsPort = Annotated[
    int | None, _option("--metrics-port", "Serve figures and health here; 0 takes any free port.")
]
MetricsAddress = Annotated[str, _option("--metrics-address", "Where that port listens.")]
AcceptChanges = Annotated[
    bool, typer.Option("--accept-changes", help="Go on although the method's code has changed.")
]

HOME = Path(".overnight")


def _place(
    home: Path, broker: str, broker_file: Path | None, broker_timeout: float, max_message_bytes: int
) -> Place:
    return Place(
        home=home,
        broker=given_address(broker, broker_file),
        broker_timeout_seconds=broker_timeout,
        max_message_bytes=max_message_bytes,
    )


@app.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    """Show the menu on a terminal, and the help elsewhere."""
    if context.invoked_subcommand is not None:
        return
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        console.print(context.get_help(), markup=False)
        raise typer.Exit
    given = environment()
    home, broker = Path(given.get("OVERNIGHT_HOME") or HOME), given.get("OVERNIGHT_BROKER", "")
    file = Path(name) if (name := given.get("OVERNIGHT_BROKER_FILE")) else None
    place = _place(home, broker, file, 30.0, DEFAULT_MAX_MESSAGE_BYTES)
    raise typer.Exit(run_menu(place, input, console.print))


@app.command()
def run(
    method: Annotated[
        str | None, typer.Argument(help="module:function, module:Class, or a known name.")
    ] = None,
    command: Annotated[
        str | None, typer.Option(help="A program to run on each batch, instead of a method.")
    ] = None,
    data: Annotated[
        str, typer.Option("--data", help=".npy, .npz:key, IDX, .csv, .jsonl, .txt, range:N or glob:PATTERN.")
    ] = "",
    param: Annotated[list[str] | None, typer.Option(help="name=value for the method; repeatable.")] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of the job; each point's randomness derives from it.")
    ] = 0,
    start: Annotated[int, typer.Option("--start", help="First point.")] = 0,
    count: Annotated[int | None, typer.Option("--count", help="Number of points; all if not given.")] = None,
    batch: Annotated[
        str, _option("--batch", "Points per task: a number, or auto for about 2 s of work.")
    ] = "auto",
    per_point: Annotated[
        bool, typer.Option("--per-point", help="The method takes one point, not a batch.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Results: .npy, .npz, .jsonl or .csv.")
    ] = None,
    source: Annotated[Path, _option("--source", "Folder of your modules.")] = Path(),
    queue: Annotated[str | None, _option("--queue", "Task queue: default, cpu, gpu or any name.")] = None,
    time_limit: Annotated[float | None, _option("--time-limit", "Seconds that a task may run.")] = None,
    max_failures: Annotated[
        str, _option("--max-failures", "Points given up before the job pauses, or all.")
    ] = "20",
    data_by: Annotated[
        str | None, _option("--data-by", "value, or reference if all consumers see the path.")
    ] = None,
    method_elsewhere: Annotated[
        bool,
        typer.Option("--method-elsewhere", help="Only the consumers have the method; trust the first reply."),
    ] = False,
    new: Annotated[bool, typer.Option("--new", help="Begin afresh, although there is such a job.")] = False,
    accept_changes: AcceptChanges = False,
    slots: Slots = "auto",
    window: WindowTasks = None,
    window_seconds: WindowSeconds = 10.0,
    silence: Silence = 90.0,
    no_consumer_timeout: NoConsumer = 600.0,
    attempts: Attempts = 3,
    verbose: Verbose = False,
    json: Json = False,
    metrics_port: MetricsPort = None,
    metrics_address: MetricsAddress = LOOPBACK,
    home: Home = HOME,
    broker: Broker = "",
    broker_file: BrokerFile = None,
    broker_timeout: BrokerTimeout = 30.0,
    max_message_bytes: MaxMessageBytes = DEFAULT_MAX_MESSAGE_BYTES,
) -> None:
    """Run a method over a data set, or go on where an earlier run of the same job ended."""
    wanted = Wanted(
        method=method,
        command=command,
        data=data,
        params=param or (),
        seed=seed,
        start=start,
        count=count,
        batch=batch,
        per_point=per_point,
        queue=queue,
        source=source,
        output=output,
        time_limit_seconds=time_limit,
        max_failures=max_failures,
        data_by=data_by,
        new=new,
        accept_changes=accept_changes,
        method_elsewhere=method_elsewhere,
    )
    driving = _driving(
        *(slots, window, window_seconds, silence, no_consumer_timeout, attempts, verbose, json),
        *(metrics_port, metrics_address),
    )
    raise typer.Exit(
        running.run(wanted, driving, _place(home, broker, broker_file, broker_timeout, max_message_bytes))
    )


def _driving(
    slots: str,
    window: int | None,
    window_seconds: float,
    silence: float,
    no_consumer_timeout: float,
    attempts: int,
    verbose: bool,
    json: bool,
    metrics_port: int | None,
    metrics_address: str,
) -> Driving:
    return Driving(
        slots=slots,
        window=window,
        window_seconds=window_seconds,
        silence_seconds=silence,
        no_consumer_timeout_seconds=no_consumer_timeout,
        attempts=attempts,
        verbose=verbose,
        json=json,
        metrics_port=metrics_port,
        metrics_address=metrics_address,
    )


@app.command()
def resume(
    job: Job = None,
    batch: Annotated[str | None, _option("--batch", "Points per task for what is not yet cut.")] = None,
    accept_changes: AcceptChanges = False,
    slots: Slots = "auto",
    window: WindowTasks = None,
    window_seconds: WindowSeconds = 10.0,
    silence: Silence = 90.0,
    no_consumer_timeout: NoConsumer = 600.0,
    attempts: Attempts = 3,
    verbose: Verbose = False,
    json: Json = False,
    metrics_port: MetricsPort = None,
    metrics_address: MetricsAddress = LOOPBACK,
    home: Home = HOME,
    broker: Broker = "",
    broker_file: BrokerFile = None,
    broker_timeout: BrokerTimeout = 30.0,
    max_message_bytes: MaxMessageBytes = DEFAULT_MAX_MESSAGE_BYTES,
) -> None:
    """Go on with a job that was paused, interrupted or cancelled."""
    path = resolve(home, job)
    if asking.ask(path, "resume", console.print):
        return
    driving = _driving(
        *(slots, window, window_seconds, silence, no_consumer_timeout, attempts, verbose, json),
        *(metrics_port, metrics_address),
    )
    place = _place(home, broker, broker_file, broker_timeout, max_message_bytes)
    raise typer.Exit(running.resume(path, driving, place, accept_changes, batch))


@app.command()
def retry(
    job: Job = None,
    accept_changes: AcceptChanges = False,
    slots: Slots = "auto",
    window: WindowTasks = None,
    window_seconds: WindowSeconds = 10.0,
    silence: Silence = 90.0,
    no_consumer_timeout: NoConsumer = 600.0,
    attempts: Attempts = 3,
    verbose: Verbose = False,
    json: Json = False,
    metrics_port: MetricsPort = None,
    metrics_address: MetricsAddress = LOOPBACK,
    home: Home = HOME,
    broker: Broker = "",
    broker_file: BrokerFile = None,
    broker_timeout: BrokerTimeout = 30.0,
    max_message_bytes: MaxMessageBytes = DEFAULT_MAX_MESSAGE_BYTES,
) -> None:
    """Try the points again that were given up."""
    path = resolve(home, job)
    if asking.ask(path, "retry", console.print):
        return
    driving = _driving(
        *(slots, window, window_seconds, silence, no_consumer_timeout, attempts, verbose, json),
        *(metrics_port, metrics_address),
    )
    place = _place(home, broker, broker_file, broker_timeout, max_message_bytes)
    raise typer.Exit(running.retry(path, driving, place, accept_changes))


@app.command()
def pause(job: Job = None, home: Home = HOME) -> None:
    """Let the driver of a job publish nothing more until it is resumed."""
    if not asking.ask(resolve(home, job), "pause", console.print):
        raise BadInputError("nobody drives this job, so nothing is to be paused")


@app.command()
def cancel(
    job: Job = None,
    home: Home = HOME,
    broker: Broker = "",
    broker_file: BrokerFile = None,
    broker_timeout: BrokerTimeout = 30.0,
) -> None:
    """Cancel a job: drop what is queued, kill what runs, keep what is done."""
    asking.cancel(
        resolve(home, job),
        _place(home, broker, broker_file, broker_timeout, DEFAULT_MAX_MESSAGE_BYTES),
        console.print,
    )


@app.command()
def window(
    tasks: Annotated[str, typer.Argument(help="Number of tasks, or auto.")],
    job: Job = None,
    home: Home = HOME,
) -> None:
    """Change how many tasks the driver of a job keeps published."""
    if tasks != "auto" and not (tasks.isdecimal() and int(tasks) > 0):
        raise BadInputError(f"{tasks}: give a number of tasks from 1 on, or auto")
    count = None if tasks == "auto" else int(tasks)
    if not asking.ask(resolve(home, job), "window", console.print, tasks=count):
        raise BadInputError("nobody drives this job; give --window to `overnight resume`")


@app.command()
def status(job: Job = None, json: Json = False, home: Home = HOME) -> None:
    """Show all jobs, or one of them in detail."""
    reports.status(home, job, json, console)


@app.command()
def watch(job: Job = None, json: Json = False, home: Home = HOME) -> None:
    """Follow a job that another process drives."""
    raise typer.Exit(reports.watch(home, job, console, json))


@app.command()
def failures(
    job: Job = None,
    full: Annotated[bool, typer.Option("--full", help="With tracebacks.")] = False,
    json: Json = False,
    home: Home = HOME,
) -> None:
    """Show the points that were given up, and why."""
    reports.failures(home, job, json, full, console)


@app.command("export")
def export_command(
    output: Annotated[Path, typer.Argument(help="Where to: .npy, .npz, .jsonl or .csv.")],
    job: Job = None,
    home: Home = HOME,
) -> None:
    """Write the results so far; works while the job runs."""
    path = resolve(home, job)
    faults = check_output(output)
    if faults:
        raise BadInputError(*faults)
    with JobFile.open(path) as opened:
        exported = export(opened, output)
    for note in exported.notes:
        console.print(note, markup=False)
    console.print(
        f"{exported.points - exported.missing} of {exported.points} points are in {output}", markup=False
    )


@app.command()
def queues(
    json: Json = False,
    home: Home = HOME,
    broker: Broker = "",
    broker_file: BrokerFile = None,
    broker_timeout: BrokerTimeout = 30.0,
) -> None:
    """Show how many tasks and dead letters wait."""
    place = _place(home, broker, broker_file, broker_timeout, DEFAULT_MAX_MESSAGE_BYTES)
    asyncio.run(reports.queues(place, json, console))


@app.command("doctor")
def doctor_command(
    json: Json = False,
    home: Home = HOME,
    broker: Broker = "",
    broker_file: BrokerFile = None,
    broker_timeout: BrokerTimeout = 5.0,
) -> None:
    """Look at this machine and the broker, and say what would hold a run up."""
    place = _place(home, broker, broker_file, broker_timeout, DEFAULT_MAX_MESSAGE_BYTES)
    raise typer.Exit(examine(place, json, console))


dead = typer.Typer(
    help="Look at messages that nobody could use, and replay or purge them.", no_args_is_help=True
)
app.add_typer(dead, name="dead")
Letters = Annotated[list[str] | None, typer.Argument(help="Ids, or their first letters.")]
Everything = Annotated[bool, typer.Option("--all", help="All of them.")]


@dead.command("list")
def dead_list(
    json: Json = False,
    home: Home = HOME,
    broker: Broker = "",
    broker_file: BrokerFile = None,
    broker_timeout: BrokerTimeout = 30.0,
) -> None:
    """List the dead letters: reason, age, where from."""
    place = _place(home, broker, broker_file, broker_timeout, DEFAULT_MAX_MESSAGE_BYTES)
    asyncio.run(dead_report.list_letters(place, json, console))


@dead.command("show")
def dead_show(
    letter: Annotated[str, typer.Argument(help="Id, or its first letters.")],
    home: Home = HOME,
    broker: Broker = "",
    broker_file: BrokerFile = None,
    broker_timeout: BrokerTimeout = 30.0,
) -> None:
    """Show all that is known of a dead letter."""
    place = _place(home, broker, broker_file, broker_timeout, DEFAULT_MAX_MESSAGE_BYTES)
    asyncio.run(dead_report.show_letter(place, letter, console))


@dead.command("replay")
def dead_replay(
    letters: Letters = None,
    everything: Everything = False,
    home: Home = HOME,
    broker: Broker = "",
    broker_file: BrokerFile = None,
    broker_timeout: BrokerTimeout = 30.0,
) -> None:
    """Put dead letters back into the queues that they came from."""
    place = _place(home, broker, broker_file, broker_timeout, DEFAULT_MAX_MESSAGE_BYTES)
    if asyncio.run(dead_report.replay_letters(place, letters or [], everything, console)):
        raise typer.Exit(1)


@dead.command("purge")
def dead_purge(
    letters: Letters = None,
    everything: Everything = False,
    home: Home = HOME,
    broker: Broker = "",
    broker_file: BrokerFile = None,
    broker_timeout: BrokerTimeout = 30.0,
) -> None:
    """Delete dead letters for good."""
    place = _place(home, broker, broker_file, broker_timeout, DEFAULT_MAX_MESSAGE_BYTES)
    asyncio.run(dead_report.purge_letters(place, letters or [], everything, console))


def main() -> None:
    """Be the console script."""
    try:
        app()
    except BadInputError as error:
        _fail(2, *error.faults)
    except BrokerUnreachableError as error:
        _fail(3, str(error))
    except JobBusyError as error:
        _fail(2, str(error))
    except BrokerError as error:
        _fail(3, str(error))
    except OvernightError as error:
        _fail(1, str(error))
    except KeyboardInterrupt:
        _fail(130, "interrupted")
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone, as with `overnight status | head`
        sys.exit(0)


def _fail(status: int, *faults: str) -> None:
    for fault in faults:
        print(f"overnight: {fault}", file=sys.stderr)  # noqa: T201 - the command line speaks here
    sys.exit(status)
