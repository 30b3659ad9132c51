"""`lanner serve` as a process: ready, signals, the lock, the metrics."""

from __future__ import annotations

import signal
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from lanner import connect
from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from tests.cli.conftest import Run, Served, free_address


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_who_it_is_and_stops_cleanly(serve: Callable[..., Served], data: Path, number: signal.Signals) -> None:
    address = free_address()
    served = serve("--name", "alpha", "--bind", address, "--json")
    listeners = {
        "transfer": f"{address}:1801",
        "rpc": f"{address}:2103",
        "remote read": f"{address}:2105",
        "flight": f"grpc://{address}:1810",
        "http": f"http://{address}:15801",
        "local": str(data / "lanner.sock"),
    }
    ready = served.ready()
    # Not everybody may bind port 135, and without it there is no COM.
    has_mapper = "endpoint mapper" in ready["listeners"]
    assert ready["listeners"].pop("endpoint mapper", f"{address}:135") == f"{address}:135"
    assert ready["listeners"].pop("com", "").startswith(f"{address}:") is has_mapper
    assert ready == {"name": "ALPHA", "data": str(data), "bind": address, "listeners": listeners}
    code, log = served.end(number)
    assert (code, f"{number.name}: stopping" in log, "queue manager ALPHA has stopped" in log) == (0, True, True)
    with QueueManager(data) as manager:
        assert manager.name == "ALPHA"


def test_a_person_reads_what_to_try_next(serve: Callable[..., Served], data: Path) -> None:
    address = free_address()
    served = serve("--name", "alpha", "--bind", address)
    text = ""
    while "lanner doctor" not in text:
        line = served.out.readline()
        assert line, served.err.read()
        text += line
    assert "\x1b" not in text
    for word in (
        "ALPHA",
        str(data),
        f"{address}:1801",
        "What to try next",
        f"lanner status --data {data}",
        f"lanner console --data {data}",
    ):
        assert word in text
    assert served.end(signal.SIGTERM)[0] == 0


def test_a_second_process_is_refused(serve: Callable[..., Served], run: Run, data: Path) -> None:
    first = serve("--json")
    first.ready()
    second = serve()
    _, error = second.process.communicate(timeout=30)
    assert second.process.returncode == 1
    assert f"lanner: {data} is open in process {first.process.pid}: stop that process" in error
    # Commands ask the one that runs.
    assert "admin_queue$" in run("queue", "list").out
    assert "0 messages" in run("backup", data.parent / "copy").out
    assert "a queue manager is running" in run("doctor").out
    assert first.end(signal.SIGTERM)[0] == 0


def test_sighup_takes_over_what_it_can_and_names_the_rest(
    serve: Callable[..., Served], data: Path, tmp_path: Path
) -> None:
    config = tmp_path / "lanner.toml"
    config.write_text('name = "alpha"\n[log]\nlevel = "warning"\n')
    served = serve("--config", config, "--json")
    served.ready()
    quota = '[quota]\nqueue_manager_kb = 77\njournal_kb = "none"\nexpress_mb = 64\n'
    config.write_text(f'name = "beta"\n[log]\nlevel = "info"\n{quota}')
    served.process.send_signal(signal.SIGHUP)
    served.line_with("name = beta needs a restart")
    served.line_with("log.level is now info")
    served.line_with("quota.queue_manager_kb is now 77")
    served.line_with("quota.express_mb is now 64")
    config.write_text("nmae = 'x'")
    served.process.send_signal(signal.SIGHUP)
    served.line_with("the configuration stays as it was")
    with connect(data=data) as manager:
        shown = next(one for one in manager.status()["limits"] if "express" in one["resource"])
        assert shown["limit"] == 64 << 20
    # Told at the level "info", which was taken over.
    code, log = served.end(signal.SIGTERM)
    assert (code, "queue manager ALPHA has stopped" in log) == (0, True)
    with QueueManager(data) as manager:
        assert runtime_of(manager).engine.queue_manager.queue_manager_quota == 77


