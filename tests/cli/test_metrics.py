"""The metrics of a running service, and the alert rules and the dashboard that use them."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import lanner
from tests.cli.conftest import Served

ROOT = Path(__file__).resolve().parent.parent.parent
RULES = ROOT / "packaging" / "prometheus"
DASHBOARD = ROOT / "packaging" / "grafana" / "lanner.json"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Service:
    """A running service with metrics, and a connection to it."""

    def __init__(self, served: Served, data: Path) -> None:
        self.address = served.ready()["listeners"]["metrics"]
        self.qm = lanner.connect(data=data)

    def text(self) -> str:
        with urllib.request.urlopen(self.address, timeout=30) as answer:
            return str(answer.read().decode())

    def samples(self) -> Samples:
        families = text_string_to_metric_families(self.text())
        return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def key(metric: str, /, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return metric, frozenset((one.rstrip("_"), value) for one, value in labels.items())


@pytest.fixture
def service(serve: Callable[..., Served], data: Path, tmp_path: Path) -> Iterator[Service]:
    with lanner.QueueManager(data, "alpha") as manager:
        manager.create_queue("old").send(lanner.Message(body=b"x", recoverable=True))
    config = tmp_path / "lanner.toml"
    config.write_text('[metrics]\nbind = "127.0.0.1:0"\n')
    served = serve("--config", config, "--json")
    service = Service(served, data)
    with service.qm:
        yield service
    assert served.end(signal.SIGTERM)[0] == 0


def test_rates_ages_and_quotas(service: Service) -> None:
    queue = service.qm.create_queue("orders", quota_kb=64)
    queue.send_many([lanner.Message(body=b"x", priority=one % 8, recoverable=True) for one in range(20)])
    queue.receive_many(5)
    queue.delete(queue.peek(0).lookup_id)
    queue.move(queue.peek(0).lookup_id, "later")
    found = service.samples()
    name = r"alpha\private$\orders"
    assert found[key("lanner_messages_in_total", name=name)] == 20
    assert found[key("lanner_messages_out_total", name=name)] == 7
    assert found[key("lanner_messages_in_total", name=name + ";later")] == 1
    assert found[key("lanner_queue_quota_bytes", name=name)] == 65536
    assert 0 <= found[key("lanner_oldest_message_age_seconds", name=name)] < 60
    # What was there before the start did not come in, and has an age.
    old = r"alpha\private$\old"
    assert found[key("lanner_messages_in_total", name=old)] == 0
    assert found[key("lanner_messages_out_total", name=old)] == 0
    assert found[key("lanner_oldest_message_age_seconds", name=old)] >= 0
    assert found[key("lanner_quota_used_bytes")] > 14 * 100
    assert key("lanner_queue_quota_bytes", name=old) not in found


def test_dead_letters_transactions_and_outgoing_queues(service: Service) -> None:
    qm = service.qm
    queue = qm.create_queue("orders", transactional=True)
    qm.open("old").send(lanner.Message(body="x", time_to_be_received=0, use_dead_letter_queue=True))
    assert qm.dead_letter.peek(10).body == "x"
    qm.open(r"DIRECT=TCP:127.0.0.1\private$\far").send(lanner.Message(recoverable=True))
    qm.pause(r"DIRECT=TCP:127.0.0.1\private$\far")
    with qm.transaction() as unit:
        queue.send("y", transaction=unit)
        during = service.samples()
    found = service.samples()
    assert found[key("lanner_dead_letters_total", class_="nack_receive_timeout")] == 1
    assert during[key("lanner_transactions", state="open")] == 1
    assert found[key("lanner_transactions", state="open")] == 0
    assert found[key("lanner_transactions", state="in_doubt")] == 0
    far = r"DIRECT=TCP:127.0.0.1\private$\far"
    assert found[key("lanner_outgoing_state", name=far, state="OnHold")] == 1
    assert found[key("lanner_outgoing_state", name=far, state="Connected")] == 0


def test_commits_the_disk_and_failed_logons(service: Service) -> None:
    before = service.samples()
    queue = service.qm.open("old")
    for _ in range(10):
        queue.send(lanner.Message(body=b"x", recoverable=True))
    queue.send_many([lanner.Message(body=b"x", recoverable=True)] * 300)
    host, _, port = str(service.qm.status()["listeners"]["rpc"]).rpartition(":")
    with pytest.raises(lanner.errors.LannerError):
        lanner.connect(host, "nobody", "wrong", port=int(port))
    found = service.samples()
    count, total = key("lanner_commit_messages_count"), key("lanner_commit_messages_sum")
    assert found[count] - before[count] >= 11
    assert found[total] - before[total] >= 310
    assert found[key("lanner_commit_messages_bucket", le="200.0")] < found[count]
    assert found[key("lanner_commit_seconds_count")] == found[count]
    assert found[key("lanner_commit_seconds_bucket", le="+Inf")] == found[count]
    assert 0 < found[key("lanner_store_bytes")] < 1 << 30
    assert found[key("lanner_disk_free_bytes")] > 0
    assert sum(value for (name, _), value in found.items() if name == "lanner_logons_failed_total") == 1


def test_the_oldest_message_may_have_the_lowest_priority(service: Service) -> None:
    """The first message of each priority is examined.

    That of the lowest priority is behind thousands of newer messages.
    """
    queue = service.qm.create_queue("deep")
    queue.send(lanner.Message(body=b"x", priority=0))
    # Times of arrival are whole seconds.
    time.sleep(2.1)
    for _ in range(5):
        queue.send_many([lanner.Message(body=b"x", priority=7)] * 1000)
    found = service.samples()
    assert found[key("lanner_messages_in_total", name=r"alpha\private$\deep")] == 5001
    assert found[key("lanner_oldest_message_age_seconds", name=r"alpha\private$\deep")] >= 2


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian package prometheus)")
def test_the_alert_rules_fire_for_what_they_are_for() -> None:
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]):
        ran = subprocess.run(["promtool", *command], cwd=RULES, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_alert_for_stuck_messages_knows_each_state_of_an_unreachable_queue(service: Service) -> None:
    far = r"DIRECT=TCP:127.255.255.2\private$\far"
    wanted = re.search(r'lanner_outgoing_state\{state=~"([^"]+)"', (RULES / "alerts.yml").read_text())
    assert wanted is not None
    service.qm.open(far).send(lanner.Message(body=b"x", recoverable=True))
    seen: set[str] = set()
    deadline = time.monotonic() + 60
    # The state after a failed attempt, in which it waits for the next one.
    while "Disconnected" not in seen:
        assert time.monotonic() < deadline, seen
        for (name, labels), value in service.samples().items():
            if name == "lanner_outgoing_state" and ("name", far) in labels and value:
                seen.add(dict(labels)["state"])
        time.sleep(0.05)
    assert {state for state in seen if not re.fullmatch(wanted[1], state)} == set()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian package prometheus)")
def test_promtool_finds_nothing_wrong_with_the_metrics(service: Service) -> None:
    """Apart from windows_exporter's names and Prometheus' own, whose spelling is not ours."""
    ran = subprocess.run(
        ["promtool", "check", "metrics"], input=service.text(), capture_output=True, text=True, timeout=60, check=False
    )
    ours = [line for line in ran.stderr.splitlines() if line.startswith("lanner_")]
    assert ours == [], ours


def test_rules_and_dashboard_use_metrics_that_exist(service: Service) -> None:
    qm = service.qm
    qm.create_queue("small", quota_kb=1)
    qm.open(r"DIRECT=TCP:127.0.0.1\private$\far").send(lanner.Message())
    text = service.text()
    there = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)) | set(re.findall(r"^(\w+)[ {]", text, re.MULTILINE))
    # Families without a sample have a type in the text, whose name has no ending of its own.
    queries = (RULES / "alerts.yml").read_text() + json.dumps(json.loads(DASHBOARD.read_text()))
    used = set(re.findall(r"\b(?:lanner|windows_msmq)_\w+", queries))
    assert len(used) > 20
    assert used - there == set()
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert all(target["expr"] for panel in panels for target in panel["targets"])
