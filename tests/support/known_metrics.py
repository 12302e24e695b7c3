"""Name every metric that a dashboard or an alert may ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight_consumer.metrics import FAMILIES as OF_CONSUMER
from overnight_producer.metrics import FAMILIES as OF_PRODUCER

if TYPE_CHECKING:
    from overnight_common.metrics import Family

# RabbitMQ's own names from 3.10 to 4.3; test_prometheus_farm.py asks a real server for each.
OF_RABBITMQ = {
    "rabbitmq_detailed_queue_messages_ready",
    "rabbitmq_detailed_queue_messages_unacked",
    "rabbitmq_detailed_queue_consumers",
    "rabbitmq_global_messages_received_total",
    "rabbitmq_global_messages_delivered_total",
    "rabbitmq_global_messages_redelivered_total",
    "rabbitmq_global_messages_acknowledged_total",
    "rabbitmq_global_messages_unroutable_returned_total",
    "rabbitmq_global_messages_unroutable_dropped_total",
    "rabbitmq_connections",
    "rabbitmq_resident_memory_limit_bytes",
    "rabbitmq_process_resident_memory_bytes",
    "rabbitmq_disk_space_available_bytes",
    "rabbitmq_disk_space_available_limit_bytes",
    "rabbitmq_alarms_memory_used_watermark",
    "rabbitmq_alarms_free_disk_space_watermark",
}


def names_of(family: Family) -> set[str]:
    """Return the names of its series."""
    if family.kind == "histogram":
        return {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
    return {family.name}


OURS = {name for family in (*OF_CONSUMER, *OF_PRODUCER) for name in names_of(family)}
OF_PROMETHEUS = {"up", "ALERTS"}  # whether a target answered, and what has fired
KNOWN = OURS | OF_RABBITMQ | OF_PROMETHEUS
