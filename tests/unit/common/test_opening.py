"""An address opens the broker that it means, or is refused with what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from overnight_common.brokers.embedded import EmbeddedBroker
from overnight_common.brokers.opening import given_address, open_broker
from overnight_common.errors import BadInputError


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        (None, "home"),
        ("", "home"),
        ("embedded:", "home"),
        ("embedded:/srv/farm", "/srv/farm"),
        ("/srv/farm", "/srv/farm"),
        ("./farm", "farm"),
    ],
)
def test_no_address_a_folder_and_embedded_mean_the_broker_without_a_server(
    url: str | None, folder: str
) -> None:
    broker = open_broker(url, Path("home"), max_message_bytes=1000)
    assert isinstance(broker, EmbeddedBroker)
    assert broker.address == f"embedded:{Path(folder) / 'broker.sqlite'}"


@pytest.mark.parametrize("url", ["amqp://user:pw@host/v", "amqps://host:5671"])
def test_amqp_means_rabbitmq_and_does_not_connect_yet(url: str) -> None:
    broker = open_broker(url, Path("home"), max_message_bytes=1000)
    assert type(broker).__name__ == "RabbitMQBroker"
    assert "pw" not in broker.address


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:hidden@host",
        "amqp:/user:hidden@host",
        "rabbit",
        "user:hidden@host:5672",
        "amqp://",
        "amqp:///vhost",
        "amqp://user:hidden@",
        "amqp://user:hidden@host:port/",
        "amqp://user:hidden@host:99999/",
        "amqp://user:hidden@host:0/",
        "amqp://user:hidden@[::1/",
        "amqp://user:hidden/more@host/vhost",
        "amqp://user:hidden@host/v/w",
        "amqp://user-without-password@host/v",
        "http://host",
    ],
)
def test_any_other_address_is_refused_with_the_known_kinds_and_without_its_password(url: str) -> None:
    with pytest.raises(BadInputError) as caught:
        open_broker(url, Path("home"), max_message_bytes=1000)
    assert "amqp://USER:PASSWORD@HOST" in str(caught.value)
    assert "embedded:" in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_address_in_a_file_is_used_like_one_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("amqp://user:pw@host/v\n")
    assert given_address("", file) == "amqp://user:pw@host/v"
    assert given_address("amqp://other", None) == "amqp://other"
    assert given_address("", None) is None


def test_two_addresses_are_refused_without_showing_either(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("amqp://user:pw@host/v\n")
    with pytest.raises(BadInputError, match="keep one") as caught:
        given_address("amqp://user:other@host", file)
    assert "pw" not in str(caught.value)
    assert "other@" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"amqp://one\namqp://user:pw@two\n", b"\xff\xfe"])
def test_a_file_without_just_one_address_is_refused_without_showing_it(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "url"
    file.write_bytes(content)
    with pytest.raises(BadInputError, match="--broker-file") as caught:
        given_address("", file)
    assert "pw" not in str(caught.value)


def test_a_missing_file_for_the_address_is_said_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="missing cannot be read: No such file"):
        given_address("", tmp_path / "missing")
