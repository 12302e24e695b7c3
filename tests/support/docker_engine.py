"""Run a private Docker engine: own socket, own data, own pid file; gone, with all it ran, at the end."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_PLUGINS = ("docker-compose", "docker-buildx")
_PLUGIN_SUITE = "trixie"  # the first Debian whose compose knows today's files; it runs on Debian 12 too


class NoEngineError(Exception):
    """Say why this machine can have no engine of its own."""


def need(programs: Mapping[str, str]) -> None:
    """Install Debian packages for the programs that are missing (program -> package).

    Raises:
        NoEngineError: they cannot be had.
    """
    missing = sorted({package for program, package in programs.items() if shutil.which(program) is None})
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NoEngineError(f"{', '.join(missing)} missing, and only root on Debian can install them")
    policy = Path("/usr/sbin/policy-rc.d")
    keeps_services_down = not policy.exists()
    if keeps_services_down:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        for call in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
            done = subprocess.run(
                ["apt-get", "-qq", *call], env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise NoEngineError(f"apt-get {' '.join(call)}: {done.stderr[-500:]}")
    finally:
        if keeps_services_down:
            policy.unlink()


class Engine:
    """Own one engine in a folder, whose contents may be kept for a faster next time.

    Attributes:
        folder: all its state.
        environment: what the docker client needs to find it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._config = folder / "docker-config"
        self._plugins = self._config / "cli-plugins"
        self._plugins.mkdir(parents=True, exist_ok=True)
        self.environment = {
            **os.environ,
            "DOCKER_HOST": f"unix://{folder / 'docker.sock'}",
            "DOCKER_CONFIG": str(self._config),
            "DOCKER_CLI_HINTS": "false",
            "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
            "DOCKER_BUILDKIT": "1",
        }
        self._daemon: subprocess.Popen[bytes] | None = None
        self._lock = (folder / "lock").open("w")

    def start(self) -> None:
        """Get what is missing, and start the engine.

        Raises:
            NoEngineError: with the reason.
        """
        if os.geteuid() != 0:
            raise NoEngineError("an engine of its own needs root")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NoEngineError(f"another run uses {self.folder}") from None
        need({"dockerd": "docker.io", "docker": "docker.io", "iptables": "iptables", "setpriv": "util-linux"})
        self._get_plugins()
        (self.folder / "dockerd.pid").unlink(missing_ok=True)
        with (self.folder / "dockerd.log").open("wb") as log:
            # It ends, and stops what it runs, when this process ends in whatever way.
            self._daemon = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "TERM", "dockerd", "--host", self.environment["DOCKER_HOST"]),
                    *("--data-root", str(self.folder / "data"), "--exec-root", str(self.folder / "exec")),
                    *("--pidfile", str(self.folder / "dockerd.pid")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        give_up = time.monotonic() + _START_SECONDS
        while self.docker("version", check=False).returncode:
            if self._daemon.poll() is not None or time.monotonic() > give_up:
                self.stop()
                said = (self.folder / "dockerd.log").read_text(errors="replace")[-800:]
                raise NoEngineError(f"the engine did not start:\n{said}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop the engine, and make sure that no process of it is left."""
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        give_up = time.monotonic() + 10
        while (left := list(self._processes())) and time.monotonic() < give_up:
            time.sleep(0.1)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._lock.close()

    def docker(
        self, *arguments: str, check: bool = True, seconds: float = 600.0
    ) -> subprocess.CompletedProcess[str]:
        """Run the client and return what it said."""
        return run(["docker", *arguments], self.environment, check=check, seconds=seconds)

    def _processes(self) -> Iterator[int]:
        """Find containerd and its shims, which carry our folder on their command lines."""
        mark = str(self.folder / "exec").encode()
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if mark in entry.read_bytes():
                    yield int(entry.parent.name)
            except OSError:
                continue

    def _get_plugins(self) -> None:
        """Unpack compose and buildx of a Debian that has them; nothing is installed on this machine."""
        if all((self._plugins / name).exists() for name in _PLUGINS):
            return
        packages = self.folder / "packages"
        shutil.rmtree(packages, ignore_errors=True)
        for part in ("lists/partial", "cache/archives/partial", "unpacked"):
            (packages / part).mkdir(parents=True)
        (packages / "debian.sources").write_text(
            f"Types: deb\nURIs: {_debian_archive()}\nSuites: {_PLUGIN_SUITE}\nComponents: main\n"
            "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        )
        (packages / "apt.conf").write_text(
            f'Dir::Etc::sourcelist "{packages}/debian.sources";\nDir::Etc::sourceparts "-";\n'
            f'Dir::State::lists "{packages}/lists";\nDir::Cache "{packages}/cache";\n'
            'APT::Sandbox::User "root";\n'
        )
        environment = {**os.environ, "APT_CONFIG": str(packages / "apt.conf")}
        try:
            run(["apt-get", "-qq", "update"], environment)
            run(["apt-get", "-qq", "download", *_PLUGINS], environment, folder=packages)
            for package in packages.glob("*.deb"):
                run(["dpkg-deb", "-x", str(package), str(packages / "unpacked")], environment)
        except (FailedError, FileNotFoundError) as error:
            raise NoEngineError(f"compose and buildx cannot be had: {error}") from None
        for name in _PLUGINS:
            shutil.copy(packages / "unpacked/usr/libexec/docker/cli-plugins" / name, self._plugins)
        shutil.rmtree(packages)


def _debian_archive() -> str:
    """Return where this machine gets Debian from."""
    for file in sorted(Path("/etc/apt").glob("sources.list*")) + sorted(
        Path("/etc/apt/sources.list.d").glob("*")
    ):
        if file.is_file():
            for word in file.read_text(errors="replace").split():
                if "://" in word and word.rstrip("/").endswith("/debian"):
                    return word
    raise NoEngineError("this machine has no Debian archive in its apt sources")


class FailedError(Exception):
    """Say that a program failed, with the end of what it said."""


def run(
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    check: bool = True,
    seconds: float = 600.0,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end.

    Raises:
        FailedError: it failed, or took too long.
    """
    try:
        done = subprocess.run(
            words,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise FailedError(f"{' '.join(words)}: not done after {seconds:g} s") from None
    if check and done.returncode:
        raise FailedError(f"{' '.join(words)}: {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
    return done
