"""Fingerprints: the same everywhere for the same code; a change in what runs changes it, and nothing else."""

import os
import shutil
import subprocess
import sys

import pytest

from overnight_common.errors import MethodUnavailableError
from overnight_common.fingerprints import command_fingerprint, method_fingerprint
from overnight_common.modules import find_module


def write(folder, **files):
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    write(
        folder,
        slow="import numpy\nfrom lib import maths as m, f\ndef run(x):\n    import lazy\n    return x",
        lazy="import json",
        lib__init="",
        lib__maths="from . import deep\nfrom .sub.more import g",
        lib__deep="import lib.deeper",
        lib__deeper="import slow",
        lib__sub__init="",
        lib__sub__more="from ...nowhere import x\nfrom ..cousin import y\nfrom .sibling import *",
        lib__sub__sibling="",
        lib__cousin="",
        lib__unused="",
        other="",
    )
    for package in ("lib", "lib/sub"):
        (folder / package / "init.py").rename(folder / package / "__init__.py")
    return folder


USED = ["slow", "lazy", "lib/__init__", "lib/maths", "lib/deep", "lib/deeper", "lib/sub/__init__"]
USED += ["lib/sub/more", "lib/sub/sibling", "lib/cousin"]


@pytest.mark.parametrize("name", USED)
def test_a_change_in_any_module_that_is_used_changes_the_fingerprint(source, name):
    before = method_fingerprint("slow", source)
    with (source / f"{name}.py").open("a") as file:
        file.write("\nx = 1\n")

    assert method_fingerprint("slow", source) != before


@pytest.mark.parametrize("name", ["lib/unused", "other"])
def test_a_change_in_a_module_that_is_not_used_changes_nothing(source, name):
    before = method_fingerprint("slow", source)
    (source / f"{name}.py").write_text("x = 1")

    assert method_fingerprint("slow", source) == before


def test_another_folder_and_another_time_change_nothing(source, tmp_path):
    before = method_fingerprint("slow", source)
    elsewhere = tmp_path / "else" / "where"
    shutil.copytree(source, elsewhere)
    for path in elsewhere.rglob("*.py"):
        os.utime(path, (1, 1))

    assert method_fingerprint("slow", elsewhere) == before


def test_two_modules_with_the_same_text_have_different_fingerprints(source):
    write(source, one="x = 1", two="x = 1")

    assert method_fingerprint("one", source) != method_fingerprint("two", source)


def test_a_module_that_comes_into_being_changes_the_fingerprint(source):
    write(source, user="import late")
    before = method_fingerprint("user", source)
    write(source, late="")

    assert method_fingerprint("user", source) != before


def test_nothing_is_imported_and_a_module_that_cannot_be_parsed_has_a_fingerprint_too(source):
    write(
        source, loud="raise SystemExit('imported')", broken="import other\ndef (:", user="import loud, broken"
    )

    assert method_fingerprint("user", source)
    assert not {"loud", "broken", "user", "slow"} & set(sys.modules)


def test_a_warning_about_the_users_code_does_not_hide_what_it_imports(source):
    write(source, user="import other\npattern = '\\d'")
    before = method_fingerprint("user", source)
    write(source, other="x = 1")

    assert method_fingerprint("user", source) != before


def test_a_package_without_init_and_a_package_itself_have_fingerprints(source):
    write(source, space__part="import other")
    before = method_fingerprint("space.part", source)
    write(source, other="x = 1")

    assert method_fingerprint("space.part", source) != before
    assert method_fingerprint("lib", source)


def test_a_missing_module_is_named(source):
    with pytest.raises(MethodUnavailableError, match=r"no module 'absent\.deep'") as caught:
        method_fingerprint("absent.deep", source)
    assert caught.value.missing_module == "absent.deep"


def test_of_an_installed_package_its_own_modules_count_whatever_the_source_folder_is(tmp_path, source):
    installed = tmp_path / "installed"
    write(installed, pack__part="import pack.other, neighbour", pack__other="", neighbour="")
    (installed / "pack" / "__init__.py").write_text("")

    def fingerprint(folder):
        code = f"""if True:
            import sys; sys.path.append({str(installed)!r})
            from pathlib import Path
            from overnight_common.fingerprints import method_fingerprint
            print(method_fingerprint("pack.part", Path({str(folder)!r})), "pack" in sys.modules)
        """
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    before = fingerprint(source)
    assert before.endswith("False\n")
    assert fingerprint(tmp_path) == before
    (installed / "neighbour.py").write_text("x = 1")
    assert fingerprint(source) == before
    (installed / "pack" / "other.py").write_text("x = 1")
    assert fingerprint(source) != before


def test_modules_are_found_in_the_source_folder_first(source):
    write(source, json="mine = True")

    assert find_module("json", source).path == source / "json.py"
    assert find_module("json.decoder", source).path.name == "decoder.py"
    assert find_module("time", source).path is None
    assert find_module("lib.sub.more", source).path == source / "lib/sub/more.py"
    for name in ("absent", "lib.absent", "lib/deep", "..lib", ""):
        assert find_module(name, source) is None


def test_the_fingerprint_of_a_command_changes_with_its_text_and_the_files_it_names(tmp_path):
    (tmp_path / "job one.py").write_text("print(1)")
    (tmp_path / "big.bin").write_bytes(bytes(3_000_000))
    (tmp_path / "folder").mkdir()
    command = f"python 'job one.py' --weights {tmp_path}/big.bin folder absent \0"
    first = command_fingerprint(command, tmp_path)
    assert command_fingerprint(command, tmp_path) == first
    assert command_fingerprint(command + " -v", tmp_path) != first

    (tmp_path / "job one.py").write_text("print(2)")
    second = command_fingerprint(command, tmp_path)
    with (tmp_path / "big.bin").open("ab") as file:
        file.write(b"x")
    third = command_fingerprint(command, tmp_path)
    (tmp_path / "folder" / "x").write_text("")

    assert len({first, second, third}) == 3
    assert command_fingerprint(command, tmp_path) == third


@pytest.mark.parametrize("command", ["", "echo 'open quote", "\ud800", "a" * 100_000, "cat ~"])
def test_any_command_has_a_fingerprint(command, tmp_path):
    assert command_fingerprint(command, tmp_path) == command_fingerprint(command, tmp_path)
