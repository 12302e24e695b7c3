"""Prove the farm on a real engine: build the images, bring it up, and disturb a job in every way an operator can.

Usage: make containers-test [RABBITMQ=4.0|4.3]

Needs root on Debian, or it says so and ends well. Docker's engine is a private one in OVERNIGHT_CONTAINERS
(/var/tmp/overnight-containers), where base images stay for a faster next time; nothing else is left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from support.base_images import SUITES, base_tag, make_base_images
from support.compose_farm import HOME, ROOT, ComposeFarm, until
from support.deploy_files import DEPLOY, script
from support.docker_engine import Engine, FailedError, NoEngineError
from support.rights import farm_url, wrong_rights

PERMUTATIONS = 60
POINTS = 1797
MARKED_POINTS = 60
IMAGE_LIMIT_MB = 350
FIRST_TASK_LIMIT_SECONDS = 5.0
LOAD_LIMIT = 2.0  # per core; the farm itself takes one
SERVICES = ("rabbitmq", "producer", "consumer", "prometheus")


class Steps:
    """Say what was done and how long it took, and count."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self.passed = 0

    def done(self, text: str) -> None:
        """Say that a step went well."""
        self.passed += 1
        print(f"{time.monotonic() - self._begin:7.1f} s  {text}", flush=True)


def check(holds: bool, what: str) -> None:
    """Stop here unless something holds."""
    if not holds:
        raise FailedError(what)


