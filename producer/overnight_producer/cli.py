"""Be the command line `overnight`: turn flags and variables into plain calls, and errors into exit statuses.

What a command needs is imported in it: `overnight --help` must not wait for NumPy, nor `status` for a broker.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from overnight_common.addresses import LOOPBACK
from overnight_common.errors import BadInputError, BrokerError, BrokerUnreachableError, OvernightError
from overnight_common.messages import DEFAULT_MAX_MESSAGE_BYTES
from overnight_producer import command_options as options
from overnight_producer import report_commands
from overnight_producer.jobs.lock import JobBusyError
from overnight_producer.options import Driving, Place, Renewal, Wanted, environment
from overnight_producer.views.outlet import Outlet

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Run a slow method over a data set: one result per data point, nothing lost.",
)


@app.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    """Show the menu on a terminal, and the help elsewhere."""
    if context.invoked_subcommand is not None:
        return
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        _say(context.get_help())
        raise typer.Exit
    from overnight_producer.menu import run_menu

    given = environment()
    home, broker = Path(given.get("OVERNIGHT_HOME") or options.HOME), given.get("OVERNIGHT_BROKER", "")
    file = Path(name) if (name := given.get("OVERNIGHT_BROKER_FILE")) else None
    place = options.place_of(home, broker, file, 30.0, DEFAULT_MAX_MESSAGE_BYTES)
    raise typer.Exit(run_menu(place, input, _say))


@app.command()
def run(
    method: options.Method = None,
    command: options.Command = None,
    data: options.Data = "",
    param: options.Param = None,
    seed: options.Seed = 0,
    start: options.Start = 0,
    count: options.Count = None,
    batch: options.Batch = "auto",
    per_point: options.PerPoint = False,
    output: options.Output = None,
    source: options.Source = Path(),
    queue: options.Queue = None,
    time_limit: options.TimeLimit = None,
    max_failures: options.MaxFailures = "20",
    data_by: options.DataBy = None,
    method_elsewhere: options.MethodElsewhere = False,
    on_finish: options.OnFinish = None,
    new: options.New = False,
    accept_changes: options.AcceptChanges = False,
    slots: options.Slots = "auto",
    window: options.WindowTasks = None,
    window_seconds: options.WindowSeconds = 10.0,
    silence: options.Silence = 90.0,
    no_consumer_timeout: options.NoConsumer = 600.0,
    attempts: options.Attempts = 3,
    verbose: options.Verbose = False,
    json: options.Json = False,
    metrics_port: options.MetricsPort = None,
    metrics_address: options.MetricsAddress = LOOPBACK,
    home: options.Home = options.HOME,
    broker: options.Broker = "",
    broker_file: options.BrokerFile = None,
    broker_timeout: options.BrokerTimeout = 30.0,
    max_message_bytes: options.MaxMessageBytes = DEFAULT_MAX_MESSAGE_BYTES,
) -> None:
    """Run a method over a data set, or go on where an earlier run of the same job ended."""
    given = locals()
    from overnight_producer.running import run

    raise typer.Exit(run(_wanted(given), _driving(given), _place(given)))


@app.command()
def submit(
    method: options.Method = None,
    command: options.Command = None,
    data: options.Data = "",
    param: options.Param = None,
    seed: options.Seed = 0,
    start: options.Start = 0,
    count: options.Count = None,
    batch: options.Batch = "auto",
    per_point: options.PerPoint = False,
    output: options.Output = None,
    source: options.Source = Path(),
    queue: options.Queue = None,
    time_limit: options.TimeLimit = None,
    max_failures: options.MaxFailures = "20",
    data_by: options.DataBy = None,
    method_elsewhere: options.MethodElsewhere = False,
    on_finish: options.OnFinish = None,
    new: options.New = False,
    accept_changes: options.AcceptChanges = False,
    home: options.Home = options.HOME,
    broker: options.Broker = "",
    broker_file: options.BrokerFile = None,
    max_message_bytes: options.MaxMessageBytes = DEFAULT_MAX_MESSAGE_BYTES,
) -> None:
    """Leave a job to `overnight serve` and print its id."""
    given = locals()
    from overnight_producer.submitting import submit

    _say(submit(replace(_wanted(given), submitted=True), _place(given), _note))


def _wanted(given: Mapping[str, Any]) -> Wanted:
    """Gather the flags that shape a job, by their names."""
    return Wanted(
        method=given["method"],
        command=given["command"],
        data=given["data"],
        params=given["param"] or (),
        seed=given["seed"],
        start=given["start"],
        count=given["count"],
        batch=given["batch"],
        per_point=given["per_point"],
        queue=given["queue"],
        source=given["source"],
        output=given["output"],
        time_limit_seconds=given["time_limit"],
        max_failures=given["max_failures"],
        data_by=given["data_by"],
        new=given["new"],
        accept_changes=given["accept_changes"],
        method_elsewhere=given["method_elsewhere"],
        on_finish=given["on_finish"],
    )


def _driving(given: Mapping[str, Any]) -> Driving:
    """Gather the flags that say how jobs are driven; `serve` starts no consumer and has no window for one job."""
    return Driving(
        slots=given.get("slots", "0"),
        window=given.get("window"),
        window_seconds=given["window_seconds"],
        silence_seconds=given["silence"],
        no_consumer_timeout_seconds=given["no_consumer_timeout"],
        attempts=given["attempts"],
        verbose=given["verbose"],
        json=given.get("json", False),
        metrics_port=given["metrics_port"],
        metrics_address=given["metrics_address"],
    )


def _place(given: Mapping[str, Any]) -> Place:
    """Gather the flags that say where jobs and broker are."""
    return options.place_of(
        given["home"],
        given["broker"],
        given["broker_file"],
        given.get("broker_timeout", 30.0),
        given.get("max_message_bytes", DEFAULT_MAX_MESSAGE_BYTES),
    )


@app.command()
def serve(
    jobs: options.JobsAtOnce = 8,
    window_seconds: options.WindowSeconds = 10.0,
    silence: options.Silence = 90.0,
    no_consumer_timeout: options.NoConsumer = 600.0,
    attempts: options.Attempts = 3,
    verbose: options.Verbose = False,
    metrics_port: options.MetricsPort = None,
    metrics_address: options.MetricsAddress = LOOPBACK,
    home: options.Home = options.HOME,
    broker: options.Broker = "",
    broker_file: options.BrokerFile = None,
    broker_timeout: options.BrokerTimeout = 30.0,
    max_message_bytes: options.MaxMessageBytes = DEFAULT_MAX_MESSAGE_BYTES,
) -> None:
    """Drive the jobs that are submitted, several at once, until a signal comes."""
    given = locals()
    from overnight_producer.serving import serve

    raise typer.Exit(serve(_driving(given), _place(given), jobs))


@app.command()
def resume(
    job: options.Job = None,
    all_jobs: Annotated[
        bool, typer.Option("--all", help="Go on with every unfinished job that nobody paused.")
    ] = False,
    jobs: options.JobsAtOnce = 8,
    batch: options.OtherBatch = None,
    on_finish: options.OnFinish = None,
    accept_changes: options.AcceptChanges = False,
    slots: options.Slots = "auto",
    window: options.WindowTasks = None,
    window_seconds: options.WindowSeconds = 10.0,
    silence: options.Silence = 90.0,
    no_consumer_timeout: options.NoConsumer = 600.0,
    attempts: options.Attempts = 3,
    verbose: options.Verbose = False,
    json: options.Json = False,
    metrics_port: options.MetricsPort = None,
    metrics_address: options.MetricsAddress = LOOPBACK,
    home: options.Home = options.HOME,
    broker: options.Broker = "",
    broker_file: options.BrokerFile = None,
    broker_timeout: options.BrokerTimeout = 30.0,
    max_message_bytes: options.MaxMessageBytes = DEFAULT_MAX_MESSAGE_BYTES,
) -> None:
    """Go on with a job that was paused, interrupted or cancelled, or with all that wait."""
    given = locals()
    driving, place = _driving(given), _place(given)
    renewal = Renewal(accept_changes=accept_changes, batch=batch, on_finish=on_finish)
    if not all_jobs:
        raise typer.Exit(_go_on(job, "resume", driving, place, renewal))
    if job is not None or json:
        raise BadInputError("resume --all names no job and prints no figures: leave JOB and --json out")
    from overnight_producer.serving import resume_all

    raise typer.Exit(resume_all(driving, place, jobs, renewal))


@app.command()
def retry(
    job: options.Job = None,
    accept_changes: options.AcceptChanges = False,
    slots: options.Slots = "auto",
    window: options.WindowTasks = None,
    window_seconds: options.WindowSeconds = 10.0,
    silence: options.Silence = 90.0,
    no_consumer_timeout: options.NoConsumer = 600.0,
    attempts: options.Attempts = 3,
    verbose: options.Verbose = False,
    json: options.Json = False,
    metrics_port: options.MetricsPort = None,
    metrics_address: options.MetricsAddress = LOOPBACK,
    home: options.Home = options.HOME,
    broker: options.Broker = "",
    broker_file: options.BrokerFile = None,
    broker_timeout: options.BrokerTimeout = 30.0,
    max_message_bytes: options.MaxMessageBytes = DEFAULT_MAX_MESSAGE_BYTES,
) -> None:
    """Try the points again that were given up."""
    given = locals()
    renewal = Renewal(accept_changes=accept_changes, retrying=True)
    raise typer.Exit(_go_on(job, "retry", _driving(given), _place(given), renewal))


def _go_on(job: str | None, what: str, driving: Driving, place: Place, renewal: Renewal) -> int:
    """Ask the job's driver, or the service that it was submitted to, or drive it here."""
    from overnight_producer import asking, running, submitting
    from overnight_producer.jobs.home import resolve

    path = resolve(place.home, job)
    if asking.ask(path, what, _say) or submitting.give_to_serve(path, place, renewal, _say):
        return 0
    return running.resume(path, driving, place, renewal)


