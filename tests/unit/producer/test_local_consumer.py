"""The consumer that a run starts for itself."""

import asyncio

import pytest

from overnight_producer.local_consumer import ConsumerGoneError, LocalConsumer


def test_where_the_system_starts_no_process_the_run_is_told_at_once(monkeypatch):
    async def refuse(*_words, **_settings):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    consumer = LocalConsumer([], {}, lambda: 0, print)
    with pytest.raises(ConsumerGoneError, match="no consumer can be started here"):
        asyncio.run(consumer.keep_running())
