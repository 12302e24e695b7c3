"""Run a private RabbitMQ node for tests: own ports, data, cookie and epmd; every process gone at the end."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from support.rabbitmq_installation import Installation, wanted_installation

if TYPE_CHECKING:
    from collections.abc import Iterator

START_DEADLINE_SECONDS = 90.0
_NODE = "overnight@localhost"


class ExternalNode:
    """Stand for a node that somebody else runs; it can only hand out virtual hosts, over its management API.

    The API is looked for on port 15672 of the same host, or at OVERNIGHT_TEST_MANAGEMENT_URL.
    """

    private = False

    def __init__(self, url: str, management_url: str | None = None) -> None:
        self.url = url
        parts = urlsplit(url)
        self._login = f"{parts.username or 'guest'}:{parts.password or 'guest'}"
        self._management = (management_url or f"http://{parts.hostname}:15672").rstrip("/")

    def vhost(self) -> str:
        """Return the URL of a fresh virtual host."""
        name = f"overnight-test-{secrets.token_hex(4)}"
        request = urllib.request.Request(
            f"{self._management}/api/vhosts/{quote(name, safe='')}", method="PUT"
        )
        request.add_header("Authorization", "Basic " + b64encode(self._login.encode()).decode())
        with urllib.request.urlopen(request, timeout=10):
            pass
        return urlsplit(self.url)._replace(path="/" + name).geturl()


class RabbitMQNode:
    """Own one node: its processes, its ports and its folder."""

    private = True

    def __init__(self, folder: Path, installation: Installation) -> None:
        self._installation = installation
        self._folder = folder
        self._cookie = secrets.token_hex(16)
        self.port, self.metrics_port, self._dist_port, self._epmd_port = _free_ports(4)
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"
        self.metrics_url = f"http://127.0.0.1:{self.metrics_port}/metrics/detailed"
        self._numbers = itertools.count(1)
        self._epmd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._frozen = False
        self._write_files()

    def start(self) -> None:
        """Start the node on the data it has and wait until it answers.

        Raises:
            RuntimeError: it ended or did not answer in time; carries the end of its log.
        """
        if self._epmd is None:
            self._epmd = subprocess.Popen(
                self._command("epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        with (self._folder / "console.log").open("ab") as console:
            self._server = subprocess.Popen(
                self._command(self._installation.server),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=self._environment(),
                cwd=self._folder,
                start_new_session=True,
            )
        self._watch_over(self._server.pid, self._epmd.pid)
        self._wait_until_up(self._server)

    def stop(self) -> None:
        """Stop the node as an operator would; it keeps its data."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the node as a crash would; it keeps its data."""
        if self._server is not None and not self._frozen:
            # 3.10 notes a new quorum queue half a second late: killed before, the queue never comes back.
            self.eval("[dets:sync(Table) || Table <- dets:all()], ok.")
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Let the node hang: its sockets stay open and say nothing."""
        self._frozen = True
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the node go on after `freeze`."""
        self._signal(signal.SIGCONT)
        self._frozen = False

    def destroy(self) -> None:
        """Kill the node and its epmd; nothing stays behind but the folder."""
        self._end(signal.SIGKILL)
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None

    def eval(self, erlang: str) -> str:
        """Run an Erlang expression in the node and return what it printed (some 20 ms; no rabbitmqctl)."""
        done = subprocess.run(
            self._command("erl_call", "-r", "-n", _NODE, "-c", self._cookie, "-timeout", "30", "-e"),
            input=(erlang + "\n").encode(),
            capture_output=True,
            env=self._environment(),
            timeout=60,
            check=False,
        )
        answer = done.stdout.decode()
        if done.returncode or not answer.startswith("{ok,"):
            raise RuntimeError(f"{erlang!r}: {answer or done.stderr.decode()}")
        return answer.removeprefix("{ok,").strip().removesuffix("}").strip()

    def version(self) -> str:
        """Return the version of RabbitMQ."""
        return self.eval("rabbit_misc:version().").strip('"')

    def ctl(self, *arguments: str) -> str:
        """Run rabbitmqctl and return what it printed (costs a second or two)."""
        done = subprocess.run(
            self._command(self._installation.ctl, "-n", _NODE, "--quiet", *arguments),
            capture_output=True,
            text=True,
            env=self._environment(),
            timeout=90,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"rabbitmqctl {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def vhost(self) -> str:
        """Return the URL of a fresh virtual host that guest may use."""
        name = f"test-{next(self._numbers)}"
        rights = _permissions("guest", name, ".*", ".*", ".*")
        self.eval(f'rabbit_vhost:add(<<"{name}">>, <<"test">>), {rights}, ok.')
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{name}"

    def wipe(self, url: str) -> None:
        """Take all data from the node, which does not run; its operator has it begin with the virtual host of `url`."""
        shutil.rmtree(self._folder / "data")
        self._configure(f"default_vhost = {urlsplit(url).path.removeprefix('/')}\n")

    def user(self, url: str, *, configure: str = "", write: str = ".*", read: str = ".*") -> str:
        """Return `url` for a fresh user with these rights (regular expressions) on its virtual host."""
        parts = urlsplit(url)
        name, password = f"user-{next(self._numbers)}", secrets.token_hex(8)
        self.eval(
            f'rabbit_auth_backend_internal:add_user(<<"{name}">>, <<"{password}">>, <<"test">>), '
            + _permissions(name, parts.path.removeprefix("/"), configure, write, read)
            + ", ok."
        )
        return parts._replace(netloc=f"{name}:{password}@127.0.0.1:{self.port}").geturl()

    def close_connections(self, *, only: str = "") -> int:
        """Let the node close AMQP connections, all or those of that name, as an operator would; return how many."""
        named = (
            "[{client_properties, Properties}] = rabbit_reader:info(P, [client_properties]), "
            f'lists:member({{<<"connection_name">>, longstr, <<"{only}">>}}, Properties)'
        )
        return int(
            self.eval(
                "pg_local:sync(), "
                f"Pids = [P || P <- rabbit_networking:connections(), begin {named if only else 'true'} end], "
                '[rabbit_networking:close_connection(P, "closed by the test") || P <- Pids], length(Pids).'
            )
        )

    def hang_channel(self, url: str, name: str) -> None:
        """Let the channels of the connections of that name on the virtual host of `url` deal with nothing more."""
        vhost = urlsplit(url).path.removeprefix("/")
        self.eval(
            "[sys:suspend(C) || C <- rabbit_channel:list(), "
            "[{connection, P}, {vhost, V}] <- [rabbit_channel:info(C, [connection, vhost])], "
            f'V == <<"{vhost}">>, '
            "[{client_properties, Properties}] <- [rabbit_reader:info(P, [client_properties])], "
            f'lists:member({{<<"connection_name">>, longstr, <<"{name}">>}}, Properties)].'
        )

    def set_memory_alarm(self, on: bool) -> None:
        """Raise or clear the memory alarm of the node."""
        limit = "0.0" if on else "{absolute, 1073741824}"
        self.eval(f"vm_memory_monitor:set_vm_memory_high_watermark({limit}), ok.")

    def set_ack_timeout(self, seconds: float | None) -> None:
        """Set the server's own ack timeout, and how often channels look at it; None for the defaults.

        Only channels opened from now on take it; from 4.3 on it is for each queue to say.
        """
        tick_ms, timeout_ms = (60_000, 1_800_000) if seconds is None else (250, int(seconds * 1000))
        self.eval(
            f"application:set_env(rabbit, channel_tick_interval, {tick_ms}), "
            f"application:set_env(rabbit, consumer_timeout, {timeout_ms}), ok."
        )

    def _write_files(self) -> None:
        cookie = self._folder / ".erlang.cookie"
        cookie.write_text(self._cookie)
        cookie.chmod(0o600)
        (self._folder / "enabled_plugins").write_text("[rabbitmq_prometheus].\n")
        # Figures of quorum queues are 5 s behind by default; tests wait for them.
        (self._folder / "advanced.config").write_text("[{rabbit, [{quorum_tick_interval, 200}]}].\n")
        self._configure()

    def _configure(self, more: str = "") -> None:
        (self._folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            "prometheus.tcp.ip = 127.0.0.1\n"
            f"prometheus.tcp.port = {self.metrics_port}\n"
            # Absolute limits: the defaults depend on the machine, and a full disk is not what is tested.
            "vm_memory_high_watermark.absolute = 1GB\n"
            "disk_free_limit.absolute = 10MB\n"
            "log.console = false\n"
            "log.file.level = warning\n" + more
        )

    def _command(self, *words: str) -> list[str]:
        return self._installation.command(self._folder, *words)

    def _environment(self) -> dict[str, str]:
        data = self._installation.seen_from_inside(self._folder)
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "LANG": "C.UTF-8",
            "HOME": data,
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": _NODE,
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_MNESIA_BASE": f"{data}/data",
            "RABBITMQ_LOG_BASE": f"{data}/log",
            "RABBITMQ_CONFIG_FILE": f"{data}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{data}/advanced.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{data}/enabled_plugins",
            "RABBITMQ_PID_FILE": f"{data}/pid",
            # The script then becomes the node itself instead of a shell that waits for it.
            "RABBITMQ_ALLOW_INPUT": "true",
            "RABBITMQ_SERVER_START_ARGS": "-noinput +B i",
        }

    def _wait_until_up(self, server: subprocess.Popen[bytes]) -> None:
        give_up = time.monotonic() + START_DEADLINE_SECONDS
        while not _answers_amqp(self.port):
            if server.poll() is not None or time.monotonic() > give_up:
                self.destroy()
                raise RuntimeError(f"RabbitMQ did not start:\n{self._log_tail()}")
            time.sleep(0.05)

    def log(self) -> str:
        """Return what the node has written to its log."""
        return "\n".join(log.read_text(errors="replace") for log in self._logs())

    def _log_tail(self) -> str:
        return "\n".join(log.read_text(errors="replace")[-2000:] for log in self._logs())

    def _logs(self) -> list[Path]:
        logs = [self._folder / "console.log", *sorted((self._folder / "log").glob("*.log"))]
        return [log for log in logs if log.exists()]

    def _signal(self, number: signal.Signals) -> None:
        assert self._server is not None
        self._server.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        if self._frozen:
            server.send_signal(signal.SIGCONT)
            self._frozen = False
        server.send_signal(number)
        server.wait(60)
        _wait_until_session_is_gone(server.pid)
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
            self._watchdog = None

    def _watch_over(self, *pids: int) -> None:
        """Let a shell end the node when this process ends without doing so, however it ends."""
        killed = " ".join(str(pid) for pid in pids)
        self._watchdog = subprocess.Popen(
            ["sh", "-c", f"read -r _; kill -9 {killed}; sleep 1; rm -rf {shlex.quote(str(self._folder))}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


@contextlib.contextmanager
def private_node() -> Iterator[RabbitMQNode]:
    """Run a private node for the length of a `with` block; raises RabbitMQMissingError without one."""
    installation = wanted_installation()
    folder = Path(tempfile.mkdtemp(prefix="overnight-rabbitmq-"))
    try:
        node = RabbitMQNode(folder, installation)
        try:
            node.start()
            yield node
        finally:
            node.destroy()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _permissions(user: str, vhost: str, configure: str, write: str, read: str) -> str:
    fields = ", ".join(f'<<"{field}">>' for field in (user, vhost, configure, write, read, "test"))
    return f"rabbit_auth_backend_internal:set_permissions({fields})"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _answers_amqp(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as link:
            link.settimeout(5)
            link.sendall(b"AMQP\x00\x00\x09\x01")
            return link.recv(1) == b"\x01"
    except OSError:
        return False


def _wait_until_session_is_gone(session: int) -> None:
    """Wait for Erlang's little helpers, which notice by themselves that the node is gone."""
    give_up = time.monotonic() + 5
    while left := _processes_of(session):
        if time.monotonic() > give_up:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _processes_of(session: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _parent, _group, its_session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state not in "ZX":
                found.append(int(stat.parent.name))
    return found
