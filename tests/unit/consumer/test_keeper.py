"""The keeper's side in the parent, when the keeper itself comes to harm."""

from overnight_consumer.keeper import Keeper


def test_a_keeper_that_was_killed_is_missed_at_the_next_look(tmp_path):
    keeper = Keeper(str(tmp_path / "scratch"))
    killed = keeper._process
    killed.kill()
    killed.wait()
    keeper.look()
    assert keeper._process is not killed
    assert keeper._process.poll() is None
    keeper.close()


def test_a_keeper_that_was_killed_is_started_again_as_soon_as_the_system_lets_us(tmp_path, monkeypatch):
    keeper = Keeper(str(tmp_path / "scratch"))
    killed, start = keeper._process, keeper._start
    killed.kill()
    killed.wait()

    def no_more_processes():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(keeper, "_start", no_more_processes)
    keeper.add(2**30 + 1)
    monkeypatch.setattr(keeper, "_start", start)
    keeper.remove(2**30 + 1)
    assert keeper._process.poll() is None
    keeper.close()
    assert keeper._process.returncode == 0