@app.command()
def pause(job: options.Job = None, home: options.Home = options.HOME) -> None:
    """Let the driver of a job publish nothing more until it is resumed."""
    from overnight_producer import asking, submitting
    from overnight_producer.jobs.home import resolve

    path = resolve(home, job)
    if not asking.ask(path, "pause", _say) and not submitting.pause_in_line(path, _say):
        raise BadInputError("nobody drives this job, so nothing is to be paused")


@app.command()
def cancel(
    job: options.Job = None,
    home: options.Home = options.HOME,
    broker: options.Broker = "",
    broker_file: options.BrokerFile = None,
    broker_timeout: options.BrokerTimeout = 30.0,
) -> None:
    """Cancel a job: drop what is queued, kill what runs, keep what is done."""
    given = locals()
    from overnight_producer import asking
    from overnight_producer.jobs.home import resolve

    asking.cancel(resolve(home, job), _place(given), _say)


@app.command()
def window(
    tasks: Annotated[str, typer.Argument(help="Number of tasks, or auto.")],
    job: options.Job = None,
    home: options.Home = options.HOME,
) -> None:
    """Change how many tasks the driver of a job keeps published."""
    if tasks != "auto" and not (tasks.isdecimal() and int(tasks) > 0):
        raise BadInputError(f"{tasks}: give a number of tasks from 1 on, or auto")
    from overnight_producer import asking
    from overnight_producer.jobs.home import resolve

    count = None if tasks == "auto" else int(tasks)
    if not asking.ask(resolve(home, job), "window", _say, tasks=count):
        raise BadInputError("nobody drives this job; give --window to `overnight resume`")


for name, look in (
    ("status", report_commands.status),
    ("watch", report_commands.watch),
    ("failures", report_commands.failures),
    ("export", report_commands.export_command),
    ("queues", report_commands.queues),
    ("doctor", report_commands.doctor_command),
):
    app.command(name)(look)
app.add_typer(report_commands.dead, name="dead")


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


def _say(text: str) -> None:
    Outlet(sys.stdout).line(text)


def _note(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - standard output is for what a script wants


def _fail(status: int, *faults: str) -> None:
    for fault in faults:
        print(f"overnight: {fault}", file=sys.stderr)  # noqa: T201 - the command line speaks here
    sys.exit(status)
