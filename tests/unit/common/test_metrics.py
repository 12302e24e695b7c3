import math
import socket
import threading
import urllib.error
import urllib.request

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from overnight_common.brokers.base import BrokerState, LossReason
from overnight_common.errors import BadInputError
from overnight_common.metrics import (
    ANSWER_BOUNDS,
    RUN_BOUNDS,
    WAIT_BOUNDS,
    BrokerFigures,
    Counter,
    Exposition,
    Family,
    Histogram,
    Reading,
    one,
    queue_label,
)
from overnight_common.metrics_server import Health, MetricsServer
from overnight_common.observing import shielded
from overnight_common.pulse import Pulse
from support.memory_broker import MemoryBroker

CALLS = Family("overnight_calls_total", "counter", "Calls.", ("kind",))
TIMES = Family("overnight_seconds", "histogram", "Times.", ("kind",), (0.1, 1.0))
SIZE = Family("overnight_size_bytes", "gauge", "Size.")
NASTY = 'a"b\\c\nd'


def get(url, accept="*/*"):
    """Return status, content type and text of a page."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def serve(read=list, live=lambda: "", ready=lambda: "", address="127.0.0.1", port=0):
    return MetricsServer(address, port, Exposition("tested", read), Health(live, ready))


def some_readings():
    calls = Counter(CALLS, [("good",)])
    calls.add((NASTY,))
    times = Histogram(TIMES)
    for seconds in (0.05, 0.1, 0.5, 7.0):
        times.observe(seconds, labels=("good",))
    return [calls.read(), times.read(), one(SIZE, 5.5)]


def test_counters_begin_at_zero_and_count_what_was_not_foreseen_too():
    counter = Counter(CALLS, [("good",), ("bad",)])
    counter.add(("good",))
    counter.add(("good",), 3)
    counter.add(("odd",))
    assert counter.read() == Reading(CALLS, {("good",): 4, ("bad",): 0, ("odd",): 1})


def test_a_reading_does_not_change_afterwards():
    counter, histogram = Counter(CALLS), Histogram(TIMES, [("good",)])
    before = counter.read(), histogram.read()
    counter.add(("good",))
    histogram.observe(1.0, labels=("good",))
    assert before[0].values == {}
    assert sum(before[1].values[("good",)].counts) == 0


@pytest.mark.parametrize(
    ("accept", "parse", "kind"),
    [
        ("*/*", parse_text, "text/plain"),
        ("application/openmetrics-text; version=1.0.0", parse_openmetrics, "application/openmetrics-text"),
    ],
)
def test_the_page_can_be_parsed_in_both_formats_and_says_what_was_counted(accept, parse, kind):
    with serve(some_readings) as server:
        status, content_type, text = get(server.url, accept)
    assert (status, content_type.split(";")[0]) == (200, kind)
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }
    assert samples[("overnight_calls_total", (("kind", NASTY),))] == 1
    assert samples[("overnight_calls_total", (("kind", "good"),))] == 0
    assert samples[("overnight_size_bytes", ())] == 5.5
    buckets = {
        le: samples[("overnight_seconds_bucket", (("kind", "good"), ("le", le)))] for le in ("0.1", "+Inf")
    }
    assert buckets == {"0.1": 2, "+Inf": 4}
    assert samples[("overnight_seconds_sum", (("kind", "good"),))] == pytest.approx(7.65)
    assert samples[("overnight_seconds_count", (("kind", "good"),))] == 4
    assert any(name == "overnight_build_info" for name, _ in samples)
    assert not any(name.endswith("_created") for name, _ in samples)


def test_a_metric_without_a_figure_is_absent():
    with serve(lambda: [one(SIZE, None)]) as server:
        assert "\novernight_size_bytes " not in get(server.url)[2]


def test_bounds_reach_from_a_millisecond_to_half_a_day():
    assert (RUN_BOUNDS[0], RUN_BOUNDS[-1], WAIT_BOUNDS[-1]) == (0.001, 12 * 3600, 12 * 3600)
    for bounds in (RUN_BOUNDS, WAIT_BOUNDS, ANSWER_BOUNDS):
        assert list(bounds) == sorted(set(bounds))
        assert all(math.isfinite(bound) and float(f"{bound:g}") == bound for bound in bounds)


def test_the_three_paths_differ_and_every_other_is_unknown():
    with serve(live=lambda: "", ready=lambda: "not yet") as server:
        base = server.url.removesuffix("/metrics")
        assert get(f"{base}/livez")[::2] == (200, "ok\n")
        assert get(f"{base}/readyz")[::2] == (503, "not yet\n")
        assert "overnight_build_info" in get(f"{base}/metrics?x=1")[2]
        for path in ("/", "/metrics/", "/healthz", "/livez/x"):
            assert get(base + path)[0] == 404, path


def test_what_is_not_live_is_not_ready():
    with serve(live=lambda: "stuck") as server:
        base = server.url.removesuffix("/metrics")
        assert get(f"{base}/livez")[0] == get(f"{base}/readyz")[0] == 503


def test_figures_that_cannot_be_read_are_an_error_and_the_next_page_is_served(caplog):
    faults = [RuntimeError("broken")]

    def read():
        if faults:
            raise faults.pop()
        return some_readings()

    with serve(read) as server:
        status, _, text = get(server.url)
        assert status == 500
        assert "broken" not in text
        assert get(server.url)[0] == 200
    assert "the figures cannot be shown" in caplog.text


def test_a_port_in_use_is_an_error_that_names_the_flag_and_the_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInputError, match=f"--metrics-port {port}.*in use"):
            serve(port=port)


@pytest.mark.parametrize("bad", [{"address": "203.0.113.7"}, {"port": 70_000}, {"address": "no such host."}])
def test_an_address_that_is_not_ours_is_bad_input(bad):
    with pytest.raises(BadInputError, match="--metrics-address"):
        serve(**bad)


def test_port_zero_takes_two_free_ones_and_both_are_given_back():
    with serve() as first, serve() as second:
        assert first.url != second.url
    for server in (first, second):
        with pytest.raises(urllib.error.URLError):
            get(server.url)


def test_it_listens_on_version_six_addresses_too():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with serve(address="::1") as server:
        assert server.url.startswith("http://[::1]:")
        assert get(server.url)[0] == 200


def test_a_scraper_that_says_nothing_does_not_hold_up_the_end_or_others():
    with serve() as server:
        host, port = server.url.removeprefix("http://").removesuffix("/metrics").split(":")
        silent = socket.create_connection((host, int(port)))
        assert get(server.url)[0] == 200
    silent.close()


def test_scrapes_while_counting_never_fail_and_never_go_back():
    counter, histogram = Counter(CALLS), Histogram(TIMES)
    stop = threading.Event()

    def count():
        number = 0
        while not stop.is_set():
            number += 1
            counter.add((str(number % 500),))
            histogram.observe(0.5, labels=(str(number % 500),))

    counting = threading.Thread(target=count)
    counting.start()
    try:
        seen = 0.0
        for _ in range(200):
            now = sum(counter.read().values.values())
            assert now >= seen
            seen = now
            assert all(len(each.counts) == 3 for each in histogram.read().values.values())
    finally:
        stop.set()
        counting.join()


def test_a_pulse_fails_after_its_limit_without_a_beat():
    now = [100.0]
    pulse = Pulse(60.0, monotonic=lambda: now[0])
    now[0] += 60
    assert pulse.fault() == ""
    now[0] += 1
    assert "61 s" in pulse.fault()


def test_an_observer_that_raises_harms_nobody_and_is_told_of_once(caplog):
    class Broken:
        def __init__(self):
            self.calls = 0

        def hook(self, number):
            self.calls += 1
            raise RuntimeError(f"broken {number}")

    broken = Broken()
    shield = shielded(broken)
    for number in range(5):
        assert shield.hook(number) is None
    assert broken.calls == 5
    assert caplog.text.count("metrics are not true") == 1
    assert "broken 0" in caplog.text


def test_what_an_observer_needs_to_stop_the_program_goes_through():
    class Interrupted:
        def hook(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shielded(Interrupted()).hook()


def figures_of(broker_figures):
    return {reading.family.name: reading.values for reading in broker_figures.read()}


def test_links_are_counted_when_they_are_lost_by_reason_and_not_when_we_close_them():
    broker, figures = MemoryBroker(), BrokerFigures()
    figures.follow(broker)
    broker.loss = LossReason.HEARTBEAT
    broker.set_state(BrokerState.DISCONNECTED)
    assert figures_of(figures)["overnight_broker_connected"] == {(): 0}
    broker.set_state(BrokerState.CONNECTED)
    broker.set_state(BrokerState.BLOCKED)
    assert figures_of(figures)["overnight_broker_connected"] == {(): 1}
    assert figures_of(figures)["overnight_broker_blocked"] == {(): 1}
    broker.loss = None
    broker.set_state(BrokerState.DISCONNECTED)
    lost = figures_of(figures)["overnight_broker_links_lost_total"]
    assert {reason: count for (reason,), count in lost.items() if count} == {"heartbeat": 1}


def test_queues_of_one_job_share_a_label():
    assert queue_label("overnight.tasks.gpu") == "gpu"
    assert queue_label("overnight.tasks.run-abc") == queue_label("overnight.tasks.run-def") == "run"
