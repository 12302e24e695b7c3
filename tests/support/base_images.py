"""Make stand-ins for public base images from Debian's packages, under the same tags, where no registry is reached."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from support.docker_engine import need, run

if TYPE_CHECKING:
    from support.docker_engine import Engine

STAND_INS = Path(__file__).parents[1] / "deploy" / "stand-ins"
# Which Debian has which RabbitMQ.
SUITES = {"4.0": "trixie", "4.3": "forky"}
_PYTHON_PACKAGES = "python3,python3-pip,python3-venv,python-is-python3,ca-certificates"
_SERVICE_PACKAGES = "rabbitmq-server,prometheus,ca-certificates"
_OPTIONS = [
    "--quiet",
    "--variant=minbase",
    "--dpkgopt=force-unsafe-io",
    *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("doc", "man", "locale")),
]
_PYTHON_ENVIRONMENT = "PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8"


def base_tag(dockerfile: Path) -> str:
    """Return the public image that a Dockerfile of ours builds on."""
    found = re.search(r"^ARG PYTHON_IMAGE=(\S+)$", dockerfile.read_text(), re.MULTILINE)
    assert found is not None, dockerfile
    return found[1]


def make_base_images(engine: Engine, rabbitmq: str, tags: dict[str, str]) -> None:
    """Make the images that are missing: `tags` names those of python, rabbitmq and prometheus."""
    need({"mmdebstrap": "mmdebstrap"})
    suite = SUITES[rabbitmq]
    services = f"overnight-test/services:{suite}"
    with ThreadPoolExecutor(2) as pool:
        roots = [
            pool.submit(_import, engine, "bookworm", _PYTHON_PACKAGES, tags["python"]),
            pool.submit(_import, engine, suite, _SERVICE_PACKAGES, services),
        ]
        for root in roots:
            root.result()
    for name in ("rabbitmq", "prometheus"):
        folder = str(STAND_INS / name)
        engine.docker("build", "--quiet", "--build-arg", f"ROOT={services}", "--tag", tags[name], folder)


def _import(engine: Engine, suite: str, packages: str, tag: str) -> None:
    if engine.docker("image", "inspect", tag, check=False).returncode == 0:
        return
    tar = engine.folder / f"root-{suite}.tar"
    if not tar.exists():
        part = tar.with_name("part-" + tar.name)  # mmdebstrap takes the format from the end of the name
        # A suite that still moves may be older here than it claims to live; its signature is checked all the same.
        moving = [] if suite in ("bookworm", "trixie") else ['--aptopt=Acquire::Check-Valid-Until "false"']
        run(
            ["mmdebstrap", *_OPTIONS, *moving, f"--include={packages}", suite, str(part)],
            os.environ,
        )
        part.replace(tar)
    engine.docker(
        "import", "--change", f"ENV {_PYTHON_ENVIRONMENT}", "--change", 'CMD ["bash"]', str(tar), tag
    )
