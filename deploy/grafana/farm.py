"""Describe the dashboard *farm*: how far the jobs are, what holds them up, and what the broker says."""

from __future__ import annotations

from panels import Dashboard, Kind, Panel, Variable

_PER = "[$__rate_interval]"
_QUEUE = 'queue=~"$queue"'
# RabbitMQ knows our queues by their full names.
_TASKS = 'queue=~"overnight[.]tasks[.]($queue)"'
_DONE = "overnight_consumer_tasks_done_total"
_FAILED = "overnight_consumer_tasks_failed_total"
_RUN = "overnight_consumer_run_seconds"
_WAIT = "overnight_consumer_wait_seconds"
_UNFINISHED = 'overnight_job_points{state=~"waiting|published|running"}'


def _quantiles(of: str, labels: str, *shares: float) -> dict[str, str]:
    inside = f"{{{labels}}}" if labels else ""
    return {
        f"p{share * 100:.0f}": f"histogram_quantile({share}, sum by (le) (rate({of}_bucket{inside}{_PER})))"
        for share in shares
    }


_NOW = [
    Panel(
        "Alerts",
        "short",
        "What somebody should look at now. Nothing here means that nothing is wrong.",
        {
            "": 'sum by (severity, alertname, instance, queue, reason) (ALERTS{alertstate="firing", '
            'alertname=~"Overnight.+"})'
        },
        Kind.TABLE,
        width=18,
        height=5,
        alert="OvernightTargetDown",
    ),
    Panel(
        "Targets",
        "short",
        "What Prometheus asks for figures, and how much of it gives no answer.",
        {"asked": "count(up)", "no answer": "count(up == 0) or vector(0)"},
        Kind.STAT,
        width=6,
        height=5,
        alert="OvernightTargetDown",
    ),
]

_HEALTH = [
    Panel(
        "Backlog",
        "short",
        "Tasks in the queues that the driven jobs publish to: waiting, and held by consumers un-acked. The driver "
        "keeps only a window of them published, so that this is some seconds of work, however large the jobs are.",
        {
            "ready": f"sum(max by (queue) (overnight_queue_ready_tasks{{{_QUEUE}}}))",
            "un-acked": f"sum(max by (queue) (overnight_queue_unacked_tasks{{{_QUEUE}}})) or "
            f"sum(max by (queue) (rabbitmq_detailed_queue_messages_unacked{{{_TASKS}}}))",
        },
        Kind.STAT,
        width=4,
        height=5,
        alert="OvernightQueueWithoutConsumers",
    ),
    Panel(
        "Time to drain",
        "s",
        "Points of all driven jobs that are not finished, divided by the points done per second over 5 minutes.",
        {"left": f"sum({_UNFINISHED}) / (sum(rate(overnight_driver_points_done_total[5m])) > 0)"},
        Kind.STAT,
        width=4,
        height=5,
    ),
    Panel(
        "Throughput",
        "suffix:/s",
        "Points and tasks per second that got their result into a job file.",
        {
            "points": f"sum(rate(overnight_driver_points_done_total{_PER}))",
            "tasks": f"sum(rate(overnight_driver_tasks_done_total{_PER}))",
        },
        Kind.STAT,
        width=4,
        height=5,
        alert="OvernightNothingEnds",
    ),
    Panel(
        "Failure ratio",
        "percentunit",
        "Share of the tasks answered within 5 minutes that failed, at whatever attempt.",
        {
            "failed": f"sum(rate({_FAILED}{{{_QUEUE}}}[5m])) / "
            f"(sum(rate({_FAILED}{{{_QUEUE}}}[5m])) + (sum(rate({_DONE}{{{_QUEUE}}}[5m])) or vector(0)) > 0)"
        },
        Kind.STAT,
        width=4,
        height=5,
        alert="OvernightTasksFail",
        most=1,
    ),
    Panel(
        "Consumers",
        "short",
        "Consumers that answer to Prometheus, and those to which tasks would really come.",
        {
            "up": 'count(overnight_build_info{service="consumer"}) or vector(0)',
            "consuming": "count(max by (instance) (overnight_consumer_consuming) == 1) or vector(0)",
        },
        Kind.STAT,
        width=4,
        height=5,
        alert="OvernightConsumerDeaf",
    ),
    Panel(
        "Dead letters",
        "short",
        "Messages that nobody could use. `overnight dead list` tells which and why.",
        {
            "waiting": "max(overnight_dead_letters) or "
            'max(rabbitmq_detailed_queue_messages_ready{queue="overnight.dead"})'
        },
        Kind.STAT,
        width=4,
        height=5,
        alert="OvernightDeadLetters",
    ),
]

