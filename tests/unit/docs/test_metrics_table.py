"""The metric tables in docs/operations.md name what the two services really show."""

from overnight_common.metrics import COMMON_FAMILIES
from overnight_consumer.metrics import FAMILIES as OF_CONSUMER
from overnight_consumer.metrics import ConsumerMetrics
from overnight_producer.metrics import FAMILIES as OF_PRODUCER
from overnight_producer.metrics import JOB_POINTS, JOB_STATES, SERVICE_JOBS, ProducerMetrics
from overnight_producer.serving import JOB_STATES as SERVICE_STATES
from support.consumer_settings import settings_of
from support.markdown import code, document, table

OPERATIONS = document("docs/operations.md")
# What these labels say depends on the consumer's settings or on the jobs.
NOT_LISTED = ("queue", "method", "slot", "job_id", "gpu", "device", "service", "version", "python")


def of(family):
    if family in COMMON_FAMILIES:
        return "both"
    return "consumer" if family in OF_CONSUMER else "producer"


def test_the_table_names_every_metric_as_it_is_and_no_other():
    rows = table(OPERATIONS, "All metrics")
    in_table = [
        (*code(row["metric"]), row["type"], tuple(code(row["labels"])), row["of"], row["meaning"])
        for row in rows
    ]
    in_code = [
        (each.name, each.kind, each.labels, of(each), each.help)
        for each in dict.fromkeys((*COMMON_FAMILIES, *OF_CONSUMER, *OF_PRODUCER))
    ]
    assert in_table == in_code


def test_names_follow_the_rules_of_prometheus():
    for family in (*OF_CONSUMER, *OF_PRODUCER):
        assert family.name.startswith("overnight_")
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name
        assert (family.kind == "histogram") == bool(family.bounds), family.name
        assert family.help.endswith("."), family.name


def test_a_service_shows_no_metric_that_it_does_not_list():
    for metrics, families in (
        (ConsumerMetrics(settings_of()), OF_CONSUMER),
        (ProducerMetrics(), OF_PRODUCER),
    ):
        assert {reading.family for reading in metrics.read()} <= set(families)


def test_the_values_of_labels_are_those_that_begin_at_zero():
    in_table = {
        (*code(row["metric"]), *code(row["label"])): code(row["values"])
        for row in table(OPERATIONS, "Values of labels")
    }
    in_code = {
        (JOB_POINTS.name, "state"): list(JOB_STATES),
        (SERVICE_JOBS.name, "state"): list(SERVICE_STATES),
    }
    for reading in (*ConsumerMetrics(settings_of()).read(), *ProducerMetrics().read()):
        for place, label in enumerate(reading.family.labels):
            if label not in NOT_LISTED and reading.values:
                seen = [labels[place] for labels in reading.values]
                in_code[reading.family.name, label] = list(dict.fromkeys(seen))
    assert in_table == in_code
