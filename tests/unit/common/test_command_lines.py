"""What is run for the text of a command."""

import pytest

from overnight_common.command_lines import command_fault, command_line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python job.py 'a b'", ["python", "job.py", "a b"]),
        ("a | b", ["/bin/sh", "-c", "a | b"]),
        ("X=1 a", ["/bin/sh", "-c", "X=1 a"]),
        ("a --x=1", ["a", "--x=1"]),
    ],
)
def test_a_command_gets_a_shell_only_if_it_asks_for_one(text, words):
    assert command_line(text) == words


@pytest.mark.parametrize(
    "text", ["sh job.sh", "./here.sh 1", "true", "nobody-has-this | true", "X=1 nobody-has-this"]
)
def test_a_program_that_is_here_or_a_shell_s_own_business_is_no_fault(tmp_path, text):
    program = tmp_path / "here.sh"
    program.touch(mode=0o755)
    assert command_fault(text, tmp_path) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pyhton job.py", "no program 'pyhton'"),
        ("./gone.sh", "no program './gone.sh'"),
        ("./plain.txt", "may not be executed"),
        ("sh 'job.sh", "No closing quotation"),
    ],
)
def test_a_command_that_cannot_be_run_here_is_told(tmp_path, text, words):
    (tmp_path / "plain.txt").touch(mode=0o644)
    fault = command_fault(text, tmp_path)
    assert fault is not None
    assert words in fault
