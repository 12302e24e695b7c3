"""Declare the flags of `overnight` that several commands have; each may also be an OVERNIGHT_* variable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from overnight_common.brokers.opening import given_address
from overnight_producer.options import Place


def option(flag: str, text: str, *short: str) -> Any:
    """Return the option `flag` with its variable: `--max-failures` is also OVERNIGHT_MAX_FAILURES."""
    return typer.Option(flag, *short, envvar="OVERNIGHT_" + flag[2:].upper().replace("-", "_"), help=text)


def _plain(flag: str, text: str, *short: str) -> Any:
    """Return an option without a variable: commands that we start find variables of such names."""
    return typer.Option(flag, *short, help=text)


# Where
Home = Annotated[Path, option("--home", "Folder of job files and of the embedded broker.")]
Broker = Annotated[
    str, option("--broker", "amqp(s)://user:password@host/vhost; without it, the embedded broker.")
]
BrokerFile = Annotated[
    Path | None, option("--broker-file", "File that holds this address, such as a container's secret.")
]
BrokerTimeout = Annotated[float, option("--broker-timeout", "Seconds to wait for the broker at the start.")]
MaxMessageBytes = Annotated[int, option("--max-message-bytes", "Largest message.")]

# Which job, and how it is told
Json = Annotated[bool, typer.Option("--json", help="Print figures as JSON.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say each task that a slot finishes.")]
Job = Annotated[str | None, typer.Argument(help="Job id, or its first letters; the newest job if not given.")]

# What a job is to do
Method = Annotated[str | None, typer.Argument(help="module:function, module:Class, or a known name.")]
Command = Annotated[str | None, typer.Option(help="A program to run on each batch, instead of a method.")]
Data = Annotated[str, _plain("--data", ".npy, .npz:key, IDX, .csv, .jsonl, .txt, range:N or glob:PATTERN.")]
Param = Annotated[list[str] | None, typer.Option(help="name=value for the method; repeatable.")]
Seed = Annotated[int, _plain("--seed", "Seed of the job; each point's randomness derives from it.")]
Start = Annotated[int, _plain("--start", "First point.")]
Count = Annotated[int | None, _plain("--count", "Number of points; all if not given.")]
Batch = Annotated[str, option("--batch", "Points per task: a number, or auto for about 2 s of work.")]
OtherBatch = Annotated[str | None, option("--batch", "Points per task for what is not yet cut.")]
PerPoint = Annotated[bool, typer.Option("--per-point", help="The method takes one point, not a batch.")]
Output = Annotated[Path | None, _plain("--output", "Results: .npy, .npz, .jsonl or .csv.", "-o")]
Source = Annotated[Path, option("--source", "Folder of your modules.")]
Queue = Annotated[str | None, option("--queue", "Task queue: default, cpu, gpu or any name.")]
TimeLimit = Annotated[float | None, option("--time-limit", "Seconds that a task may run.")]
MaxFailures = Annotated[str, option("--max-failures", "Points given up before the job pauses, or all.")]
DataBy = Annotated[str | None, option("--data-by", "value, or reference if all consumers see the path.")]
MethodElsewhere = Annotated[
    bool,
    typer.Option("--method-elsewhere", help="Only the consumers have the method; trust the first reply."),
]
New = Annotated[bool, typer.Option("--new", help="Begin afresh, although there is such a job.")]
AcceptChanges = Annotated[
    bool, typer.Option("--accept-changes", help="Go on although the method's code has changed.")
]
OnFinish = Annotated[
    str | None, option("--on-finish", "Command to run at the job's end; it finds OVERNIGHT_JOB and _STATE.")
]

# How it is driven
Slots = Annotated[
    str, option("--slots", "Slots of the consumer started here: a number, auto, or 0 for none.")
]
WindowTasks = Annotated[
    int | None, option("--window", "Tasks published at a time; found by measuring if not given.")
]
WindowSeconds = Annotated[float, option("--window-seconds", "Seconds of work that the window aims to hold.")]
Silence = Annotated[float, option("--silence", "Seconds of silence after which a task is asked for.")]
NoConsumer = Annotated[
    float, option("--no-consumer-timeout", "Pause when no task was done for so many seconds.")
]
Attempts = Annotated[int, option("--attempts", "Attempts that a single point gets.")]
MetricsPort = Annotated[
    int | None, option("--metrics-port", "Serve figures and health here; 0 takes any free port.")
]
MetricsAddress = Annotated[str, option("--metrics-address", "Where that port listens.")]
JobsAtOnce = Annotated[int, option("--jobs", "Jobs driven at once.")]

HOME = Path(".overnight")


def place_of(
    home: Path, broker: str, broker_file: Path | None, broker_timeout: float, max_message_bytes: int
) -> Place:
    """Return where the flags say that jobs and broker are."""
    return Place(
        home=home,
        broker=given_address(broker, broker_file),
        broker_timeout_seconds=broker_timeout,
        max_message_bytes=max_message_bytes,
    )
