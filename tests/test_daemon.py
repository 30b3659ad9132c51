"""The daemon's life in one process."""

from __future__ import annotations

import contextlib
import gc
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from lanner.client import QueueManager
from lanner.daemon import service
from lanner.daemon.metrics import TransferCollector
from lanner.daemon.settings import Settings, SettingsError, load_settings
from lanner.engine.settings import EventSettings
from lanner.host.runtime import Runtime
from lanner.model.enums import OutgoingState, QueueAccessType
from lanner.transfer.incidents import Incident, Incidents
from lanner.transfer.shell import TransferListener
from lanner.transfer.transfer import Transfer
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import parse
from tests.cli.conftest import free_address


@pytest.fixture
def _interpreter() -> Iterator[None]:
    """Leave the interpreter as it was."""
    interval = sys.getswitchinterval()
    yield
    sys.setswitchinterval(interval)
    gc.unfreeze()


@pytest.mark.usefixtures("_interpreter")
def test_it_listens_and_is_tuned_when_it_says_so_and_lets_go_of_everything(tmp_path: Path) -> None:
    address = free_address()
    settings = load_settings(None, {"data": tmp_path / "data", "name": "alpha", "bind": address})
    seen: list[object] = []

    def on_ready(running: service.Daemon) -> None:
        seen.extend([sys.getswitchinterval() <= 0.0005, gc.get_freeze_count() > 0])
        seen.append([listener.name for listener in running.listeners])
        transfer = running.listeners[0]
        assert isinstance(transfer, TransferListener)
        seen.append((transfer.address, transfer.settings == settings.transfer_settings))
        running._stop.set()

    service.serve(lambda: settings, on_ready)
    assert seen == [True, True, ["transfer", "rpc", "com", "flight", "http"], (f"{address}:1801", True)]
    assert not (tmp_path / "data" / "lanner.sock").exists()
    with QueueManager(tmp_path / "data") as manager:
        assert manager.name == "ALPHA"
    shutil.rmtree(tmp_path)


def listening(address: str) -> list[int]:
    """Which of the ports of a queue manager take a connection."""
    found = []
    for port in (1801, 2103, 2105, 135):
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection((address, port), 30):
            found.append(port)
    return found


@pytest.mark.usefixtures("_interpreter")
@pytest.mark.parametrize("hardened", [False, True])
@pytest.mark.spec("DMPR-3.1.1.1-7")
def test_hardened_it_answers_no_rpc_and_transfers_nothing(tmp_path: Path, hardened: bool) -> None:
    """MS-MQDMPR 3.1.1.1 HardenedSecurity prevents RPC and transfer.

    "prevents it from responding to RPC requests and performing message transfer over non-HTTP".
    """
    assert not Settings().security.hardened
    address, peer = free_address(), free_address()
    given = {"data": tmp_path / "data", "name": "alpha", "bind": address, "peers": {"beta": peer}}
    chosen = {"security": {"hardened": True}} if hardened else {}
    settings = load_settings(None, given | chosen)
    seen: list[object] = []

    def on_ready(running: service.Daemon) -> None:
        ports = listening(address)
        seen.append(set(ports) - {135})
        seen.append((settings.data / "lanner.sock").exists())
        engine = running.runtime.engine
        name = parse(r"DIRECT=OS:beta\private$\far")
        with running.runtime.lock:
            engine.enqueue_message_to_an_open_queue(
                engine.open_queue(name, QueueAccessType.SEND), MessageProperties(), None
            )
            (queue,) = engine.outgoing_queues()
        seen.append(queue.state is OutgoingState.LOCKED)
        running._stop.set()

    service.serve(lambda: settings, on_ready)
    assert seen == [set() if hardened else {1801, 2103, 2105}, not hardened, hardened]
    shutil.rmtree(tmp_path)


