"""Let no time pass where the tests step through what happens by hand."""

import pytest

from overnight_consumer import outbox


@pytest.fixture(autouse=True)
def _replies_leave_at_once(monkeypatch):
    monkeypatch.setattr(outbox, "GATHER_SECONDS", 0.0)
