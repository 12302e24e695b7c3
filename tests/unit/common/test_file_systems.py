"""Network shares are found in the kernel's list of mounts, and only they."""

from pathlib import Path

import pytest

from overnight_common import file_systems
from overnight_common.errors import BadInputError
from overnight_common.file_systems import NETWORK, file_system_of, refuse_network_share

MOUNTS = r"""22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:20 / /proc rw,nosuid - proc proc rw
30 22 0:41 / /home rw,relatime shared:9 master:3 - nfs4 filer:/export/home rw,vers=4.2,addr=10.0.0.7
31 30 254:1 /var/scratch /home/ann/scratch rw,relatime shared:1 - ext4 /dev/vda1 rw
32 22 0:50 / /mnt/my\040share rw - cifs //nas/my\040share rw,vers=3.1.1
33 22 0:51 / /mnt/tab\011and\134slash rw - fuse.sshfs ann@far:/ rw,user_id=1000
34 22 0:52 / /data rw - ext4 /dev/vdb rw
35 22 0:53 / /data rw - lustre 10.0.0.9@tcp:/scratch rw
36 22 0:54 /pool/bind /srv rw - nfs filer:/export rw
37 22 0:55 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw,lowerdir=/nfs
38 22 0:56 / /shared rw - 9p host_share rw,trans=virtio
39 22 0:57 / /vm rw - virtiofs tag rw
40 22 0:58 / /tmp rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/var/jobs/x", "ext4"),
        ("/home", "nfs4"),
        ("/home/ann/.overnight/broker.sqlite", "nfs4"),
        ("/homeless/ann", "ext4"),  # begins alike and is another folder
        ("/home/ann/scratch/deep/down", "ext4"),  # the longest fitting mount counts
        ("/mnt/my share/x", "cifs"),
        ("/mnt/my", "ext4"),
        ("/mnt/tab\tand\\slash/x", "fuse.sshfs"),
        ("/data/x", "lustre"),  # the later mount hides the earlier one
        ("/srv/jobs", "nfs"),  # a part of a share is the share
        ("/var/lib/docker/overlay2/x/merged/home", "overlay"),
        ("/shared/x", "9p"),
        ("/vm/x", "virtiofs"),
        ("/tmp/x", "tmpfs"),
    ],
)
def test_the_file_system_is_that_of_the_last_and_longest_mount_that_fits(path, kind):
    assert file_system_of(Path(path), MOUNTS) == kind


@pytest.mark.parametrize("mounts", ["", "\n", "garbage", "1 2 3 4 - ext4", "1 2 3:4 / / rw", "a b c d /  - "])
def test_a_list_of_mounts_that_tells_nothing_refuses_nothing(mounts):
    assert file_system_of(Path("/x"), mounts) == ""


def test_local_disks_of_every_kind_are_no_network():
    local = {"ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuse.fuse-overlayfs", "fuseblk", "apfs"}
    of_virtual_machines = {"9p", "virtiofs", "vboxsf", "fuse.grpcfuse"}
    assert not NETWORK & (local | of_virtual_machines)


def test_a_place_on_a_share_is_refused_with_its_type_and_the_way_out(tmp_path, monkeypatch):
    share = tmp_path / "a share"
    share.mkdir()
    (tmp_path / "link").symlink_to(share)
    mounts = tmp_path / "mounts"
    escaped = str(share).replace(" ", "\\040")
    mounts.write_text(f"1 1 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / {escaped} rw - nfs4 filer:/x rw\n")
    monkeypatch.setattr(file_systems, "MOUNTS", mounts)
    refuse_network_share(tmp_path / "job.sqlite")
    for path in (share / "jobs" / "job.sqlite", tmp_path / "link" / "job.sqlite"):
        with pytest.raises(BadInputError, match=r"network share \(nfs4\).*--home"):
            refuse_network_share(path)


def test_where_the_system_has_no_list_of_mounts_nothing_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(file_systems, "MOUNTS", tmp_path / "nothing")
    refuse_network_share(tmp_path / "job.sqlite")