def digits_job(farm: ComposeFarm, steps: Steps, folder: Path) -> None:
    """Run the digits while consumers come and go and the broker restarts; the results are those of a plain loop."""
    begun = time.monotonic()
    run = farm.begin(
        *("shapley", "--data", "/data/digits/digits.npy", "--param", f"permutations={PERMUTATIONS}"),
        *("--output", "digits.npy"),
    )
    try:
        run.follow(lambda figures: figures["points_done"] >= POINTS // 10)
        steps.done(f"{run.last['points_done']} of {POINTS} digits done by 2 consumers")
        farm.scale(4)
        steps.done("scaled to 4 in the middle, all healthy")
        farm.scale(1)
        steps.done("scaled to 1 while all were busy")
        run.follow(lambda figures: figures["points_done"] >= POINTS // 2)
        farm.scale(2)
        (victim, *_) = farm.containers("consumer")
        farm.kill(victim)
        steps.done(f"a consumer killed with SIGKILL, {run.last['points_done']} digits done")
        farm.compose("restart", "rabbitmq")
        steps.done("RabbitMQ restarted")
        run.end()
        steps.done(f"the job is done: {time.monotonic() - begun:.0f} s, {run.last['text']}")
        until(
            lambda: farm.inspect(victim)["RestartCount"] >= 1, "the engine started the killed consumer again"
        )
    finally:
        run.stop()
    check(run.last["points_done"] == POINTS and run.last["points_given_up"] == 0, f"counts: {run.last}")
    farm.compose("cp", f"producer:{HOME}/digits.npy", str(folder / "digits.npy"))
    check_equal_to_a_plain_loop(farm, folder, folder / "digits.npy")
    steps.done(f"{POINTS} results, each bit as from a plain loop")


# Which rounding a library chooses depends on the processor and the environment: the loop runs where the job ran.
PLAIN_LOOP = """
import sys
import numpy
sys.path.insert(0, "/support")
from plain_loop import one_by_one
start, stop = int(sys.argv[1]), int(sys.argv[2])
points = numpy.load("/data/digits/digits.npy")[start:stop]
numpy.save(f"/out/{start}.npy", numpy.concatenate(list(one_by_one(points, 0, int(sys.argv[3]), start))))
"""


def check_equal_to_a_plain_loop(farm: ComposeFarm, folder: Path, file: Path) -> None:
    """Compare results with those that a plain process computes point after point, in the same image."""
    out = folder / "plain"
    out.mkdir()
    out.chmod(0o777)
    options = ["--volume", f"{ROOT / 'tests' / 'support'}:/support:ro", "--volume", f"{out}:/out"]
    options += ["--env", "OPENBLAS_NUM_THREADS=1", "--entrypoint", "python"]

    def compute(start: int, stop: int) -> None:
        words = ["-c", PLAIN_LOOP, str(start), str(stop), str(PERMUTATIONS)]
        farm.compose("run", "--rm", "-T", "--no-deps", *options, "producer", *words, seconds=1800)

    bounds = [(0, POINTS // 2), (POINTS // 2, POINTS)]
    with ThreadPoolExecutor(2) as pool:
        for half in [pool.submit(compute, *bound) for bound in bounds]:
            half.result()
    expected = np.concatenate([np.load(out / f"{start}.npy") for start, _ in bounds])
    found = np.load(file)
    check(found.shape == expected.shape, f"results are {found.shape}, a plain loop gives {expected.shape}")
    wrong = int((found != expected).any(axis=1).sum())
    check(
        not wrong, f"{wrong} results differ from a plain loop's, by {abs(found - expected).max():g} at most"
    )


def marked_job(farm: ComposeFarm, steps: Steps, marks: Path) -> None:
    """Scale a mounted method of a user's down while every consumer is busy: no task that has begun runs again."""
    farm.scale(1)
    farm.environment["CONSUMER_CPUS"] = "1"  # as usual, for those that come
    words = ("marking:mark", "--data", f"range:{MARKED_POINTS}", "--batch", "1")
    job = farm.compose("exec", "-T", "producer", "overnight", "submit", *words).strip()
    until(lambda: any(marks.iterdir()), "the first point is started")
    steps.done(f"a job is submitted to the producer's service, which drives it: {job}")
    old = set(farm.containers("consumer"))
    farm.scale(4)
    new = {container[:12]: container for container in set(farm.containers("consumer")) - old}
    until(lambda: set(new) <= {host for host, _ in starts(marks)}, "all take part")
    first = [
        min(at for host, at in starts(marks) if host == name) - farm.started_at(container)
        for name, container in new.items()
    ]
    steps.done(f"new consumers are at their first task after {', '.join(f'{one:.2f}' for one in first)} s")
    if quiet():
        check(min(first) < FIRST_TASK_LIMIT_SECONDS, "a consumer takes too long to its first task")
    until(lambda: farm.query('count(up{job="consumer"} == 1)') == 4, "Prometheus sees 4 consumers")
    steps.done("Prometheus found all 4 by their name")
    check(farm.query('up{job="producer"}') == 1, "Prometheus does not see the producer")
    farm.scale(1)
    steps.done("scaled from 4 to 1 while all were busy")
    until(lambda: status(farm, job)["state"] == "done", "the job is done", 300)
    counts = [len(file.read_text().splitlines()) for file in marks.iterdir()]
    check(counts == [1] * MARKED_POINTS, f"starts of each point: {counts}")
    found = status(farm, job)
    check(found["dropped_replies"] == {}, f"dropped replies: {found['dropped_replies']}")
    check(len(found["consumers"]) == 4, f"consumers: {found['consumers']}")
    steps.done(f"all {MARKED_POINTS} points done by 4 consumers, each was started once")


def status(farm: ComposeFarm, job: str) -> Any:
    """Return what the job file says."""
    return json.loads(farm.compose("exec", "-T", "producer", "overnight", "status", job, "--json"))


def quiet() -> bool:
    """Tell whether this machine is idle enough for a time to mean something; say so if it is not."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > LOAD_LIMIT * cores:
        print(f"           not judged: {load:.1f} processes want {cores} cores", flush=True)
    return load <= LOAD_LIMIT * cores


def starts(marks: Path) -> list[tuple[str, float]]:
    """Return the host and the time of each start of a point."""
    lines = [line.split() for file in marks.iterdir() for line in file.read_text().splitlines()]
    return [(host, float(at)) for at, host in lines]


def queues_are_empty(farm: ComposeFarm, steps: Steps) -> None:
    """Check that nothing is left in the broker."""
    words = ("exec", "-T", "producer", "overnight", "queues", "--json")
    queues = json.loads(farm.compose(*words))["queues"]
    left = [queue for queue in queues if queue["ready"]]
    check(not left and any(queue["exists"] for queue in queues), f"left in queues: {queues}")
    steps.done("nothing is left in the queues, no dead letter")


def sizes(engine: Engine, steps: Steps) -> None:
    """Say how large the images are."""
    for image in ("overnight-producer:latest", "overnight-consumer:cpu"):
        megabytes = int(engine.docker("image", "inspect", "--format", "{{.Size}}", image).stdout) / 1e6
        steps.done(f"{image} has {megabytes:.0f} MB")
        check(megabytes < IMAGE_LIMIT_MB, f"{image} is over {IMAGE_LIMIT_MB} MB")


def build_settings(folder: Path) -> Path:
    """Write what a build needs on this machine only: the certificates that pip trusts here, if any are set."""
    names = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
    file = next((os.environ[name] for name in names if os.environ.get(name)), None)
    extra: dict[str, Any] = {"services": {}}
    if file is not None:
        secret = {"build": {"secrets": ["ca"]}}
        extra = {"services": {"producer": secret, "consumer": secret}, "secrets": {"ca": {"file": file}}}
    path = folder / "build.json"
    path.write_text(json.dumps(extra))
    return path


def prove(engine: Engine, rabbitmq: str, folder: Path, more: list[Path], steps: Steps) -> None:
    """Do all of it."""
    tags = {
        "python": base_tag(ROOT / "consumer" / "Dockerfile"),
        "rabbitmq": f"rabbitmq:{rabbitmq}-management",
        "prometheus": "prom/prometheus:v3.5.0",
    }
    make_base_images(engine, rabbitmq, tags)
    steps.done("base images are there")
    marks = folder / "marks"
    marks.mkdir()
    marks.chmod(0o777)
    secrets = folder / "secrets"
    script(DEPLOY / "make_secrets.py").make(secrets)
    farm = ComposeFarm(
        engine,
        [ROOT / "docker-compose.yml", ROOT / "tests/deploy/containers.yml", build_settings(folder), *more],
        {
            "RABBITMQ_IMAGE": tags["rabbitmq"],
            "PROMETHEUS_IMAGE": tags["prometheus"],
            "OVERNIGHT_SECRETS_DIR": str(secrets),
            "OVERNIGHT_METHODS_DIR": str(ROOT / "tests" / "deploy" / "methods"),
            "OVERNIGHT_METHODS": "shapley marking:mark",
            "MARKS_DIR": str(marks),
            # Half a CPU each: the job lasts long enough to be disturbed, and the plain loop need not.
            "CONSUMER_CPUS": "0.5",
        },
    )
    farm.down()  # what a run left that was killed
    farm.compose("build", "producer", "consumer")
    steps.done("images are built")
    sizes(engine, steps)
    try:
        farm.compose("up", "--detach", "--wait", *SERVICES)
        steps.done(f"RabbitMQ {rabbitmq}, producer, 2 consumers and Prometheus are up and healthy")
        digits_job(farm, steps, folder)
        marked_job(farm, steps, marks)
        queues_are_empty(farm, steps)
        # Last, because it leaves dead letters.
        wrong = wrong_rights(
            *(farm_url(secrets / f"{name}.url", farm.amqp_port) for name in ("producer", "consumer"))
        )
        check(not wrong, f"rights: {wrong}")
        steps.done("the services' users can do what they must and nothing more")
    except BaseException:
        print(farm.log(), file=sys.stderr)
        raise
    finally:
        farm.down()


def main() -> int:
    """Be the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rabbitmq", default="4.0", choices=sorted(SUITES), help="version to run")
    parser.add_argument(
        "--file", action="append", default=[], type=Path, help="one more compose file; repeatable"
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # then it cleans up, as after Ctrl-C
    state = Path(os.environ.get("OVERNIGHT_CONTAINERS", "/var/tmp/overnight-containers"))
    state.mkdir(parents=True, exist_ok=True)
    steps = Steps()
    engine = Engine(state)
    try:
        return tested(engine, given.rabbitmq, given.file, steps)
    except NoEngineError as error:
        print(f"CONTAINERS NOT TESTED: {error}", file=sys.stderr)
        required = os.environ.get("CI", "").lower() in ("1", "true", "yes") and os.geteuid() == 0
        return 1 if required else 0
    except FailedError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        print(f"containers: {steps.passed} passed, 1 failed")
        return 1


def tested(engine: Engine, rabbitmq: str, more: list[Path], steps: Steps) -> int:
    """Run it all with the engine up, and leave nothing running."""
    try:
        engine.start()
        steps.done("the engine is up")
        with tempfile.TemporaryDirectory(prefix="overnight-containers-") as folder:
            prove(engine, rabbitmq, Path(folder), more, steps)
    finally:
        engine.stop()
    steps.done("all is stopped and removed")
    print(f"containers: {steps.passed} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
