"""The images keep the rules that make them safe and small to run; one that breaks a rule is found out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field

import pytest

from support.deploy_files import DEPLOY, ROOT

FILES = ("producer/Dockerfile", "consumer/Dockerfile")
SECRET_WORDS = re.compile(r"password|passwd|secret|token|credential|amqp://", re.IGNORECASE)
FETCHERS = re.compile(r"\b(curl|wget|apt-get|apk|gcc|build-essential)\b")
EXEC_FORM = re.compile(r'^\["[^"]+"(, "[^"]*")*\]$')
BUILDING = {"wheel", "packages", "packages-with-torch"}


@dataclass
class Stage:
    """One FROM with what follows it."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def values(self, word: str) -> list[str]:
        return [rest for name, rest in self.instructions if name == word]


def stages(text: str) -> list[Stage]:
    """Read a Dockerfile: comments left out, continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    found: list[Stage] = []
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found.append(Stage(name.strip(), base.strip()))
        elif word and found:
            found[-1].instructions.append((word, rest.strip()))
    return found


def ancestry(stage: Stage, all_stages: list[Stage]) -> list[Stage]:
    """Return the stages that an image consists of, its base first."""
    parent = next((one for one in all_stages if one.name and one.name == stage.base), None)
    return [*(ancestry(parent, all_stages) if parent else []), stage]


def targets(name: str, text: str) -> dict[str, list[Stage]]:
    """Return the images that a Dockerfile is for, each as its stages."""
    found = stages(text)
    wanted = ("cpu", "gpu") if name.startswith("consumer") else ("",)
    return {target: ancestry(next(one for one in found if one.name == target), found) for target in wanted}


def faults(name: str, text: str) -> list[str]:
    """Return the rules that a Dockerfile of ours breaks."""
    wrong = []
    if re.match(r"\s*#\s*syntax\s*=", text):
        wrong.append("it fetches a builder of its own")
    if FETCHERS.search(re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)):
        wrong.append("it fetches by other means than pip")
    for target, parts in targets(name, text).items():
        users = [value for part in parts for value in part.values("USER")]
        if not users or not re.fullmatch(r"[1-9]\d+:[1-9]\d+", users[-1]):
            wrong.append(f"{target}: its user is {users[-1:] or 'root'}, not a number above 0")
        for word in ("ENTRYPOINT", "CMD"):
            wrong += [
                f"{target}: {word} is a line for a shell"
                for part in parts
                for value in part.values(word)
                if not EXEC_FORM.match(value)
            ]
        checks = [value for part in parts for value in part.values("HEALTHCHECK")]
        if not checks or "readyz" not in checks[-1] or not re.search(r"CMD \[", checks[-1]):
            wrong.append(f"{target}: no health check that asks whether it is ready")
        if {part.name for part in parts} & BUILDING:
            wrong.append(f"{target}: it is built on a stage that only builds")
    for stage in stages(text):
        wrong += [
            f"{word} {rest}: a secret in a layer"
            for word, rest in stage.instructions
            if word in ("ENV", "ARG", "LABEL", "COPY", "ADD") and SECRET_WORDS.search(rest)
        ]
        wrong += [f"ADD {rest}: COPY says what it does" for rest in stage.values("ADD")]
        wrong += [
            f"COPY {rest}: all of the folder" for rest in stage.values("COPY") if rest.split()[-2:-1] == ["."]
        ]
    return wrong


@pytest.mark.parametrize("name", FILES)
def test_an_image_keeps_the_rules(name: str) -> None:
    assert faults(name, (ROOT / name).read_text()) == []


BREAKS = {
    "user root": ("USER 10001:10001", "USER root"),
    "no user": ("USER 10001:10001\n", ""),
    "a name for a user": ("USER 10001:10001", "USER overnight"),
    "an entry point in a shell": ('ENTRYPOINT ["overnight"]', "ENTRYPOINT overnight"),
    "no health check": ("HEALTHCHECK", "# HEALTHCHECK"),
    "health is a mere page": ("/readyz", "/metrics"),
    "a secret in the environment": ("WORKDIR /var/lib", "ENV BROKER_PASSWORD=x\nWORKDIR /var/lib"),
    "an address in the environment": (
        "WORKDIR /var/lib",
        "ENV OVERNIGHT_BROKER=amqp://a:b@c\nWORKDIR /var/lib",
    ),
    "a builder that is fetched": ("# Image of", "# syntax=docker/dockerfile:1\n# Image of"),
    "a compiler": ("useradd --system", "apt-get install gcc; useradd --system"),
    "all of the folder": ("COPY README.md LICENSE", "COPY ."),
}


@pytest.mark.parametrize("what", BREAKS)
def test_an_image_that_breaks_a_rule_is_found_out(what: str) -> None:
    text = (ROOT / "producer/Dockerfile").read_text()
    old, new = BREAKS[what]
    if what == "all of the folder":
        old, new = "COPY pyproject.toml README.md LICENSE ./", "COPY . ./"
    broken = text.replace(old, new)
    assert broken != text, f"the Dockerfile no longer has {old!r}"
    assert faults("producer/Dockerfile", broken)


def test_both_images_are_built_in_the_same_way() -> None:
    """So that the engine builds the wheel and the dependencies once for both."""
    first, second = (
        {stage.name: stage.instructions for stage in stages((ROOT / name).read_text())} for name in FILES
    )
    assert first["wheel"] == second["wheel"]
    assert first["packages"] == second["packages"]


@pytest.mark.parametrize("name", FILES)
def test_dependencies_are_installed_before_the_source_is_seen(name: str) -> None:
    packages = next(stage for stage in stages((ROOT / name).read_text()) if stage.name == "packages")
    copied = {word for rest in packages.values("COPY") for word in rest.split()[:-1]}
    assert copied == {"pyproject.toml", "constraints.txt", "deploy/images/dependencies.py"}
    assert any("--constraint constraints.txt" in rest for rest in packages.values("RUN"))


def test_the_gpu_image_has_torch_and_the_cpu_image_has_not() -> None:
    text = (ROOT / "consumer/Dockerfile").read_text()
    found = {stage.name: stage for stage in stages(text)}
    assert found["packages-with-torch"].base == "packages"
    for target, source in (("cpu", "packages"), ("gpu", "packages-with-torch")):
        assert f"--from={source} /opt/venv /opt/venv" in found[target].values("COPY")
    assert stages(text)[-1].name == "cpu", "the target that is built when none is named"


def test_the_gpu_image_insists_on_a_gpu_and_the_cpu_image_looks_for_itself() -> None:
    found = {stage.name: stage for stage in stages((ROOT / "consumer/Dockerfile").read_text())}
    insists = {
        name: "OVERNIGHT_DEVICE=cuda" in " ".join(found[name].values("ENV")) for name in ("gpu", "cpu")
    }
    assert insists == {"gpu": True, "cpu": False}
    assert "OVERNIGHT_DEVICE" not in " ".join(found["runtime"].values("ENV"))


@pytest.mark.parametrize("extras", [[], ["torch"], ["torch", "plot"]])
def test_the_listed_dependencies_are_those_of_the_project(extras: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    done = subprocess.run(
        [sys.executable, DEPLOY / "images/dependencies.py", ROOT / "pyproject.toml", *extras],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = project["dependencies"] + [
        line for extra in extras for line in project["optional-dependencies"][extra]
    ]
    assert done.stdout.splitlines() == expected


def test_an_unknown_extra_is_refused_with_those_that_are() -> None:
    done = subprocess.run(
        [sys.executable, DEPLOY / "images/dependencies.py", ROOT / "pyproject.toml", "touch"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no extra touch" in done.stderr
    assert "torch" in done.stderr


def test_the_engine_gets_what_the_images_copy_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*", "everything is left out unless it is named"
    let_in = {rule[1:] for rule in rules if rule.startswith("!")}
    copied = {
        word
        for name in FILES
        for stage in stages((ROOT / name).read_text())
        for rest in stage.values("COPY")
        if "--from" not in rest
        for word in rest.split()[:-1]
    }
    assert {path.removesuffix("/dependencies.py") for path in copied} == let_in
    assert not let_in & {"data", "deploy", "tests", ".git", ".env"}


def test_a_health_check_fails_on_anything_but_a_good_answer() -> None:
    for name in FILES:
        (check,) = re.findall(r"^HEALTHCHECK.*?CMD (\[.*?\])$", (ROOT / name).read_text(), re.M | re.S)
        words = json.loads(check)
        done = subprocess.run(
            [sys.executable, *words[1:-1], words[-1].replace(":9100", ":1")],
            capture_output=True,
            check=False,
        )
        assert words[0] == "python"
        assert done.returncode != 0, "nobody listens on port 1"