_JOBS = [
    Panel(
        "Progress",
        "percentunit",
        "Share of each driven job's points that are finished: with a result, or given up.",
        {
            "{{job_id}}": 'sum by (job_id) (overnight_job_points{state=~"done|given_up"}) / '
            "sum by (job_id) (overnight_job_points)"
        },
        Kind.BARS,
        width=6,
        most=1,
    ),
    Panel(
        "Points by state",
        "short",
        "Points of all driven jobs by where they are.",
        {"{{state}}": "sum by (state) (overnight_job_points)"},
        Kind.STACKED,
        width=6,
    ),
    Panel(
        "Submitted jobs",
        "short",
        "Jobs in the folder that `overnight serve` drives. One that is `paused` has paused by itself and waits for "
        "somebody; `overnight status` tells why.",
        {"{{state}}": "sum by (state) (overnight_service_jobs)"},
        Kind.BARS,
        width=6,
        alert="OvernightJobPaused",
    ),
    Panel(
        "Time to go",
        "s",
        "What each driver reckons with, at the rate of the last 30 s. Absent while there is no rate.",
        {"{{job_id}}": "max by (job_id) (overnight_job_eta_seconds)"},
        width=6,
    ),
    Panel(
        "Points per second",
        "suffix:/s",
        "Of each driven job, over 30 s; for tasks of over 10 s what the busy slots do at the mean time per point.",
        {"{{job_id}}": "max by (job_id) (overnight_job_points_per_second)"},
        width=12,
    ),
    Panel(
        "Points given up",
        "short",
        "Points whose attempts are used up. `overnight failures` tells why; `overnight retry` tries them again.",
        {"{{job_id}}": 'max by (job_id) (overnight_job_points{state="given_up"})'},
        width=12,
        alert="OvernightTasksFail",
    ),
]

_TASKS_ROW = [
    Panel(
        "Tasks by outcome",
        "suffix:/s",
        "Tasks that consumers answered. `published again` are those of which nobody spoke for too long.",
        {
            "done": f"sum(rate({_DONE}{{{_QUEUE}}}{_PER}))",
            "failed": f"sum(rate({_FAILED}{{{_QUEUE}}}{_PER}))",
            "published again": f"sum(rate(overnight_driver_silent_tasks_total{_PER}))",
        },
        alert="OvernightNothingEnds",
    ),
    Panel(
        "Failures by cause",
        "short",
        "Failed tasks within the interval, by cause; every cause is explained in the task life cycle.",
        {"{{cause}}": f"sum by (cause) (increase({_FAILED}{{{_QUEUE}}}{_PER}))"},
        Kind.STACKED,
        alert="OvernightTasksFail",
    ),
    Panel(
        "Tasks by method",
        "suffix:/s",
        "Tasks done, by method.",
        {"{{method}}": f"sum by (method) (rate({_DONE}{{{_QUEUE}}}{_PER}))"},
    ),
    Panel(
        "Run time",
        "s",
        "How long the method ran for a task, well or not. Bounded by the buckets: 1 ms to 12 h.",
        _quantiles(_RUN, _QUEUE, 0.5, 0.95, 0.99),
        alert="OvernightTaskHangs",
    ),
    Panel(
        "Run time, distribution",
        "s",
        "The same as a heat map: how many tasks of each interval fell into which bucket.",
        {"{{le}}": f"sum by (le) (increase({_RUN}_bucket{{{_QUEUE}}}{_PER}))"},
        Kind.HEAT_MAP,
    ),
    Panel(
        "Wait in the queue",
        "s",
        "From a task's publication to its start in a slot. About the seconds of work that the window holds.",
        _quantiles(_WAIT, _QUEUE, 0.5, 0.95),
    ),
]

_QUEUES = [
    Panel(
        "Ready",
        "short",
        "Tasks that wait in the queue: as the driver asked, and by RabbitMQ's own figures, which are seconds behind.",
        {
            "{{queue}}": f"max by (queue) (overnight_queue_ready_tasks{{{_QUEUE}}})",
            "{{queue}} (RabbitMQ)": f"max by (queue) (rabbitmq_detailed_queue_messages_ready{{{_TASKS}}})",
        },
        width=6,
        alert="OvernightDepthNotRead",
    ),
    Panel(
        "Un-acked",
        "short",
        "Tasks handed out, by RabbitMQ's own figures, and those that our consumers say they hold. A lasting gap means "
        "that somebody else reads the queue.",
        {
            "{{queue}} (RabbitMQ)": f"max by (queue) (rabbitmq_detailed_queue_messages_unacked{{{_TASKS}}})",
            "held by consumers": "sum(overnight_consumer_held_deliveries)",
        },
        width=6,
    ),
    Panel(
        "Subscriptions",
        "short",
        "Subscriptions to each queue. A consumer may have several of them: that is how its prefetch is changed.",
        {
            "{{queue}}": f"max by (queue) (overnight_queue_consumers{{{_QUEUE}}})",
            "{{queue}} (RabbitMQ)": f"max by (queue) (rabbitmq_detailed_queue_consumers{{{_TASKS}}})",
        },
        width=6,
        alert="OvernightQueueWithoutConsumers",
    ),
    Panel(
        "Age of the depth",
        "s",
        "How long ago the driver last read how many tasks a queue holds; it asks at least every few seconds.",
        {"{{queue}}": f"time() - max by (queue) (overnight_queue_read_timestamp_seconds{{{_QUEUE}}})"},
        width=6,
        alert="OvernightDepthNotRead",
    ),
    Panel(
        "Messages of all queues",
        "suffix:/s",
        "What RabbitMQ received, handed out, handed out again, and got acks for: tasks and replies together.",
        {
            each: f"sum(rate(rabbitmq_global_messages_{each.replace(' ', '_')}_total{_PER}))"
            for each in ("received", "delivered", "redelivered", "acknowledged")
        },
        width=12,
    ),
    Panel(
        "Messages that found no queue",
        "short",
        "Within the interval. The driver publishes such a task again; nobody should see any.",
        {
            "returned": f"sum(increase(rabbitmq_global_messages_unroutable_returned_total{_PER}))",
            "dropped": f"sum(increase(rabbitmq_global_messages_unroutable_dropped_total{_PER}))",
        },
        width=12,
    ),
]

