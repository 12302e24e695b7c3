"""Tell on what kind of file system a path lies, and refuse what SQLite must not share: a network's.

In WAL mode the processes that use a file keep its index in shared memory. Two machines that open it over a network
share have two of them, and spoil the file without a word. So such a place is refused even for one machine alone.
Not refused are folders that a virtual machine gets from its host (9p, virtiofs, vboxsf): they are often a machine's
only disk, and where they cannot share memory SQLite itself says so.
"""

from __future__ import annotations

import re
from pathlib import Path

from overnight_common.errors import BadInputError

MOUNTS = Path("/proc/self/mountinfo")
NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "davfs"),
        *("ceph", "lustre", "gpfs", "beegfs", "glusterfs", "orangefs", "pvfs2", "panfs"),
        *("fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.goofys", "fuse.gcsfuse", "fuse.mount-s3"),
        *("fuse.blobfuse", "fuse.blobfuse2", "fuse.juicefs", "fuse.glusterfs", "fuse.ceph-fuse"),
        *("fuse.ceph", "fuse.mfs", "fuse.smbnetfs", "fuse.curlftpfs", "fuse.gvfsd-fuse"),
    }
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


def refuse_network_share(path: Path) -> None:
    """Look whether a file may lie at `path`; where the system does not tell (macOS), it may.

    Raises:
        BadInputError: it would be on a network share.
    """
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    kind = file_system_of(path.absolute().resolve(), mounts)
    if kind in NETWORK:
        raise BadInputError(
            f"{path} is on a network share ({kind}): two machines that open it would spoil it without a word; "
            "give a folder on a local disk with --home (OVERNIGHT_HOME). Data and --output may be on the share"
        )


def file_system_of(path: Path, mounts: str) -> str:
    r"""Return the type of the file system that holds an absolute path without symbolic links; empty if unknown.

    Args:
        path: need not exist.
        mounts: the text of /proc/self/mountinfo; a space in a name is written `\040` there.
    """
    longest, kind = -1, ""
    for line in mounts.splitlines():
        place, _, source = line.partition(" - ")
        fields, types = place.split(" "), source.split(" ")
        if len(fields) < 5 or not types[0]:
            continue
        mount = Path(_ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4]))
        # Of two at the same place the later one hides the other.
        if len(mount.parts) >= longest and path.is_relative_to(mount):
            longest, kind = len(mount.parts), types[0]
    return kind
