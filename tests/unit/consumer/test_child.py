"""A child whose parent closes the socket: that is its end, and no fault to be told."""

import os
import select
import socket
import subprocess
import sys

import pytest

from overnight_consumer.frames import Setup, pack


@pytest.mark.parametrize("ready_first", [False, True])
def test_a_child_that_is_no_longer_wanted_ends_without_a_word(tmp_path, ready_first):
    """Before it is ready its word finds no reader; after that, its unread word resets the link."""
    ours, its = socket.socketpair()
    setup = Setup((), ("true",), False, str(tmp_path), "cpu", "desk", 1, 1, 1 << 20, str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "overnight_consumer.child", str(its.fileno()), str(os.getpid())],
        pass_fds=[its.fileno()],
        stderr=subprocess.PIPE,
    ) as child:
        its.close()
        ours.sendall(pack(setup))
        if ready_first:
            assert select.select([ours], [], [], 60)[0]
        ours.close()
        _, said = child.communicate(timeout=60)
    assert (child.returncode, said) == (0, b"")
