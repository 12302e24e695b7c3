"""The compose file, and what it lays into the containers, keep the rules and agree with the code."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ruamel import yaml

from overnight_common.brokers.amqp_topology import EXCHANGES, REPLIES_EXPIRE_MS, shape_of
from overnight_common.brokers.base import DEAD_QUEUE, reply_queue, task_queue
from overnight_consumer.devices import fault_of_text
from overnight_consumer.settings import RawSettings
from support.deploy_files import DEPLOY, ROOT, script
from support.markdown import code, document, table

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


COMPOSE = ROOT / "docker-compose.yml"
OURS = ("producer", "consumer", "consumer-gpu")
SCALED = ("consumer", "consumer-gpu")
HEALTHY = {"condition": "service_healthy"}
LOOPBACK = re.compile(r"(127\.0\.0\.1|\$\{AMQP_ADDRESS:-127\.0\.0\.1\}):")
SECRET = re.compile("pass|secret|token", re.IGNORECASE)
SETTING = re.compile(r"\$\{(\w+):-([^}]*)\}")


def read(path: Path) -> Any:
    """Read YAML as plain values."""
    return yaml.YAML(typ="safe", pure=True).load(path.read_text())


def services() -> dict[str, Any]:
    """Return the services, with what they inherit by merge keys."""
    return json.loads(json.dumps(read(COMPOSE)["services"]))


def seconds(text: str) -> float:
    """Read a duration such as 61m or 30s."""
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def mounts(service: dict[str, Any]) -> list[str]:
    return service.get("volumes", [])


def settings(service: dict[str, Any]) -> dict[str, Any]:
    return service.get("environment", {})


# What breaks a rule, and how that is seen in a service.
ANY_SERVICE: dict[str, Callable[[dict[str, Any]], bool]] = {
    "a fixed container name cannot be scaled": lambda one: "container_name" in one,
    "it has more of the host than it needs": lambda one: bool(
        {"privileged", "network_mode", "pid"} & set(one)
    ),
    "it keeps capabilities": lambda one: one.get("cap_drop") != ["ALL"] or "cap_add" in one,
    "it may gain privileges": lambda one: "no-new-privileges:true" not in one.get("security_opt", []),
    "its memory has no limit": lambda one: "memory" not in one["deploy"]["resources"]["limits"],
    "it has the engine itself": lambda one: any("docker.sock" in mount for mount in mounts(one)),
    "it may write to a folder of the host": lambda one: any(
        mount[0] in ".$/" and not mount.endswith(":ro") for mount in mounts(one)
    ),
    "a port is open to others": lambda one: not all(map(LOOPBACK.match, one.get("ports", []))),
    "a secret is in the environment": lambda one: any(
        SECRET.search(name) and not name.endswith("__FILE") for name in settings(one)
    ),
    "an address is in the environment": lambda one: any(
        "://" in str(value) for value in settings(one).values()
    ),
}
OURS_TOO: dict[str, Callable[[dict[str, Any]], bool]] = {
    "its root can be written": lambda one: not one.get("read_only"),
    "it has no init or no /tmp": lambda one: not (one.get("init") and one.get("tmpfs")),
    "it does not wait for the broker": lambda one: one["depends_on"] != {"rabbitmq": HEALTHY},
    "the broker's address is from elsewhere": lambda one: (
        settings(one).get("OVERNIGHT_BROKER_FILE") != "/run/secrets/amqp_url"
    ),
}
SCALED_TOO: dict[str, Callable[[dict[str, Any]], bool]] = {
    "a published port cannot be scaled": lambda one: "ports" in one,
    "it would be killed within its grace period": lambda one: (
        seconds(one["stop_grace_period"]) <= float(settings(one)["OVERNIGHT_GRACE"])
    ),
}


def faults(farm: dict[str, Any]) -> list[str]:
    """Return the rules that the services break."""
    return [
        f"{name}: {rule}"
        for names, rules in ((farm, ANY_SERVICE), (OURS, OURS_TOO), (SCALED, SCALED_TOO))
        for name in names
        for rule, broken in rules.items()
        if broken(farm[name])
    ]


def test_the_compose_file_is_what_its_schema_says() -> None:
    checker = shutil.which("check-jsonschema", path=str(Path(sys.executable).parent))
    assert checker is not None, "check-jsonschema is in the group dev"
    done = subprocess.run(
        [checker, "--builtin-schema", "vendor.compose-spec", COMPOSE, ROOT / "tests/deploy/containers.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_farm_keeps_the_rules() -> None:
    assert faults(services()) == []


BREAKS: dict[str, tuple[str, dict[str, Any]]] = {
    "a fixed name": ("consumer", {"container_name": "consumer"}),
    "a published port": ("consumer", {"ports": ["127.0.0.1:9100:9100"]}),
    "an open page": ("prometheus", {"ports": ["9090:9090"]}),
    "an open broker": ("rabbitmq", {"ports": ["0.0.0.0:5672:5672"]}),
    "a password": ("grafana", {"environment": {"GF_SECURITY_ADMIN_PASSWORD": "admin"}}),
    "an address": ("producer", {"environment": {"OVERNIGHT_BROKER": "amqp://guest:guest@rabbitmq"}}),
    "a writable root": ("producer", {"read_only": False}),
    "a writable mount": ("producer", {"volumes": ["./data:/data"]}),
    "capabilities": ("rabbitmq", {"cap_drop": []}),
    "the engine": ("prometheus", {"volumes": ["/var/run/docker.sock:/var/run/docker.sock:ro"]}),
    "too little grace": ("consumer", {"stop_grace_period": "30s"}),
    "no waiting": ("consumer", {"depends_on": ["rabbitmq"]}),
}


@pytest.mark.parametrize("what", BREAKS)
def test_a_farm_that_breaks_a_rule_is_found_out(what: str) -> None:
    farm = copy.deepcopy(services())
    name, change = BREAKS[what]
    farm[name].update(change)
    assert faults(farm)


def test_the_gpu_consumer_starts_only_when_it_is_asked_for() -> None:
    farm = services()
    assert [name for name, service in farm.items() if "profiles" in service] == ["consumer-gpu"]
    assert farm["consumer-gpu"]["profiles"] == ["gpu"]
    (device,) = farm["consumer-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]


def test_the_gpu_consumer_has_settings_of_its_own_for_what_differs_from_the_others() -> None:
    cpu, gpu = (services()[name]["environment"] for name in SCALED)
    own = {
        name: SETTING.findall(gpu[name])
        for name in ("OVERNIGHT_QUEUE", "OVERNIGHT_DEVICE", "OVERNIGHT_SLOTS")
    }
    assert own == {
        "OVERNIGHT_QUEUE": [("GPU_CONSUMER_QUEUE", "default gpu")],
        "OVERNIGHT_DEVICE": [("GPU_CONSUMER_DEVICE", "cuda")],
        "OVERNIGHT_SLOTS": [("GPU_CONSUMER_SLOTS", "auto")],
    }
    assert fault_of_text("cuda") is None
    assert SETTING.findall(cpu["OVERNIGHT_QUEUE"]) == [("OVERNIGHT_QUEUE", "default cpu")]
    assert "OVERNIGHT_DEVICE" not in cpu


def test_every_setting_is_in_the_example_with_the_value_it_has_without() -> None:
    used = dict(SETTING.findall(COMPOSE.read_text()))
    shown = dict(re.findall(r"^(\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert shown == used
    assert not [name for name in shown if re.search("PASS|TOKEN|_URL$", name) and name != "TORCH_INDEX_URL"]


def test_consumers_get_the_grace_that_they_have_anyway() -> None:
    for name in SCALED:
        assert float(services()[name]["environment"]["OVERNIGHT_GRACE"]) == RawSettings().grace


def test_passwords_and_settings_stay_out_of_git() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert "/deploy/secrets/" in ignored
    assert ".env" in ignored


def test_rabbitmq_is_told_to_declare_what_the_code_declares() -> None:
    definitions = json.loads((DEPLOY / "rabbitmq/definitions.d/10-topology.json").read_text())
    durable = {"vhost": "/", "durable": True, "auto_delete": False}
    assert definitions["exchanges"] == [
        {"name": exchange.name, "type": exchange.kind, "internal": False, "arguments": {}, **durable}
        for exchange in EXCHANGES
    ]
    names = [*(task_queue(name) for name in ("default", "cpu", "gpu")), DEAD_QUEUE]
    assert definitions["queues"] == [
        {"name": name, "arguments": shape_of(name).arguments, **durable} for name in names
    ]
    assert definitions["bindings"] == [
        {
            "source": shape_of(name).exchange.name,
            "vhost": "/",
            "destination": name,
            "destination_type": "queue",
            "routing_key": name,
            "arguments": {},
        }
        for name in names
    ]


def test_policies_fit_our_queues_and_drop_nothing() -> None:
    definitions = json.loads((DEPLOY / "rabbitmq/definitions.d/10-topology.json").read_text())
    by_queue = {}
    for queue in (task_queue("default"), reply_queue("job", 1), DEAD_QUEUE):
        (policy,) = [one for one in definitions["policies"] if re.search(one["pattern"], queue)]
        by_queue[queue] = policy["definition"]
        assert policy["definition"].get("overflow", "reject-publish") == "reject-publish"
        assert "message-ttl" not in policy["definition"]
        assert "expires" not in policy["definition"], f"that is an argument: {REPLIES_EXPIRE_MS} ms"
    assert by_queue[task_queue("default")]["delivery-limit"] > RawSettings().max_deliveries
    assert by_queue[reply_queue("job", 1)]["delivery-limit"] == -1
    assert by_queue[DEAD_QUEUE]["delivery-limit"] == -1


def test_the_server_allows_as_long_a_task_as_the_queues_do() -> None:
    text = (DEPLOY / "rabbitmq/rabbitmq.conf").read_text()
    settings = dict(re.findall(r"^(\S+) = (\S+)$", text, re.MULTILINE))
    assert (
        int(settings["consumer_timeout"]) == shape_of(task_queue("default")).arguments["x-consumer-timeout"]
    )


def test_prometheus_asks_for_every_consumer_by_one_name() -> None:
    jobs = {job["job_name"]: job for job in read(DEPLOY / "prometheus/prometheus.yml")["scrape_configs"]}
    farm = services()
    for name in SCALED:
        assert farm[name]["networks"] == {"farm": {"aliases": ["consumers"]}}
    (found,) = jobs["consumer"]["dns_sd_configs"]
    assert found["names"] == ["consumers"]
    assert found["port"] == 9100
    (found,) = jobs["producer"]["dns_sd_configs"]
    assert found["names"] == ["producer"]


def test_prometheus_and_grafana_files_are_where_the_containers_look() -> None:
    farm = services()
    assert "./deploy/prometheus:/etc/prometheus:ro" in farm["prometheus"]["volumes"]
    assert "./deploy/grafana:/etc/overnight/grafana:ro" in farm["grafana"]["volumes"]
    inside = farm["grafana"]["environment"]["GF_PATHS_PROVISIONING"]
    assert (DEPLOY / "grafana" / inside.removeprefix("/etc/overnight/grafana/")).is_dir()
    (provider,) = read(DEPLOY / "grafana/provisioning/dashboards/overnight.yml")["providers"]
    assert provider["options"]["path"] == "/etc/overnight/grafana/dashboards"
    (source,) = read(DEPLOY / "grafana/provisioning/datasources/prometheus.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"


@pytest.fixture
def make_secrets() -> ModuleType:
    return script(DEPLOY / "make_secrets.py")


def test_rabbitmq_gets_only_salted_hashes_of_the_passwords(make_secrets: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make_secrets.make(folder)
    users = json.loads((folder / "rabbitmq_users.json").read_text())
    by_name = {user["name"]: user for user in users["users"]}
    assert set(by_name) == {"producer", "consumer", "operator"}
    for name, user in by_name.items():
        url = (folder / f"{name}.url").read_text().strip()
        found = re.fullmatch(rf"amqp://{name}:([\w-]{{32}})@rabbitmq:5672/%2F", url)
        assert found is not None, url
        assert found[1] not in (folder / "rabbitmq_users.json").read_text()
        salted = base64.b64decode(user["password_hash"])
        assert salted[4:] == hashlib.sha256(salted[:4] + found[1].encode()).digest()
        assert user["hashing_algorithm"] == "rabbit_password_hashing_sha256"


def test_nobody_has_more_than_the_least_rights_but_the_operator(
    make_secrets: ModuleType, tmp_path: Path
) -> None:
    make_secrets.make(tmp_path)
    users = json.loads((tmp_path / "rabbitmq_users.json").read_text())
    tags = {user["name"]: user["tags"] for user in users["users"]}
    rights = {each["user"]: each for each in users["permissions"]}
    assert tags == {"producer": [], "consumer": [], "operator": ["administrator"]}
    assert rights["consumer"]["configure"] == "^$"
    for user, kind, queue in (
        ("consumer", "write", task_queue("default")),
        ("consumer", "write", "overnight.tasks"),
        ("consumer", "read", DEAD_QUEUE),
        ("consumer", "read", reply_queue("job", 1)),
        ("producer", "read", task_queue("default")),
        ("producer", "read", "overnight.tasks"),
        ("producer", "configure", task_queue("default")),
        ("producer", "configure", DEAD_QUEUE),
        ("producer", "configure", "overnight.replies"),
    ):
        assert not re.search(rights[user][kind], queue), f"{user} may {kind} {queue}"


def test_passwords_once_made_are_kept_until_they_are_renewed(
    make_secrets: ModuleType, tmp_path: Path
) -> None:
    assert set(make_secrets.make(tmp_path)) == {file.name for file in tmp_path.iterdir()}
    first = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert make_secrets.make(tmp_path) == []
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == first
    (tmp_path / "consumer.url").unlink()
    assert make_secrets.make(tmp_path) == ["consumer.url", "rabbitmq_users.json"]
    assert (tmp_path / "producer.url").read_text() == first["producer.url"]
    make_secrets.make(tmp_path, renew=True)
    assert not {name for name, text in first.items() if (tmp_path / name).read_text() == text}


def test_only_the_owner_gets_at_the_passwords_and_no_umask_shuts_containers_out(
    make_secrets: ModuleType, tmp_path: Path
) -> None:
    folder = tmp_path / "secrets"
    before = os.umask(0o077)
    try:
        make_secrets.make(folder)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert modes.pop("operator.url") == 0o400, "no container has it"
    assert set(modes.values()) == {0o444}


def test_the_documented_rights_are_those_that_users_get(make_secrets: ModuleType) -> None:
    rows = table(document("docs/operations.md"), "Rights")
    documented = {
        row["user of"]: [*code(row["configure"]), *code(row["write"]), *code(row["read"])] for row in rows
    }
    for who, name in (("drivers", "producer"), ("consumers", "consumer")):
        rights = make_secrets.RIGHTS[name]
        assert documented[who] == [rights.configure, rights.write, rights.read]
