"""The kernel's counter of kills for want of memory."""

from overnight_consumer.kernel_kills import KernelKills, counter_file

V2_EVENTS = "low 0\nhigh 0\nmax 12\noom 3\noom_kill {}\noom_group_kill 0\n"


def in_container(tmp_path, kills=0):
    write(tmp_path / "proc/self/cgroup", "0::/app\n")
    write(tmp_path / "proc/vmstat", "nr_free_pages 1\noom_kill 900\n")
    write(tmp_path / "sys/fs/cgroup/app/memory.events", V2_EVENTS.format(kills))
    return tmp_path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_one_kill_explains_one_death(tmp_path):
    kills = KernelKills(in_container(tmp_path, 2))
    before = kills.count
    assert not kills.explain(before)
    in_container(tmp_path, 3)
    assert kills.explain(before)
    assert not kills.explain(before)
    in_container(tmp_path, 5)
    assert [kills.explain(before) for _ in range(3)] == [True, True, False]


def test_a_kill_from_before_a_task_does_not_explain_its_death(tmp_path):
    kills = KernelKills(in_container(tmp_path, 2))
    in_container(tmp_path, 3)
    since = kills.look()
    assert not kills.explain(since)


def test_the_container_is_asked_before_the_machine(tmp_path):
    assert counter_file(in_container(tmp_path)) == tmp_path / "sys/fs/cgroup/app/memory.events"


def test_version_1_counts_elsewhere(tmp_path):
    write(tmp_path / "proc/self/cgroup", "4:memory:/docker/ab\n")
    control = tmp_path / "sys/fs/cgroup/memory/memory.oom_control"
    write(control, "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n")
    assert KernelKills(tmp_path).count == 7
    assert counter_file(tmp_path) == control


def test_without_a_control_group_the_machine_counts(tmp_path):
    write(tmp_path / "proc/vmstat", "nr_free_pages 1\noom_kill 900\n")
    assert KernelKills(tmp_path).count == 900


def test_where_nobody_counts_nothing_is_explained(tmp_path):
    kills = KernelKills(tmp_path)
    assert (kills.count, kills.explain(0)) == (0, False)
