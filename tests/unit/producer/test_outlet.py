import io
import os
import subprocess
import sys

from overnight_producer.views.outlet import Outlet

TALKS_AFTER_THE_READER_LEFT = """
import sys
from overnight_producer.views.outlet import Outlet
outlet = Outlet(sys.stdout)
outlet.line("first")
sys.stdin.read()  # until the reader has gone
for _ in range(3):
    outlet.line("more")
sys.exit(0 if outlet.gone else 9)
"""


def test_a_closed_pipe_ends_the_output_and_nothing_else():
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        outlet = Outlet(stream)
        outlet.line("before")
        os.close(reading)
        outlet.line("after")
        assert outlet.gone
        outlet.line("much later")


def test_a_reader_that_left_does_not_spoil_the_exit_status():
    with subprocess.Popen(
        [sys.executable, "-c", TALKS_AFTER_THE_READER_LEFT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"first\n"
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_letters_that_the_stream_lacks_become_question_marks():
    raw = io.BytesIO()
    outlet = Outlet(io.TextIOWrapper(raw, encoding="ascii"))
    outlet.line("Größe \udcff")
    assert raw.getvalue() == b"Gr??e ?\n"
    assert not outlet.gone


def test_a_stream_that_was_closed_is_no_terminal_and_no_trouble():
    stream = io.StringIO()
    outlet = Outlet(stream)
    stream.close()
    assert not outlet.isatty()
    outlet.line("nothing")
    assert outlet.gone
