"""Make the passwords of the farm, once: an AMQP URL for each client, and for RabbitMQ only their salted hashes.

Usage: python deploy/make_secrets.py [--renew] [FOLDER]      (`make secrets` does it for deploy/secrets)

A client whose file is there keeps its password. With --renew all get new ones; start the farm again then.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

FOLDER = Path(__file__).parent / "secrets"
USERS_FILE = "rabbitmq_users.json"
GRAFANA_FILE = "grafana_password"
_HOST = "rabbitmq:5672/%2F"
# Compose mounts a secret as the file that it is, whatever owner and mode are asked for: the user inside a
# container must be able to read it. Nobody else on this machine can, for the folder lets only its owner in.
_FOLDER_MODE, _MOUNTED_MODE, _OWN_MODE = 0o700, 0o444, 0o400


@dataclass(frozen=True, slots=True)
class Rights:
    """Say what a RabbitMQ user may do; configure, write and read are patterns of exchange and queue names."""

    configure: str
    write: str
    read: str
    tags: tuple[str, ...] = ()


# The least that each needs. Write on a queue allows to look whether it is there, which RabbitMQ 4.3 asks for;
# what it also allows, to bind the queue, is no use without read on an exchange that has something in it.
RIGHTS = {
    "producer": Rights(
        configure=r"^overnight[.]replies[.].+$",
        write=r"^overnight[.](tasks|replies|dead)([.].+)?$",
        read=r"^overnight[.](replies([.].+)?|dead)$",
    ),
    "consumer": Rights(
        configure=r"^$",
        write=r"^overnight[.](replies|dead)([.].+)?$",
        read=r"^overnight[.]tasks[.].+$",
    ),
    # For a person: the management page, a queue with a name of your own, a purge.
    "operator": Rights(configure=".*", write=".*", read=".*", tags=("administrator",)),
}


def salted_hash(password: str, salt: bytes) -> str:
    """Return what RabbitMQ keeps of a password: base64 of four bytes of salt and SHA-256 over both."""
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def users(passwords: dict[str, str], salts: dict[str, bytes]) -> dict[str, object]:
    """Return definitions, to be imported by RabbitMQ, of all users with their rights."""
    return {
        "users": [
            {
                "name": name,
                "password_hash": salted_hash(passwords[name], salts[name]),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": list(rights.tags),
            }
            for name, rights in RIGHTS.items()
        ],
        "permissions": [
            {
                "user": name,
                "vhost": "/",
                "configure": rights.configure,
                "write": rights.write,
                "read": rights.read,
            }
            for name, rights in RIGHTS.items()
        ],
    }


def make(folder: Path, renew: bool = False) -> list[str]:
    """Write what is missing into `folder`, and return the names of the files that were written."""
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    folder.chmod(_FOLDER_MODE)
    written = []
    passwords = {}
    for name, rights in RIGHTS.items():
        file = folder / f"{name}.url"
        if renew or not file.exists():
            password = secrets.token_urlsafe(24)
            mode = _OWN_MODE if rights.tags else _MOUNTED_MODE
            _write(file, f"amqp://{name}:{password}@{_HOST}\n", mode)
            written.append(file.name)
        passwords[name] = urlsplit(file.read_text().strip()).password or ""
    wanted = json.dumps(users(passwords, _salts(folder / USERS_FILE)), indent=2) + "\n"
    if not (folder / USERS_FILE).exists() or (folder / USERS_FILE).read_text() != wanted:
        _write(folder / USERS_FILE, wanted, _MOUNTED_MODE)
        written.append(USERS_FILE)
    if renew or not (folder / GRAFANA_FILE).exists():
        _write(folder / GRAFANA_FILE, secrets.token_urlsafe(24), _MOUNTED_MODE)
        written.append(GRAFANA_FILE)
    return written


def _salts(file: Path) -> dict[str, bytes]:
    """Return the salts in use, so that a second call changes nothing, and new ones for new users."""
    known = {}
    if file.exists():
        for user in json.loads(file.read_text())["users"]:
            known[user["name"]] = base64.b64decode(user["password_hash"])[:4]
    return {name: known.get(name) or os.urandom(4) for name in RIGHTS}


def _write(file: Path, text: str, mode: int) -> None:
    """Replace a file whole; it is never readable for longer or by more than it should be."""
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as opened:
        os.fchmod(opened.fileno(), mode)  # the umask does not count
        opened.write(text)
    new.replace(file)


def main() -> None:
    """Be the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, metavar="FOLDER")
    parser.add_argument("--renew", action="store_true", help="make new passwords for all")
    given = parser.parse_args()
    written = make(given.folder, given.renew)
    print(f"{given.folder}: " + (f"wrote {', '.join(written)}" if written else "all there, nothing changed"))  # noqa: T201


if __name__ == "__main__":
    main()
