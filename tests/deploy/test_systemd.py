"""The units for systemd are valid, and stop and fail as the programs need it."""

import re
import shutil
import subprocess

import pytest

from overnight_consumer.settings import RawSettings
from overnight_producer.side_by_side import STOP_SECONDS
from support.markdown import ROOT

FOLDER = ROOT / "deploy" / "systemd"
UNITS = {path.stem: path.read_text() for path in FOLDER.glob("*.service")}


@pytest.fixture(scope="module")
def analyze():
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("NOT TESTED WITH SYSTEMD: systemd-analyze is missing; it is in Debian's package systemd")
    return found


def said_of(analyze, folder, name, text):
    """Return what systemd says against a unit, whose programs stand for themselves here."""
    path = folder / f"{name}.service"
    path.write_text(re.sub(r"/usr/local/bin/overnight(-consumer)?", "/bin/true", text))
    done = subprocess.run([analyze, "verify", path], capture_output=True, text=True, check=False)
    return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if str(path) in line)


def settings(text):
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


@pytest.mark.parametrize("name", UNITS)
def test_systemd_finds_nothing_wrong(analyze, tmp_path, name):
    assert said_of(analyze, tmp_path, name, UNITS[name]) == ""
    for wrong in (("RestartSec=", "RestartSecs="), ("on-failure", "on-failuer"), ("mixed", "mixt")):
        assert said_of(analyze, tmp_path, name, UNITS[name].replace(*wrong)) != "", wrong


@pytest.mark.parametrize("name", UNITS)
def test_each_runs_its_own_program_and_lets_it_end_in_its_own_way(name):
    unit = settings(UNITS[name])
    program = unit["ExecStart"].split()[0].rpartition("/")[2]
    assert program == name
    assert unit["KillMode"] == "mixed"  # else children are ended in the middle of their tasks
    assert unit["Restart"] == "on-failure"
    assert unit["RestartPreventExitStatus"] == "2"
    least = RawSettings().grace if name == "overnight-consumer" else STOP_SECONDS
    assert float(unit["TimeoutStopSec"]) > least


def test_a_child_that_is_out_of_memory_does_not_stop_the_consumer():
    assert settings(UNITS["overnight-consumer"])["OOMPolicy"] == "continue"
