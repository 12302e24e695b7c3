"""No password is ever shown, however broken the address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight_common.addresses import redact


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://user:secret@host:5672/vhost", "amqp://user:***@host:5672/vhost"),
        ("amqps://user:secret@host", "amqps://user:***@host"),
        ("amqp://user:s/e?c#r@e:t@host:5672/%2F", "amqp://user:***@host:5672/%2F"),
        ("amqp://:secret@host", "amqp://:***@host"),
        ("amqp://user@host/vhost", "amqp://user@host/vhost"),
        ("amqp://host:5672/vhost?heartbeat=30", "amqp://host:5672/vhost?heartbeat=30"),
        ("amqp://host", "amqp://host"),
        ("amqp://[::1]:5672/", "amqp://[::1]:5672/"),
        ("amqp://user:secret@[::1]:5672/", "amqp://user:***@[::1]:5672/"),
        ("amqp://user:secret", "amqp://user:***"),
        ("amqp://user:5secret/vhost", "amqp://user:***"),
        ("amqp://h/v?password=a&x=1&PassWd=b&p%61ss=c", "amqp://h/v?password=***&x=1&PassWd=***&p%61ss=***"),
        ("amqp://h/?password=a@b", "amqp://h/?password=***"),
        ("user:secret@host", "user:***@host"),
        ("amqp:/user:secret@host", "amqp:***@host"),
        ("embedded:/tmp/farm", "embedded:/tmp/farm"),
        ("./farm", "./farm"),
        ("", ""),
    ],
)
def test_passwords_are_hidden_and_the_rest_is_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


@given(
    before=st.text(max_size=8), after=st.text(max_size=8), place=st.text(max_size=12), slashes=st.booleans()
)
def test_a_password_never_gets_through(before: str, after: str, place: str, slashes: bool) -> None:
    url = f"amqp:{'//' if slashes else ''}user:{before}CORRECTHORSE{after}@host{place}"
    assert "CORRECTHORSE" not in redact(url)