@pytest.mark.usefixtures("_interpreter")
def test_rpc_can_be_kept_to_this_machine_and_ports_that_are_taken_are_passed_over(tmp_path: Path) -> None:
    address = free_address()
    seen: list[object] = []

    def run(**rpc: object) -> None:
        settings = load_settings(None, {"data": tmp_path / "data", "name": "alpha", "bind": address, "rpc": rpc})

        def on_ready(running: service.Daemon) -> None:
            seen.append((listening(address), sorted(running.addresses)))
            running._stop.set()

        service.serve(lambda: settings, on_ready)

    run(enabled=False)
    with socket.create_server((address, 2105)):
        run(endpoint_mapper_port=0)
    assert seen == [
        ([1801], ["flight", "http", "local", "transfer"]),
        ([1801, 2103, 2105], ["flight", "http", "local", "remote read", "rpc", "transfer"]),
    ]
    shutil.rmtree(tmp_path)


@pytest.mark.usefixtures("_interpreter")
def test_the_flight_service_is_on_where_its_packages_are_and_can_be_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = free_address()
    seen: list[object] = []

    def run(**flight: object) -> None:
        given = {"data": tmp_path / "data", "name": "alpha", "bind": address, "flight": flight}
        settings = load_settings(None, given)

        def on_ready(running: service.Daemon) -> None:
            seen.append(running.addresses.get("flight"))
            running._stop.set()

        service.serve(lambda: settings, on_ready)

    run()
    run(enabled=True, port=1811)
    run(enabled=False)
    with pytest.raises(SettingsError, match=r"flight: passwords would travel to 192\.0\.2\.1 in the clear"):
        run(bind="192.0.2.1")
    monkeypatch.setattr("lanner.spark.flight.settings.is_available", lambda: False)
    run()
    with pytest.raises(SettingsError, match=r"flight: .*pip install 'lanner\[spark\]'"):
        run(enabled=True)
    assert seen == [f"grpc://{address}:1810", f"grpc://{address}:1811", None, None]
    shutil.rmtree(tmp_path)


@pytest.mark.usefixtures("_interpreter")
def test_events_are_written_where_the_settings_say_so(tmp_path: Path) -> None:
    config = tmp_path / "lanner.toml"
    config.write_text("[events]\nenabled = true\nkeep_days = 0.5\nmax_mb = 3\n", encoding="utf-8")
    seen: list[object] = []

    def on_ready(running: service.Daemon) -> None:
        seen.append(running.runtime.engine.settings.event_settings)
        running._stop.set()

    rpc = {"rpc": {"enabled": False}}
    given = {"data": tmp_path / "data", "name": "alpha", "bind": free_address()} | rpc
    service.serve(lambda: load_settings(config, given), on_ready)
    service.serve(lambda: load_settings(None, given), on_ready)
    assert seen == [EventSettings(keep_days=0.5, max_mb=3), None]
    with pytest.raises(SettingsError, match=r"events\.keep_days = 0: above 0, at most 3650"):
        load_settings(None, {"events": {"keep_days": 0}})
    shutil.rmtree(tmp_path)


ARENAS = """
import ctypes, threading
from lanner.daemon.service import limit_arenas

limit_arenas()
libc = ctypes.CDLL(None)
barrier = threading.Barrier(8)
def take():
    barrier.wait()
    libc.free(ctypes.c_void_p(libc.malloc(100_000)))
libc.malloc.restype = ctypes.c_void_p
threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""


def test_threads_share_one_heap() -> None:
    """In a process of its own, because the limit cannot be lifted again."""
    told = subprocess.run([sys.executable, "-c", ARENAS], capture_output=True, text=True, check=True).stdout
    assert told.count("<heap nr=") == 1


def test_dropped_messages_are_a_metric() -> None:
    runtime = SimpleNamespace(lock=contextlib.nullcontext())
    incidents = Incidents(lambda: 0.0, lambda: 0.0)
    incidents.add(Incident.REFUSED_PEER, "192.0.2.7")
    transfer = SimpleNamespace(incoming=SimpleNamespace(refusals=[], duplicates=2, out_of_order=3), incidents=incidents)
    refused, dropped, happened = TransferCollector(cast(Runtime, runtime), cast(Transfer, transfer)).collect()
    assert refused.samples == []
    assert [(sample.name, sample.labels, sample.value) for sample in dropped.samples] == [
        ("lanner_messages_dropped_total", {"reason": "duplicate"}, 2),
        ("lanner_messages_dropped_total", {"reason": "out_of_order"}, 3),
    ]
    assert {sample.labels["kind"]: sample.value for sample in happened.samples} == {
        kind.value: int(kind is Incident.REFUSED_PEER) for kind in Incident
    }
