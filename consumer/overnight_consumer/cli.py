"""Be the command line `overnight-consumer`: turn flags and variables into settings."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from overnight_common.addresses import LOOPBACK
from overnight_common.brokers.opening import open_broker
from overnight_common.errors import BadInputError, BrokerError, BrokerUnreachableError
from overnight_common.messages import DEFAULT_MAX_MESSAGE_BYTES
from overnight_consumer.health import fault_of
from overnight_consumer.limits import DEFAULT_LOAD_LIMIT_SECONDS
from overnight_consumer.memory_limits import AUTO, NONE
from overnight_consumer.service import Service
from overnight_consumer.settings import RawSettings, Settings, environment_commands, set_up_log, validated

EXIT_UNHEALTHY = 1
EXIT_BAD_INPUT = 2
EXIT_UNREACHABLE = 3

app = typer.Typer(add_completion=False, no_args_is_help=False, pretty_exceptions_enable=False)


def _option(flag: str, text: str) -> object:
    return typer.Option(flag, envvar="OVERNIGHT_" + flag[2:].upper().replace("-", "_"), help=text)


@app.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    broker: Annotated[str, _option("--broker", "amqp(s):// URL; the embedded broker if not given.")] = "",
    broker_file: Annotated[
        Path | None, _option("--broker-file", "File that holds this URL, such as a container's secret.")
    ] = None,
    home: Annotated[Path, _option("--home", "Folder of the embedded broker.")] = Path(".overnight"),
    queue: Annotated[list[str], _option("--queue", "Task queue to serve; repeatable.")] = ["default"],  # noqa: B006
    methods: Annotated[
        list[str], _option("--methods", "module:function, bare name or module; repeatable.")
    ] = [],  # noqa: B006
    command: Annotated[
        list[str],
        typer.Option(help="Text of a command that may be run; repeatable. Or OVERNIGHT_COMMAND, one a line."),
    ] = [],  # noqa: B006
    per_point: Annotated[
        bool, _option("--per-point", "Call methods that do not say with one point.")
    ] = False,
    source: Annotated[Path, _option("--source", "Folder of your modules; commands run in it.")] = Path(),
    slots: Annotated[str, _option("--slots", "Tasks at a time: a number, or auto for one a core.")] = "auto",
    idle_exit: Annotated[
        float | None, _option("--idle-exit", "End after so many seconds without a task.")
    ] = None,
    grace: Annotated[
        float, _option("--grace", "Seconds that running tasks get after a stop signal.")
    ] = 3600.0,
    name: Annotated[str, _option("--name", "Name of this consumer; host and process id if not given.")] = "",
    max_deliveries: Annotated[int, _option("--max-deliveries", "A task lost so often is not run again.")] = 5,
    max_message_bytes: Annotated[
        int, _option("--max-message-bytes", "Largest message.")
    ] = DEFAULT_MAX_MESSAGE_BYTES,
    device: Annotated[
        str, _option("--device", "auto, cpu, cuda (all there are, one slot each), or cuda:N.")
    ] = "auto",
    log_level: Annotated[str, _option("--log-level", "debug, info, warning or error.")] = "info",
    broker_timeout: Annotated[
        float, _option("--broker-timeout", "Seconds to reach the broker at start.")
    ] = 30.0,
    parent: Annotated[
        int | None, typer.Option("--parent", hidden=True, help="Stop when this process, our parent, is gone.")
    ] = None,
    metrics_port: Annotated[
        int | None, _option("--metrics-port", "Serve figures and health here; 0 takes any free port.")
    ] = None,
    metrics_address: Annotated[str, _option("--metrics-address", "Where that port listens.")] = LOOPBACK,
    load_limit: Annotated[
        float, _option("--load-limit", "Longest time in seconds to start a child, or to load a method.")
    ] = DEFAULT_LOAD_LIMIT_SECONDS,
    time_limit: Annotated[
        float | None, _option("--time-limit", "Longest run of any task in seconds; a task may ask for less.")
    ] = None,
    memory_limit: Annotated[
        str,
        _option("--memory-limit", "Memory of a slot: a size, none, or auto for a share of the container's."),
    ] = AUTO,
    recycle_tasks: Annotated[
        int | None, _option("--recycle-tasks", "Replace a child after so many tasks.")
    ] = None,
    recycle_growth: Annotated[
        str, _option("--recycle-growth", "Replace a child that has grown by such a size, or none.")
    ] = NONE,
) -> None:
    """Take tasks from a broker, run methods on them, and answer every one.

    Exit status: 0 stopped or idle, 2 bad input, 3 broker not reachable in time, 128 + n second signal n.
    """
    if context.invoked_subcommand is not None:
        return
    raw = RawSettings(
        broker=broker or None,
        broker_file=broker_file,
        home=home,
        queues=tuple(queue),
        methods=tuple(methods),
        commands=tuple(command) or environment_commands(),
        per_point=per_point,
        source=source,
        slots=slots,
        idle_exit=idle_exit,
        grace=grace,
        name=name,
        max_deliveries=max_deliveries,
        max_message_bytes=max_message_bytes,
        device=device,
        log_level=log_level,
        broker_timeout=broker_timeout,
        parent=parent,
        metrics_port=metrics_port,
        metrics_address=metrics_address,
        load_limit=load_limit,
        time_limit=time_limit,
        memory_limit=memory_limit,
        recycle_tasks=recycle_tasks,
        recycle_growth=recycle_growth,
    )
    raise typer.Exit(serve(raw))


@app.command()
def check(
    metrics_port: Annotated[
        int | None, _option("--metrics-port", "The one that the consumer was started with; not 0.")
    ] = None,
    metrics_address: Annotated[str, _option("--metrics-address", "Likewise.")] = LOOPBACK,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds that the answer may take.")] = 3.0,
) -> None:
    """Tell whether the consumer that runs here is connected and consuming, for a container's health check.

    Exit status: 0 it is, 1 it is not (the reason is said), 2 no port was given.
    """
    if not metrics_port:
        print("overnight-consumer check: give the --metrics-port of the consumer.", file=sys.stderr)  # noqa: T201
        raise typer.Exit(EXIT_BAD_INPUT)
    fault = fault_of(metrics_address, metrics_port, timeout)
    print(fault or "connected and consuming")  # noqa: T201
    raise typer.Exit(EXIT_UNHEALTHY if fault else 0)


def serve(raw: RawSettings) -> int:
    """Run a consumer until it is stopped or idle, and return the exit status."""
    try:
        settings = validated(raw)
        set_up_log(settings)
        return asyncio.run(_serve(settings))
    except BadInputError as error:
        for fault in error.faults:
            print(f"overnight-consumer: {fault}", file=sys.stderr)  # noqa: T201 - the command line speaks here
        return EXIT_BAD_INPUT
    except BrokerUnreachableError as error:
        print(f"overnight-consumer: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_UNREACHABLE
    except BrokerError as error:
        print(f"overnight-consumer: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_BAD_INPUT


async def _serve(settings: Settings) -> int:
    broker = open_broker(settings.broker, settings.home, max_message_bytes=settings.max_message_bytes)
    if settings.metrics_port is None:
        return await Service(settings, broker).run()
    from overnight_consumer.metrics import watched  # who is not watched pays nothing

    with watched(settings, broker, settings.metrics_port) as observer:
        return await Service(settings, broker, observer).run()


def main() -> None:
    """Be the console script; `overnight-consumer run ...` is the same as `overnight-consumer ...`."""
    words = sys.argv[1:]
    app(words[1:] if words[:1] == ["run"] else words)
