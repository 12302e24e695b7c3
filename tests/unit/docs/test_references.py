"""What the documents name is there: files, headings, tests, commands."""

import re

import pytest
import typer.main

from overnight_producer.cli import app
from support.markdown import ROOT, blocks, code, document, documents, tables

DOCUMENTS = documents()
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_IN_CODE = re.compile(r"`[^`]*`")
_TOP_FOLDERS = ("common/", "producer/", "consumer/", "tests/", "docs/", "data/", "deploy/")
_SCRIPT = re.compile(r"\w+\.py")
_COMMAND = re.compile(r"^overnight ([a-z]+)", re.MULTILINE)


def anchors(text):
    """Return the anchors that GitHub gives to the headings of a text."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_somewhere(name):
    path = ROOT / name
    for link in _LINK.findall(_IN_CODE.sub("", document(name))):
        if not link.startswith(("http://", "https://", "mailto:")):
            file, _, anchor = link.partition("#")
            target = (path.parent / file) if file else path
            assert target.exists(), f"{name} links to {link}"
            if anchor:
                assert anchor in anchors(target.read_text(encoding="utf-8")), f"{name} links to {link}"


@pytest.mark.parametrize("name", NAMES)
def test_every_path_in_code_marks_exists(name):
    for word in code(document(name)):
        if word.startswith(_TOP_FOLDERS) and re.fullmatch(r"[\w./-]+", word):
            assert (ROOT / word).exists(), f"{name} names {word}"


@pytest.mark.parametrize("name", NAMES)
def test_every_file_of_code_that_is_named_exists(name):
    known = {path.name for folder in _TOP_FOLDERS for path in (ROOT / folder).rglob("*.py")}
    made_by_the_reader = {word for block in blocks(document(name)) for word in _SCRIPT.findall(block.text)}
    named = {word for word in code(document(name)) if _SCRIPT.fullmatch(word)}
    assert named <= known | made_by_the_reader, f"{name} names {named - known}"


@pytest.mark.parametrize("name", NAMES)
def test_every_test_that_is_named_exists(name):
    known = set()
    for file in ROOT.glob("tests/**/*.py"):
        known.add(file.stem)
        known.update(re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8")))
    named = {word for word in code(document(name)) if re.fullmatch(r"test_\w+", word)}
    assert named <= known, f"{name} names tests that are not there"


@pytest.mark.parametrize("name", NAMES)
def test_every_command_that_is_shown_exists(name):
    commands = typer.main.get_command(app).commands
    text = document(name)
    shown = [word for span in code(text) for word in _COMMAND.findall(span)]
    shown += [word for block in blocks(text) for word in _COMMAND.findall(block.text)]
    assert set(shown) <= set(commands), f"{name} shows {set(shown) - set(commands)}"


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_whole(name):
    for rows in tables(document(name)):
        assert rows, f"{name} has a table without rows"