_DRIVER = [
    Panel(
        "Window",
        "short",
        "Tasks that may be published and unfinished at a time, and those that are.",
        {
            "{{job_id}} window": "max by (job_id) (overnight_job_window_tasks)",
            "{{job_id}} out": "max by (job_id) (overnight_job_out_tasks)",
        },
    ),
    Panel(
        "Slots as the driver sees them",
        "short",
        "Slots heard of within 90 s, and how many of them worked on the job over 30 s.",
        {
            "{{job_id}} seen": "max by (job_id) (overnight_job_seen_slots)",
            "{{job_id}} busy": "max by (job_id) (overnight_job_busy_slots)",
        },
    ),
    Panel(
        "Published",
        "suffix:/s",
        "Tasks that the broker has confirmed, each attempt of a task counting, and those it did not take, by reason.",
        {
            "confirmed": f"sum(rate(overnight_driver_tasks_published_total{_PER}))",
            "{{reason}}": f"sum by (reason) (rate(overnight_driver_publish_failures_total{_PER}))",
        },
    ),
    Panel(
        "Time to confirm a task",
        "s",
        "From sending a task to the broker's confirm.",
        _quantiles("overnight_driver_confirm_seconds", "", 0.5, 0.99),
    ),
    Panel(
        "Time to commit",
        "s",
        "To write what replies brought into a job file, safely. A slow disk shows here.",
        _quantiles("overnight_driver_commit_seconds", "", 0.5, 0.99),
    ),
    Panel(
        "Replies dropped",
        "short",
        "Replies within the interval that changed nothing, by reason. After a consumer died a task may run twice, "
        "and its second reply is dropped.",
        {"{{reason}}": f"sum by (reason) (increase(overnight_driver_replies_dropped_total{_PER}))"},
        Kind.STACKED,
    ),
]

_BROKER = [
    Panel(
        "Links to the broker",
        "short",
        "Services whose link stands, by service, and those that the broker takes no messages from.",
        {
            "{{service}} connected": "sum by (service) (overnight_broker_connected "
            "* on (instance) group_left (service) overnight_build_info)",
            "blocked": "sum(overnight_broker_blocked)",
        },
        alert="OvernightBrokerGone",
    ),
    Panel(
        "Links lost",
        "short",
        "Links lost within the interval, by reason. Each is made again by itself.",
        {"{{reason}}": f"sum by (reason) (increase(overnight_broker_links_lost_total{_PER}))"},
        Kind.STACKED,
    ),
    Panel(
        "Connections",
        "short",
        "Connections to RabbitMQ: two for each service.",
        {"connections": "sum(rabbitmq_connections)"},
    ),
    Panel(
        "Room before publishers are blocked",
        "bytes",
        "Memory and disk that RabbitMQ may still use. At 0 it takes no more messages, and says so to its clients.",
        {
            "memory": "min(rabbitmq_resident_memory_limit_bytes - rabbitmq_process_resident_memory_bytes)",
            "disk": "min(rabbitmq_disk_space_available_bytes - rabbitmq_disk_space_available_limit_bytes)",
        },
        width=12,
        alert="OvernightBrokerBlocked",
    ),
    Panel(
        "Alarms",
        "short",
        "1 while RabbitMQ has raised the alarm.",
        {
            "memory": "max(rabbitmq_alarms_memory_used_watermark)",
            "disk": "max(rabbitmq_alarms_free_disk_space_watermark)",
        },
        width=12,
        alert="OvernightBrokerBlocked",
    ),
]

FARM = Dashboard(
    "overnight-farm",
    "Farm",
    "How far the jobs are, when they will be done, and what holds them up.",
    {
        "Now": _NOW,
        "Health": _HEALTH,
        "Jobs": _JOBS,
        "Tasks": _TASKS_ROW,
        "Queues": _QUEUES,
        "Driver": _DRIVER,
        "Broker": _BROKER,
    },
    variables=(Variable("queue", "Queue", "overnight_queue_ready_tasks"),),
)
