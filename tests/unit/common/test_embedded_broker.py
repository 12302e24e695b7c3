"""The embedded broker's own promises: leases, old places, and what happens to its file."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from overnight_common.brokers import embedded
from overnight_common.brokers import embedded_tables as tables
from overnight_common.brokers.base import BrokerState, Depth, reply_queue, task_queue
from overnight_common.brokers.embedded import EmbeddedBroker
from overnight_common.brokers.owners import this_process
from overnight_common.errors import BrokerError, BrokerUnreachableError, RefusedError, UnroutableError
from support.broker_use import Inbox, Outcomes, linger, opened, put, until, until_async

TASKS = task_queue("default")
TESTS = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "not" / "there" / "yet" / "broker.sqlite"


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def change(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


def test_a_message_handed_back_returns_to_its_old_place_and_is_not_counted(path: Path) -> None:
    async def run() -> None:
        broker = EmbeddedBroker(path)
        async with opened(broker):
            await broker.declare(TASKS)
            await put(broker, TASKS, *numbered(6))
            inbox = Inbox(broker)
            subscription = await broker.subscribe(TASKS, 4, inbox, inbox.lost)
            await inbox.wait(4)
            subscription.set_prefetch(0)
            inbox.hand_back(inbox.held[3], inbox.held[1])
            inbox.ack()
            subscription.set_prefetch(10)
            await inbox.wait(8)
            assert inbox.bodies[4:] == [b"1", b"3", b"4", b"5"]
            assert {delivery.delivery_count for delivery in inbox.deliveries} == {0}

    asyncio.run(run())


def test_depth_tells_unacked_messages_and_consumers(path: Path) -> None:
    async def run() -> None:
        one, two = EmbeddedBroker(path), EmbeddedBroker(path)
        async with opened(one, two):
            await one.declare(TASKS)
            await put(one, TASKS, *numbered(6))
            inbox = Inbox(one)
            await one.subscribe(TASKS, 4, inbox, inbox.lost)
            await two.subscribe(TASKS, 0, inbox, inbox.lost)
            await inbox.wait(4)
            depth = await two.depth(TASKS)
            assert depth is not None
            assert (depth.ready, depth.unacked, depth.consumers) == (2, 4, 2)

    asyncio.run(run())


def test_after_a_lost_lease_the_work_is_elsewhere_and_a_late_ack_does_nothing(path: Path) -> None:
    async def run() -> None:
        silent = EmbeddedBroker(path, renew_seconds=3600)
        watcher = EmbeddedBroker(path, lease_seconds=0.6)
        async with opened(silent, watcher):
            await silent.declare(TASKS)
            await put(silent, TASKS, b"a", b"b")
            first, second = Inbox(silent), Inbox(watcher)
            subscription = await silent.subscribe(TASKS, 1, first, first.lost)
            (lost,) = await first.wait(1)
            await watcher.subscribe(TASKS, 2, second, second.lost)
            await second.wait(2)
            assert [(d.message.body, d.delivery_count) for d in second.deliveries] == [(b"b", 0), (b"a", 1)]
            silent.ack(lost)
            await until(lambda: first.losses == 1, "on_lost")
            await until(lambda: subscription.active, "a new subscription")
            depth = await watcher.depth(TASKS)
            assert depth is not None
            assert (depth.ready, depth.unacked) == (0, 2)
            second.ack()
            await put(watcher, TASKS, b"c")
            await until(lambda: len(first.deliveries) + len(second.deliveries) == 4, "the link works on")

    asyncio.run(run())


def test_what_comes_back_to_the_same_consumer_is_not_settled_by_its_old_delivery(path: Path) -> None:
    async def run() -> None:
        silent = EmbeddedBroker(path, renew_seconds=3600)
        watcher = EmbeddedBroker(path, lease_seconds=0.6)
        async with opened(silent, watcher):
            await silent.declare(TASKS)
            await put(silent, TASKS, b"a")
            inbox, nothing = Inbox(silent), Inbox(watcher)
            await silent.subscribe(TASKS, 1, inbox, inbox.lost)
            (old,) = await inbox.wait(1)
            await watcher.subscribe(TASKS, 0, nothing, nothing.lost)
            _, new = await inbox.wait(2)
            await watcher.close()
            assert (new.message.body, new.delivery_count) == (b"a", 1)
            silent.ack(old)
            silent.hand_back(old)
            depth = await silent.depth(TASKS)
            assert depth is not None
            assert (depth.ready, depth.unacked) == (0, 1)
            silent.ack(new)
            depth = await silent.depth(TASKS)
            assert depth is not None
            assert (depth.ready, depth.unacked) == (0, 0)

    asyncio.run(run())


def test_an_owner_that_renewed_its_lease_just_now_keeps_its_work(path: Path) -> None:
    path.parent.mkdir(parents=True)
    db = sqlite3.connect(path, isolation_level=None)
    tables.prepare(db, str(path))
    tables.declare(db, TASKS, 0.0)
    queue = tables.find_queue(db, TASKS)
    assert queue is not None
    tables.publish(db, [(queue, b"", b"a")])
    owner = tables.add_owner(db, this_process())
    assert len(tables.take(db, queue, owner, 1)) == 1
    ((_, beat, _),) = tables.owners(db)
    assert tables.beat(db, owner)
    tables.drop_owner(db, owner, beat, failed=True, now=0.0)
    assert tables.owner_exists(db, owner)
    assert tables.count(db, TASKS) == Depth(ready=0, unacked=1, consumers=0)
    tables.drop_owner(db, owner, beat + 1, failed=True, now=0.0)
    assert tables.count(db, TASKS) == Depth(ready=1, unacked=0, consumers=0)
    db.close()


def test_a_consumer_that_beats_keeps_its_lease(path: Path) -> None:
    async def run() -> None:
        beating = EmbeddedBroker(path, renew_seconds=0.1)
        watcher = EmbeddedBroker(path, lease_seconds=0.6)
        async with opened(beating, watcher):
            await beating.declare(TASKS)
            await put(beating, TASKS, b"a")
            first, second = Inbox(beating), Inbox(watcher)
            await beating.subscribe(TASKS, 1, first, first.lost)
            await first.wait(1)
            await watcher.subscribe(TASKS, 1, second, second.lost)
            await asyncio.sleep(2)
            assert second.deliveries == []
            assert first.losses == 0

    asyncio.run(run())


def _namespaces_work() -> bool:
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    return subprocess.run([unshare, "--pid", "--fork", "--mount-proc", "true"], check=False).returncode == 0


def test_for_a_consumer_in_another_process_id_namespace_only_the_lease_counts(path: Path) -> None:
    if not _namespaces_work():
        pytest.skip("this machine lets us make no process-id namespace")

    async def run() -> None:
        watcher = EmbeddedBroker(path, lease_seconds=3)
        async with opened(watcher):
            await watcher.declare(TASKS)
            await put(watcher, TASKS, b"a")
            call = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-m"]
            call += ["support.holding_consumer", f"embedded:{path.parent}", TASKS, "1", str(path.parent)]
            with subprocess.Popen(call, stdout=subprocess.PIPE, cwd=TESTS) as process:
                assert process.stdout is not None
                while await asyncio.to_thread(process.stdout.readline) != b"holding 1\n":
                    assert process.poll() is None
                process.kill()
            killed = time.monotonic()
            inbox = Inbox(watcher, ack=True)
            await watcher.subscribe(TASKS, 1, inbox, inbox.lost)
            await inbox.wait(1)
            assert time.monotonic() - killed > 2
            assert inbox.deliveries[0].delivery_count == 1

    asyncio.run(run())


def test_several_processes_may_make_the_file_at_once(path: Path) -> None:
    faults: list[BaseException] = []

    def use(number: int) -> None:
        async def run() -> None:
            broker = EmbeddedBroker(path)
            async with opened(broker):
                await broker.declare(TASKS)
                await put(broker, TASKS, *numbered(100))

        try:
            asyncio.run(run())
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []

    async def count() -> int:
        broker = EmbeddedBroker(path)
        async with opened(broker):
            depth = await broker.depth(TASKS)
            assert depth is not None
            return depth.ready

    assert asyncio.run(count()) == 400


def test_a_reply_queue_unused_for_fourteen_days_goes_and_no_other(path: Path) -> None:
    old, read, new = (reply_queue(job, 1) for job in ("old", "read", "new"))

    async def run() -> None:
        reader = EmbeddedBroker(path)
        async with opened(reader):
            for queue in (old, read, new, TASKS):
                await reader.declare(queue)
                await put(reader, queue, b"x")
            inbox = Inbox(reader)
            await reader.subscribe(read, 1, inbox, inbox.lost)
            limit = time.time() - 14 * 24 * 3600
            change(path, f"UPDATE queues SET used_at = {limit - 60}")
            change(path, f"UPDATE queues SET used_at = {limit + 600} WHERE name = '{new}'")
            late = EmbeddedBroker(path)
            async with opened(late):
                assert await late.depth(old) is None
                for queue in (read, new, TASKS):
                    assert await late.depth(queue) is not None

    asyncio.run(run())


# The file.


def test_a_file_that_is_no_database_is_refused_with_the_way_out(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"This is a letter to my aunt. " * 100)
    with pytest.raises(BrokerError, match=r"broker.sqlite is damaged .* move it away") as caught:
        asyncio.run(EmbeddedBroker(path).open(1))
    assert not isinstance(caught.value, BrokerUnreachableError)
    assert path.read_bytes().startswith(b"This is a letter")


def test_a_file_with_damaged_pages_is_refused_with_the_way_out(path: Path) -> None:
    async def use() -> None:
        broker = EmbeddedBroker(path)
        async with opened(broker):
            await broker.declare(TASKS)
            await put(broker, TASKS, *numbered(1000))

    asyncio.run(use())
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\x99" * (len(whole) - 4096))
    with pytest.raises(BrokerError, match="move it away"):
        asyncio.run(use())


def test_a_name_that_is_no_text_is_refused_or_not_there_and_harms_nothing(path: Path) -> None:
    async def run() -> None:
        broker, outcomes = EmbeddedBroker(path), Outcomes()
        async with opened(broker):
            with pytest.raises(BrokerError, match="name of a queue"):
                await broker.declare("overnight.tasks.\udcff")
            outcomes.publish(broker, "overnight.tasks.\udcff", b"x")
            assert isinstance((await outcomes.wait(1))[0], UnroutableError)
            assert await broker.depth("overnight.tasks.\udcff") is None
            await broker.delete("overnight.tasks.\udcff")
            await broker.declare(TASKS)
            await put(broker, TASKS, b"x")

    asyncio.run(run())


def test_a_strangers_database_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir(parents=True)
    change(path, "CREATE TABLE recipes (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(BrokerError, match="not a queue file of Overnight"):
        asyncio.run(EmbeddedBroker(path).open(1))
    assert path.read_bytes() == before


def test_a_file_of_another_version_is_refused_with_both_versions(path: Path) -> None:
    async def make() -> None:
        async with opened(EmbeddedBroker(path)):
            pass

    asyncio.run(make())
    change(path, "PRAGMA user_version = 99")
    with pytest.raises(BrokerError, match="version 99 and this Overnight needs version 1"):
        asyncio.run(EmbeddedBroker(path).open(1))


def test_a_folder_that_cannot_be_made_is_unreachable(path: Path) -> None:
    path.parents[2].write_text("a file where a folder should be")
    with pytest.raises(BrokerUnreachableError, match="cannot be opened"):
        asyncio.run(EmbeddedBroker(path).open(1))


def test_a_locked_file_is_waited_for_and_the_loop_stays_alive(path: Path) -> None:
    async def run() -> None:
        broker, late, outcomes = EmbeddedBroker(path), EmbeddedBroker(path), Outcomes()
        async with opened(broker):
            await broker.declare(TASKS)
            lock = sqlite3.connect(path, isolation_level=None)
            lock.execute("BEGIN EXCLUSIVE")
            outcomes.publish(broker, TASKS, b"patient")
            opening = asyncio.create_task(late.open(10))
            longest = 0.0
            for _ in range(30):
                started = time.monotonic()
                await asyncio.sleep(0.01)
                longest = max(longest, time.monotonic() - started)
            assert outcomes.errors == []
            assert not opening.done()
            assert longest < 0.25
            lock.execute("COMMIT")
            lock.close()
            assert await outcomes.wait(1) == [None]
            await opening
            await late.close()

    asyncio.run(run())


def test_a_file_locked_past_the_deadline_is_unreachable(path: Path) -> None:
    async def run() -> None:
        async with opened(EmbeddedBroker(path)):
            lock = sqlite3.connect(path, isolation_level=None)
            lock.execute("BEGIN EXCLUSIVE")
            try:
                with pytest.raises(BrokerUnreachableError, match="locked"):
                    await EmbeddedBroker(path).open(0.2)
            finally:
                lock.close()

    asyncio.run(run())


def test_while_the_disk_is_full_publishes_are_refused_and_acks_are_kept(path: Path) -> None:
    async def run() -> None:
        broker, outcomes, heard = EmbeddedBroker(path), Outcomes(), list[BrokerState]()
        broker.on_state(heard.append)
        async with opened(broker):
            await broker.declare(TASKS)
            await put(broker, TASKS, b"a", b"b")
            inbox = Inbox(broker)
            await broker.subscribe(TASKS, 2, inbox, inbox.lost)
            await inbox.wait(2)
            db = broker._db  # the limit is the connection's own, so that no disk has to be filled
            assert db is not None
            (pages,) = db.execute("PRAGMA page_count").fetchone()
            db.execute(f"PRAGMA max_page_count = {pages}")
            inbox.ack(inbox.held[0])
            outcomes.publish(broker, TASKS, bytes(1_000_000))
            (error,) = await outcomes.wait(1)
            assert isinstance(error, RefusedError)
            assert "full" in str(error)
            assert broker.state is BrokerState.BLOCKED
            assert inbox.losses == 0

            async def acked() -> bool:
                depth = await broker.depth(TASKS)
                return depth is not None and (depth.ready, depth.unacked) == (0, 1)

            await until_async(acked, "the ack that waited")
            db.execute("PRAGMA max_page_count = 1000000")
            await put(broker, TASKS, bytes(1_000_000))
            assert [state.value for state in heard] == ["connected", "blocked", "connected"]

    asyncio.run(run())


def test_what_is_published_by_who_hears_of_room_on_the_disk_is_written(path: Path) -> None:
    async def run() -> None:
        broker, outcomes = EmbeddedBroker(path), Outcomes()

        def go_on(state: BrokerState) -> None:
            if state is BrokerState.CONNECTED and outcomes.errors:
                outcomes.publish(broker, TASKS, b"kept back")

        broker.on_state(go_on)
        async with opened(broker):
            await broker.declare(TASKS)
            db = broker._db
            assert db is not None
            (pages,) = db.execute("PRAGMA page_count").fetchone()
            db.execute(f"PRAGMA max_page_count = {pages}")
            outcomes.publish(broker, TASKS, bytes(1_000_000))
            assert isinstance((await outcomes.wait(1))[0], RefusedError)
            db.execute("PRAGMA max_page_count = 1000000")
            assert (await outcomes.wait(2))[1] is None
            depth = await broker.depth(TASKS)
            assert depth is not None
            assert depth.ready == 1

    asyncio.run(run())


def test_a_disk_with_room_for_little_stays_full_until_there_is_room_for_what_was_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        broker, outcomes, heard = EmbeddedBroker(path), Outcomes(), list[BrokerState]()
        async with opened(broker):
            await broker.declare(TASKS)
            broker.on_state(heard.append)
            db = broker._db
            assert db is not None
            (pages,) = db.execute("PRAGMA page_count").fetchone()
            db.execute(f"PRAGMA max_page_count = {pages}")
            monkeypatch.setattr(embedded, "_free_bytes", lambda _path: 900_000)
            outcomes.publish(broker, TASKS, bytes(1_000_000))
            await outcomes.wait(1)
            db.execute("PRAGMA max_page_count = 1000000")
            await put(broker, TASKS, b"small")
            await asyncio.sleep(1.5)  # it has tried again
            assert heard == [BrokerState.BLOCKED]
            monkeypatch.setattr(embedded, "_free_bytes", lambda _path: 1_100_000)
            await until(lambda: broker.state is BrokerState.CONNECTED, "room again")
            assert heard == [BrokerState.BLOCKED, BrokerState.CONNECTED]

    asyncio.run(run())


def test_who_comes_back_to_a_new_file_takes_nobodys_work_away(path: Path) -> None:
    """Rows are counted from 1 in each file: the number that was ours may be another's now."""

    async def run() -> None:
        late, early = EmbeddedBroker(path), EmbeddedBroker(path)
        early._work._here = replace(this_process(), namespace="of a container")
        async with opened(late, early):
            await late.declare(TASKS)
            one, other = Inbox(late), Inbox(early)
            await late.subscribe(TASKS, 0, one, one.lost)
            await early.subscribe(TASKS, 1, other, other.lost)
            waiting, reopen = list[int | None](), late._reopen
            late._reopen = waiting.append  # type: ignore[method-assign]
            shutil.rmtree(path.parent)
            await until(lambda: len(waiting) == 1, "the loss is seen")
            await until(lambda: other.losses == 1 and early.state is BrokerState.CONNECTED, "a new file")
            await early.declare(TASKS)
            await put(early, TASKS, b"a")
            await other.wait(1)
            assert waiting == [early._work.owner]
            reopen(waiting[0])
            await linger(late, TASKS)
            assert other.losses == 1
            assert [delivery.delivery_count for delivery in other.deliveries] == [0]

    asyncio.run(run())


def test_a_file_removed_in_the_middle_is_told_and_made_anew(path: Path) -> None:
    async def run() -> None:
        broker, heard = EmbeddedBroker(path), list[BrokerState]()
        broker.on_state(heard.append)
        async with opened(broker):
            await broker.declare(TASKS)
            await put(broker, TASKS, b"a")
            inbox = Inbox(broker)
            subscription = await broker.subscribe(TASKS, 1, inbox, inbox.lost)
            (held,) = await inbox.wait(1)
            shutil.rmtree(path.parent)
            await until(lambda: BrokerState.DISCONNECTED in heard, "the loss is seen")
            assert inbox.losses == 1
            assert not subscription.active
            with pytest.raises(BrokerError, match="removed or replaced"):
                await broker.depth(TASKS)
            await until(lambda: broker.state is BrokerState.CONNECTED, "a new file")
            broker.ack(held)
            assert await broker.depth(TASKS) is None
            await broker.declare(TASKS)
            await put(broker, TASKS, b"b")
            await inbox.wait(2)
            await linger(broker, TASKS)
            assert inbox.bodies == [b"a", b"b"]

    asyncio.run(run())
