"""Networks of queue managers as processes.

The network cuts and repeats connections, and any of the processes may die by kill -9.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lanner.transfer.tracing import parse_report
from tests.adversity.network import Network, Stream

# With thousands of messages on their way through several routers an OrderAck takes longer. A sender
# that resends all of them before that fills the routers with copies, since routers pass on
# sequences as they come.
PATIENT = {
    "resend_timeouts_short": 10.0,
    "resend_timeouts_medium": 20.0,
    "resend_timeouts_long": 30.0,
    "resend_timeouts_final": 30.0,
}


def trouble(network: Network, *, kills: int, seconds: float) -> None:
    """So many kills over so many seconds, and cuts all the time; then quiet."""
    network.proxy.is_calm = False
    for _ in range(kills):
        time.sleep(network.chance.uniform(0.5, 1.5) * seconds / kills)
        network.kill_one()
    network.proxy.is_calm = True


def stream_of(kind: str) -> str:
    return "tx" if kind == "transactional" else "q"


def run_three(
    path: Path, *, count: int, batch: int, pause: float, kills: int, seconds: float, seed: int, **settings: float
) -> None:
    """Run ALPHA and OMEGA, which send to each other directly and over ROUTER.

    Of each kind there are `count` messages in all.
    """
    with Network(path, ("ALPHA", "ROUTER", "OMEGA"), seed, **settings) as network:
        network.set_topology({"ALPHA": ("west",), "ROUTER": ("west", "east"), "OMEGA": ("east",)}, ["ROUTER"])
        for source, target in (("ALPHA", "OMEGA"), ("OMEGA", "ALPHA")):
            for kind in ("transactional", "recoverable"):
                for way in ("direct", "routed"):
                    queue = f"{stream_of(kind)}-{way}"
                    routed = network.create(target, queue, transactional=kind == "transactional")
                    to = routed if way == "routed" else network.direct(target, queue)
                    name = f"{source}-{kind}-{way}"
                    network.send(Stream(name, source, to, ((target, queue),), kind, count // 4, batch, pause))
        trouble(network, kills=kills, seconds=seconds)
        network.wait_until_delivered(seconds + 60)
        network.check()
        assert network.proxy.cuts > kills, "the network was too good"
        assert network.proxy.repeats > 0


def run_five(
    path: Path, *, count: int, batch: int, pause: float, kills: int, seconds: float, seed: int, **settings: float
) -> None:
    """Run two computers in two sites, a gate in each site and one gate between them.

    Messages go to one queue over all gates, and to several queues.
    """
    names = ("ALPHA", "R1", "MIDDLE", "R2", "OMEGA")
    with Network(path, names, seed, **settings) as network:
        sites = {"ALPHA": ("west",), "R1": ("west",), "MIDDLE": ("middle",), "R2": ("east",), "OMEGA": ("east",)}
        links = [("west", "middle", ("R1", "MIDDLE")), ("middle", "east", ("MIDDLE", "R2"))]
        routers = ["R1", "MIDDLE", "R2"]
        network.set_topology(sites, routers, links)
        trail = network.create("R1", "trail", public=True).removeprefix("PUBLIC=")
        network.set_topology(sites, routers, links, {"R1": {"trail": trail}})
        for kind in ("transactional", "recoverable"):
            queue = stream_of(kind)
            there, *others = (
                network.create(node, queue, transactional=kind == "transactional") for node in ("OMEGA", "R2", "MIDDLE")
            )
            several = f"{there},{others[0]},{network.direct('MIDDLE', queue)}"
            everywhere = (("OMEGA", queue), ("R2", queue), ("MIDDLE", queue))
            network.send(Stream(f"routed-{kind}", "ALPHA", there, everywhere[:1], kind, count // 2, batch, pause))
            network.send(Stream(f"several-{kind}", "ALPHA", several, everywhere, kind, count // 2, batch, pause))
        trouble(network, kills=kills, seconds=seconds)
        network.wait_until_delivered(seconds + 60)
        network.check()
        check_trace(network, trail)


def check_trace(network: Network, trail: str) -> None:
    """When it is quiet, a traced message leaves a report at each end of each hop."""
    to = network.create("OMEGA", "traced")
    addresses = {address: name for name, address in network.outer.items()}
    network.send(Stream("traced", "ALPHA", to, (("OMEGA", "traced"),), "recoverable", 1, 1, 0), trace=trail)
    expected = {(None, 1), (None, 2), (None, 3), ("R1", 0), ("MIDDLE", 1), ("R2", 2), ("OMEGA", 3)}
    end = time.monotonic() + 30
    told: set[tuple[str | None, int]] = set()
    while told != expected and time.monotonic() < end:
        time.sleep(0.1)
        reports = network.nodes["R1"].do("reports", queue=f"PUBLIC={trail}")["reports"]
        parsed = [parse_report(label, bytes.fromhex(body)) for label, body in reports]
        told = {(addresses.get(report.next_hop or ""), report.hops) for report in parsed if report is not None}
    assert told == expected


@pytest.mark.timeout(180)
def test_three_queue_managers_through_cuts_and_kills(tmp_path: Path) -> None:
    run_three(tmp_path, count=1500, batch=15, pause=0.2, kills=5, seconds=6, seed=3)


@pytest.mark.timeout(180)
def test_five_queue_managers_through_cuts_and_kills(tmp_path: Path) -> None:
    run_five(tmp_path, count=600, batch=12, pause=0.2, kills=4, seconds=5, seed=5)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_three_queue_managers_through_dozens_of_kills(tmp_path: Path, seed: int) -> None:
    run_three(tmp_path, count=20_000, batch=25, pause=0.2, kills=40, seconds=60, seed=seed, **PATIENT)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_five_queue_managers_through_dozens_of_kills(tmp_path: Path, seed: int) -> None:
    run_five(tmp_path, count=20_000, batch=25, pause=0.1, kills=40, seconds=60, seed=seed, **PATIENT)


# Counts
# --------------------------------------------------------------------------------------------------


def run_past_sixteen_bits(path: Path, kind: str) -> None:
    """More messages than MessageSentCount can count, on one session; and both sides still agree."""
    count = 66_000
    with Network(path, ("ALPHA", "OMEGA"), seed=0) as network:
        omega = network.nodes["OMEGA"]
        network.create("OMEGA", "q")
        stream = Stream("many", "ALPHA", rf"DIRECT=TCP:{omega.address}\private$\q", (), kind, count, 2000, 0)
        network.send(stream)
        end = time.monotonic() + 100
        while not stream.is_sent or omega.do("count", queue="q")["count"] < count:
            assert time.monotonic() < end, f"only {omega.do('status')} has come"
            time.sleep(0.2)
        (link,) = omega.do("status")["links"]
        assert link["received"] == count
        assert network.nodes["ALPHA"].do("status")["links"][0]["sent"] == count % 65_536
        assert omega.do("is_counted", queue="q")["count"] == count
        # The window is open again: what is sent now arrives on the same session.
        network.send(Stream("more", "ALPHA", stream.to, (), kind, 100, 100, 0))
        while omega.do("count", queue="q")["count"] < count + 100:
            assert time.monotonic() < end
            time.sleep(0.05)
        (link,) = omega.do("status")["links"]
        assert link["received"] == count + 100
        network.check()


@pytest.mark.timeout(180)
def test_counts_go_past_sixteen_bits_in_one_session(tmp_path: Path) -> None:
    run_past_sixteen_bits(tmp_path, "express")


@pytest.mark.soak
def test_counts_of_recoverable_messages_go_past_sixteen_bits_in_one_session(tmp_path: Path) -> None:
    run_past_sixteen_bits(tmp_path, "recoverable")
