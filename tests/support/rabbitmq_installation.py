"""Find a RabbitMQ to start: the installed one, or a later version in a root file system of its own.

OVERNIGHT_TEST_RABBITMQ=4.0 or 4.3 asks for a later one; rabbitmq_roots.sh makes the roots.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_CANDIDATES = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "/opt/rabbitmq/sbin/rabbitmq-server")
_ROOT_SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
_ROOTS_DEFAULT = "/var/tmp/overnight-rabbitmq-roots"
_ROOTS_SCRIPT = Path(__file__).with_name("rabbitmq_roots.sh")
# Mounts vanish with the last process in this mount namespace; `exec` keeps the process id.
_ENTER = (
    'mount --bind "$2" "$1/mnt" && mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && '
    'root=$1 && shift 2 && exec chroot "$root" "$@"'
)


class RabbitMQMissingError(Exception):
    """Say that this machine has no RabbitMQ to start."""


class Installation:
    """Know where RabbitMQ's programs are and how a node's folder is called for them.

    Args:
        server: start script of RabbitMQ itself, not Debian's wrapper, which would change the user.
        root: root file system in which all of it lies, None for this machine's own.
    """

    def __init__(self, server: str, root: Path | None = None) -> None:
        self.server = server
        self.ctl = str(Path(server).with_name("rabbitmqctl"))
        self._root = root

    def seen_from_inside(self, folder: Path) -> str:
        """Return the path under which the programs find the node's folder."""
        return str(folder) if self._root is None else "/mnt"

    def command(self, folder: Path, *words: str) -> list[str]:
        """Return the command that runs one of the programs for the node in `folder`."""
        if self._root is None:
            return list(words)
        return ["unshare", "--mount", "sh", "-c", _ENTER, "sh", str(self._root), str(folder), *words]


def wanted_installation() -> Installation:
    """Return the RabbitMQ that OVERNIGHT_TEST_RABBITMQ asks for, else the installed one.

    Raises:
        RabbitMQMissingError: it is not there and cannot be had.
    """
    version = os.environ.get("OVERNIGHT_TEST_RABBITMQ", "")
    return _in_root(version) if version not in ("", "installed") else _installed()


def _installed() -> Installation:
    for candidate in (*_CANDIDATES, shutil.which("rabbitmq-server")):
        if candidate and Path(candidate).exists() and shutil.which("erl_call"):
            return Installation(str(Path(candidate).resolve()))
    raise RabbitMQMissingError(
        "no RabbitMQ here: install Debian's rabbitmq-server or set OVERNIGHT_TEST_AMQP_URL to a running node"
    )


def _in_root(version: str) -> Installation:
    root = Path(os.environ.get("OVERNIGHT_TEST_ROOTS", _ROOTS_DEFAULT)) / version
    if os.geteuid() != 0:
        raise RabbitMQMissingError(
            f"RabbitMQ {version} runs in a root of its own, and only root may enter it"
        )
    if not (root / _ROOT_SERVER[1:]).is_symlink():
        made = subprocess.run(
            ["sh", str(_ROOTS_SCRIPT), version], capture_output=True, text=True, timeout=900, check=False
        )
        if made.returncode:
            raise RabbitMQMissingError(f"no root with RabbitMQ {version}: {made.stdout}{made.stderr}")
    return Installation(_ROOT_SERVER, root)
