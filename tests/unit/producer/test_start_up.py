"""A short command imports only what it needs: somebody waits for it."""

import subprocess
import sys

import pytest

HEAVY = ("numpy", "rich", "asyncio", "sqlite3", "pika", "prometheus_client")
LOOK = f"""
import sys
from overnight_producer.cli import main
sys.argv = ["overnight", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(end.code, *(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["--help"], ""),
        (["run", "--help"], ""),
        (["status"], "rich sqlite3"),
        (["status", "--json"], "rich sqlite3"),
        (["queues"], "rich asyncio sqlite3"),
    ],
)
def test_a_short_command_imports_only_what_it_needs(tmp_path, arguments, needed):
    done = subprocess.run(
        [sys.executable, "-c", LOOK, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr.split() == ["0", *needed.split()]
