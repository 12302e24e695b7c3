"""Read from rabbitmq_prometheus how many messages of a queue are un-acked; AMQP itself does not tell."""

from __future__ import annotations

import re
import urllib.error
import urllib.parse
import urllib.request

_FAMILY = "queue_coarse_metrics"
_LINE = re.compile(r"^rabbitmq_detailed_queue_messages_unacked\{(?P<labels>.*)\} (?P<value>[0-9.e+]+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def parse_unacked(text: str, vhost: str, queue: str) -> int | None:
    """Return the figure for one queue out of the exposition text, or None if it is not there."""
    for line in text.splitlines():
        if found := _LINE.match(line):
            labels = dict(_LABEL.findall(found["labels"]))
            if labels.get("queue") == queue and labels.get("vhost") == vhost:
                return int(float(found["value"]))
    return None


def read_unacked(metrics_url: str, vhost: str, queue: str, timeout_seconds: float) -> int | None:
    """Ask the server; None if it does not answer or does not know the queue (yet: it is seconds behind).

    Blocks: call it in a thread.
    """
    query = urllib.parse.urlencode({"family": _FAMILY, "vhost": vhost})
    try:
        with urllib.request.urlopen(f"{metrics_url}?{query}", timeout=timeout_seconds) as answer:  # noqa: S310 - an operator's setting
            return parse_unacked(answer.read().decode(errors="replace"), vhost, queue)
    except (OSError, urllib.error.URLError, ValueError):
        return None
