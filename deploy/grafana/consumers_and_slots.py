"""Describe the dashboard *consumers and slots*: who works, how hard, and what becomes of the children."""

from __future__ import annotations

from panels import Dashboard, Kind, Panel, Variable

_PER = "[$__rate_interval]"
_WHO = '{instance=~"$instance"}'
_BUSY = f"rate(overnight_slot_busy_seconds_total{_WHO}{_PER})"
_NO_GPU = "where no consumer has a GPU and the package nvidia-ml-py"


def _by_instance(of: str, share: float) -> str:
    rates = f"rate({of}_bucket{_WHO}{_PER})"
    return f"histogram_quantile({share}, sum by (le, instance) ({rates}))"


_SLOTS = [
    Panel(
        "Slots by state",
        "short",
        "Slots of all chosen consumers by what they do. Free slots while tasks wait mean that a consumer is deaf.",
        {"{{state}}": f"sum by (state) (overnight_consumer_slots{_WHO})"},
        Kind.STACKED,
        alert="OvernightConsumerDeaf",
    ),
    Panel(
        "Utilisation",
        "percentunit",
        "Share of the slots' time with a task.",
        {
            "all": f"sum({_BUSY}) / sum(overnight_consumer_slots{_WHO})",
            "{{instance}}": f"sum by (instance) ({_BUSY}) / sum by (instance) (overnight_consumer_slots{_WHO})",
        },
        most=1,
    ),
    Panel(
        "Busy seconds per second, by slot",
        "percentunit",
        "1 is a slot that always has a task; it grows while a task runs, not only at its end.",
        {"{{instance}} slot {{slot}}": _BUSY},
        most=1,
    ),
    Panel(
        "Oldest running task",
        "s",
        "How long the task that runs longest has been running, by consumer; 0 if none runs.",
        {"{{instance}}": f"overnight_consumer_oldest_task_seconds{_WHO}"},
        alert="OvernightTaskHangs",
    ),
    Panel(
        "Memory by slot",
        "bytes",
        "Resident memory of the child in the slot and of all that it started.",
        {"{{instance}} slot {{slot}}": f"overnight_slot_memory_bytes{_WHO}"},
        alert="OvernightSlotsDie",
    ),
    Panel(
        "Threads and cores",
        "short",
        "Threads that all slots of a consumer may use together, and the cores that it found.",
        {
            "{{instance}} threads": f"overnight_consumer_threads_per_slot{_WHO} * on (instance) "
            f"sum by (instance) (overnight_consumer_slots{_WHO})",
            "{{instance}} cores": f"overnight_consumer_cores{_WHO}",
        },
    ),
]

_CHILDREN = [
    Panel(
        "Children started",
        "short",
        "Within the interval, by reason.",
        {"{{reason}}": f"sum by (reason) (increase(overnight_child_starts_total{_WHO}{_PER}))"},
        Kind.STACKED,
        width=12,
    ),
    Panel(
        "Children gone",
        "short",
        "Within the interval, by reason. `stopped` and `cancelled` are as it should be.",
        {"{{reason}}": f"sum by (reason) (increase(overnight_child_exits_total{_WHO}{_PER}))"},
        Kind.STACKED,
        width=12,
        alert="OvernightSlotsDie",
    ),
]

_INTAKE = [
    Panel(
        "Held and prefetch",
        "short",
        "Deliveries that a consumer holds un-acked, and how many it may hold: the shorter the tasks, the more.",
        {
            "{{instance}} held": f"overnight_consumer_held_deliveries{_WHO}",
            "{{instance}} {{queue}} prefetch": f"overnight_consumer_prefetch_deliveries{_WHO}",
        },
    ),
    Panel(
        "Consuming",
        "short",
        "1 while tasks would really come to the consumer; `stopping` is 1 from its first stop signal on.",
        {
            "{{instance}} {{queue}}": f"overnight_consumer_consuming{_WHO}",
            "{{instance}} stopping": f"overnight_consumer_draining{_WHO}",
        },
        alert="OvernightConsumerDeaf",
        most=1,
    ),
    Panel(
        "Pauses after accusations",
        "short",
        "1 while a consumer takes nothing, since a task failed through its own fault; and how many such pauses began.",
        {
            "{{instance}} {{queue}} paused": f"overnight_consumer_paused{_WHO}",
            "{{instance}} {{queue}} begun": f"increase(overnight_consumer_pauses_total{_WHO}{_PER})",
        },
        alert="OvernightConsumerDeaf",
    ),
    Panel(
        "Wait in the queue, p95",
        "s",
        "From a task's publication to its start in a slot, by consumer.",
        {"{{instance}}": _by_instance("overnight_consumer_wait_seconds", 0.95)},
    ),
    Panel(
        "Run time, p95",
        "s",
        "By consumer: one that is slower than the others shows here.",
        {"{{instance}}": _by_instance("overnight_consumer_run_seconds", 0.95)},
        alert="OvernightTaskHangs",
    ),
    Panel(
        "Time to confirm a reply, p95",
        "s",
        "From sending a reply to the broker's confirm; only then is the task acked.",
        {"{{instance}}": _by_instance("overnight_consumer_confirm_seconds", 0.95)},
    ),
]

_WORK = [
    Panel(
        "Points done",
        "suffix:/s",
        "By consumer.",
        {"{{instance}}": f"sum by (instance) (rate(overnight_consumer_points_done_total{_WHO}{_PER}))"},
    ),
    Panel(
        "Tasks done",
        "suffix:/s",
        "By consumer.",
        {"{{instance}}": f"sum by (instance) (rate(overnight_consumer_tasks_done_total{_WHO}{_PER}))"},
    ),
    Panel(
        "Tasks failed",
        "short",
        "Within the interval, by consumer. One that fails more than the others is broken itself.",
        {"{{instance}}": f"sum by (instance) (increase(overnight_consumer_tasks_failed_total{_WHO}{_PER}))"},
        Kind.STACKED,
        alert="OvernightTasksFail",
    ),
]

_GPU = [
    Panel(
        "Slots by device",
        "short",
        "Slots of all chosen consumers by the device that they use, as each consumer counts its own.",
        {"{{device}}": f"count by (device) (overnight_slot_device_info{_WHO})"},
        Kind.STACKED,
    ),
    Panel(
        "GPU use",
        "percentunit",
        "Share of the last moment in which a kernel ran.",
        {"{{instance}} GPU {{gpu}}": f"overnight_gpu_busy_ratio{_WHO}"},
        empty=_NO_GPU,
        most=1,
    ),
    Panel(
        "GPU memory",
        "percentunit",
        "Share of the device's memory in use, by all processes.",
        {
            "{{instance}} GPU {{gpu}}": f"overnight_gpu_memory_used_bytes{_WHO} / overnight_gpu_memory_bytes{_WHO}"
        },
        empty=_NO_GPU,
        most=1,
    ),
]

_VERSIONS = [
    Panel(
        "What is running",
        "short",
        "Processes by service and version.",
        {"": "count by (service, version, python) (overnight_build_info)"},
        Kind.TABLE,
        width=24,
        height=6,
    ),
]

CONSUMERS_AND_SLOTS = Dashboard(
    "overnight-consumers-and-slots",
    "Consumers and slots",
    "Who works, how hard, and what becomes of the children.",
    {
        "Slots": _SLOTS,
        "Children": _CHILDREN,
        "Intake": _INTAKE,
        "Work": _WORK,
        "Devices": _GPU,
        "Versions": _VERSIONS,
    },
    variables=(Variable("instance", "Consumer", "overnight_consumer_slots"),),
)