def test_the_metrics_have_the_names_of_the_windows_exporter(
    serve: Callable[..., Served], data: Path, tmp_path: Path
) -> None:
    with QueueManager(data, "alpha") as manager:
        queue = manager.create_queue("orders", journal=True)
        for body in (b"a", b"b", b"c"):
            queue.send(Message(body=body, recoverable=True))
        queue.receive(0)
        manager.open(r"DIRECT=OS:other\private$\far").send(Message(recoverable=True))
    config = tmp_path / "lanner.toml"
    config.write_text('[metrics]\nbind = "127.0.0.1:0"\n')
    served = serve("--config", config, "--json")
    address = served.ready()["listeners"]["metrics"]
    with urllib.request.urlopen(address, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    label = r'{name="alpha\\private$\\orders"}'
    assert f"windows_msmq_messages_in_queue{label} 2.0" in lines
    assert f"windows_msmq_messages_in_journal_queue{label} 1.0" in lines
    assert r'windows_msmq_messages_in_queue{name="DIRECT=OS:other\\private$\\far"} 1.0' in lines
    assert any(line.startswith(f"windows_msmq_bytes_in_queue{label} ") for line in lines)
    assert any(line.startswith(f"windows_msmq_bytes_in_journal_queue{label} ") for line in lines)
    assert served.end(signal.SIGTERM)[0] == 0


def test_a_busy_metrics_address_is_reported_and_the_store_is_let_go(
    serve: Callable[..., Served], data: Path, tmp_path: Path
) -> None:
    config = tmp_path / "lanner.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config.write_text(f'[metrics]\nbind = "127.0.0.1:{taken.getsockname()[1]}"\n')
        served = serve("--config", config)
        _, error = served.process.communicate(timeout=30)
    assert served.process.returncode == 1
    assert "metrics cannot listen on" in error
    with QueueManager(data):
        pass


def test_a_setting_that_is_no_setting_stops_it_before_it_starts(run: Run, data: Path, tmp_path: Path) -> None:
    config = tmp_path / "lanner.toml"
    config.write_text("[log]\nlevle = 'info'\n")
    assert "the nearest known one is log.level" in run("serve", "--config", config, code=1).err
    assert not data.exists()


def test_a_busy_transfer_address_is_reported_and_the_store_is_let_go(serve: Callable[..., Served], data: Path) -> None:
    address = free_address()
    with socket.create_server((address, 1801)):
        served = serve("--bind", address)
        _, error = served.process.communicate(timeout=30)
    assert served.process.returncode == 1
    assert f"transfer cannot listen on {address}:1801" in error
    assert "choose another address" in error
    with QueueManager(data):
        pass


def test_transfer_can_be_switched_off(serve: Callable[..., Served], run: Run, data: Path, tmp_path: Path) -> None:
    config = tmp_path / "lanner.toml"
    config.write_text("[transfer]\nenabled = false\n")
    served = serve("--config", config, "--json")
    assert "transfer" not in served.ready()["listeners"]
    assert run("status", "--json").json["transfer"] is False
    findings = {one["check"]: one for one in run("doctor", free_address(), "--json", code=1).json}
    assert findings["local"]["verdict"] == "FAIL"
    assert "transfer.enabled = true" in findings["local"]["advice"]
    assert served.end(signal.SIGTERM)[0] == 0


def test_sighup_takes_over_the_peers(serve: Callable[..., Served], run: Run, data: Path, tmp_path: Path) -> None:
    config = tmp_path / "lanner.toml"
    config.write_text('[peers]\nbeta = "192.0.2.1"\n')
    served = serve("--config", config, "--json")
    served.ready()
    address = free_address()
    config.write_text(f'[peers]\nbeta = "{address}"\n')
    served.process.send_signal(signal.SIGHUP)
    served.line_with("peers is now")
    findings = {one["check"]: one["text"] for one in run("doctor", "BETA", "--json", code=1).json}
    assert findings["name"] == f"BETA is {address} (from the peers table of the settings)"
    assert served.end(signal.SIGTERM)[0] == 0
