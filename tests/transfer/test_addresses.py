"""From format names to addresses (MS-MQQB 3.1.5.2.1, 3.1.7.4; MS-MQMQ 2.3.12.12)."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.directory.topology import Computer, Topology, provision
from lanner.model.directory_objects import GUID_NULL
from lanner.transfer.addresses import (
    DestinationInfo,
    HopHost,
    NextHop,
    find_hosts,
    format_address,
    get_destination_info,
    parse_literal,
    resolve,
    resolve_hosts,
)
from lanner.transfer.peers import Peer
from lanner.wire.format_name import parse
from tests.engine.harness import Harness, WatchedDirectory

BETA, ROUTER, PLAIN = (uuid.UUID(int=number) for number in (2, 3, 4))
ORDERS, QUIET = uuid.UUID(int=77), uuid.UUID(int=78)


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "data")
    computers = (
        Computer("BETA", BETA, "beta.example.org", public_queues={"orders": ORDERS}),
        Computer("ROUTER", ROUTER, "router.example.org", routing_server=True),
        Computer("PLAIN", PLAIN, public_queues={"quiet": QUIET}),
    )
    provision(harness.directory, Topology(computers=computers))
    yield harness
    harness.close()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The contents of DNS, addresses by name. Queried names are under ""."""
    known: dict[str, list[str]] = {"": []}

    def getaddrinfo(host: str, port: object, *, type: int) -> list[tuple[object, ...]]:  # noqa: A002 (its name)
        known[""].append(host)
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, type, 6, "", (address, 0)) for address in known[host]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return known


# Get Destination Info (3.1.7.4)
# -----------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.7.4-1")
@pytest.mark.parametrize(
    ("name", "host"),
    [
        (r"DIRECT=OS:beta.example.org\private$\orders", "beta.example.org"),
        (r"DIRECT=TCP:10.1.2.3\orders", "10.1.2.3"),
        (r"DIRECT=TCP:fe80::1\private$\orders", "fe80::1"),
    ],
)
def test_a_direct_name_is_its_host(h: Harness, name: str, host: str) -> None:
    assert get_destination_info(h.engine, parse(name)) == DestinationInfo(host, GUID_NULL)


@pytest.mark.spec("QQB-3.1.7.4-1")
def test_a_private_name_is_its_queue_manager(h: Harness) -> None:
    """Known to the directory or not: that is found out by Get Next Hops."""
    guid = uuid.uuid4()
    assert get_destination_info(h.engine, parse(rf"PRIVATE={guid}\0000000a")) == DestinationInfo("", guid)


@pytest.mark.spec("QQB-3.1.7.4-2")
@pytest.mark.parametrize("kind", ["PUBLIC", "CONNECTOR"])
def test_a_public_or_connector_name_is_looked_up(h: Harness, kind: str) -> None:
    """The document's slip: host name and GUID are those of the queue's queue manager."""
    found = get_destination_info(h.engine, parse(f"{kind}={ORDERS}"))
    assert found == DestinationInfo("beta.example.org", BETA)
    # A computer without a DNS name has another.
    assert get_destination_info(h.engine, parse(f"{kind}={QUIET}")) == DestinationInfo("PLAIN", PLAIN)
    assert get_destination_info(h.engine, parse(f"{kind}={uuid.uuid4()}")) is None
    h.directory.connected = False
    assert get_destination_info(h.engine, parse(f"{kind}={ORDERS}")) is None


@pytest.mark.parametrize("name", [f"MACHINE={BETA};JOURNAL", f"DL={ORDERS}", "MULTICAST=234.1.1.1:8001"])
def test_names_that_no_packet_goes_to_lead_nowhere(h: Harness, name: str) -> None:
    assert get_destination_info(h.engine, parse(name)) is None
    assert find_hosts(h.engine, parse(name)) == []


# Resolve Host Address (3.1.5.2.1)
# ---------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.5.2.1-3")
def test_a_direct_name_asks_neither_routing_nor_the_directory(tmp_path: Path) -> None:
    reads: list[str] = []
    h = Harness(
        tmp_path / "data",
        wrap_directory=lambda directory: WatchedDirectory(directory, lambda object_type, _: reads.append(object_type)),
    )
    reads.clear()
    hosts = find_hosts(h.engine, parse(r"DIRECT=OS:beta\private$\orders"))
    assert hosts == [HopHost(GUID_NULL, ("beta",))]
    assert resolve_hosts(hosts, {"beta": "10.0.0.2"}) == [NextHop(GUID_NULL, "beta", "10.0.0.2")]
    assert reads == []
    h.close()


@pytest.mark.spec("QQB-3.1.5.2.1-2")
@pytest.mark.parametrize("name", [f"PUBLIC={ORDERS}", rf"PRIVATE={BETA}\0000000a"])
def test_every_address_of_every_hop_in_order(h: Harness, names: dict[str, list[str]], name: str) -> None:
    """The first address of the first hop is the first NextHop.

    It has the name and GUID of the hop it belongs to.
    """
    own = Computer("ALPHA", out_routing_servers=("ROUTER", "PLAIN"))
    provision(h.directory, Topology(computers=(own,)))
    names["router.example.org"] = ["10.0.0.3", "fe80::3"]
    names["PLAIN"] = ["10.0.0.4"]
    hops = resolve_hosts(find_hosts(h.engine, parse(name)), {})
    assert hops == [
        NextHop(ROUTER, "router.example.org", "10.0.0.3"),
        NextHop(ROUTER, "router.example.org", "fe80::3"),
        NextHop(PLAIN, "PLAIN", "10.0.0.4"),
    ]
    assert [format_address(hop.address) for hop in hops] == ["IP=10.0.0.3", "IPv6=fe80::3", "IP=10.0.0.4"]


@pytest.mark.spec("QQB-3.1.5.2.1-2")
def test_a_hop_without_an_address_is_skipped(h: Harness, names: dict[str, list[str]]) -> None:
    hosts = [HopHost(ROUTER, ("router.example.org", "ROUTER")), HopHost(PLAIN, ("PLAIN",))]
    names["PLAIN"] = ["10.0.0.4"]
    assert resolve_hosts(hosts, {}) == [NextHop(PLAIN, "PLAIN", "10.0.0.4")]
    # The name without a domain is resolved only if the other has no address.
    assert names.pop("") == ["router.example.org", "ROUTER", "PLAIN"]
    names[""] = []
    names["ROUTER"] = ["10.0.0.3"]
    names["router.example.org"] = ["10.0.0.9"]
    assert resolve_hosts(hosts, {})[0] == NextHop(ROUTER, "router.example.org", "10.0.0.9")
    assert names[""] == ["router.example.org", "PLAIN"]


def test_no_address_at_all_is_an_error(h: Harness, names: dict[str, list[str]]) -> None:
    hosts = find_hosts(h.engine, parse(f"PUBLIC={ORDERS}"))
    assert hosts == [HopHost(BETA, ("beta.example.org", "BETA"))]
    for unknown in (hosts, []):
        with pytest.raises(socket.gaierror):
            resolve_hosts(unknown, {})
    assert find_hosts(h.engine, parse(rf"PRIVATE={uuid.uuid4()}\0000000a")) == []


# Addresses of a host
# ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::1", "::1"),
        ("[FE80:0::1]", "fe80::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("::ffff:10.1.2.3", "::ffff:a01:203"),
    ],
)
def test_literals_need_no_look_up(names: dict[str, list[str]], host: str, address: str) -> None:
    assert resolve(host, {}) == [address] == [parse_literal(host)]
    assert names[""] == []


def test_the_peers_table_is_asked_first(names: dict[str, list[str]]) -> None:
    names["beta"] = ["10.0.0.9"]
    names["other.example.org"] = ["10.0.0.7"]
    peers = {"Beta": "10.0.0.2", "alias": "other.example.org", "10.1.2.3": "127.0.0.2"}
    assert resolve("BETA", peers) == ["10.0.0.2"]
    assert resolve("beta", {}) == ["10.0.0.9"]
    assert resolve("alias", peers) == ["10.0.0.7"]
    # An address may be one that only others can use.
    assert resolve("10.1.2.3", peers) == ["127.0.0.2"]


def test_a_peer_may_have_several_addresses(names: dict[str, list[str]]) -> None:
    names["beta.example"] = ["10.0.0.3", "10.0.0.2"]
    peers = {"BETA": Peer("BETA", ("10.0.0.2", "beta.example", "gone.example"))}
    assert resolve("beta", peers) == ["10.0.0.2", "10.0.0.3"]
    with pytest.raises(socket.gaierror):
        resolve("gamma", {"GAMMA": Peer("GAMMA", ("gone.example",))})


def test_names_are_looked_up_each_time(names: dict[str, list[str]]) -> None:
    """Product note 55: the address is queried once for each session that is established."""
    names["beta"] = ["10.0.0.2", "10.0.0.1", "10.0.0.2"]
    assert resolve("beta", {}) == ["10.0.0.2", "10.0.0.1"]
    names["beta"] = ["10.0.0.5"]
    assert resolve("beta", {}) == ["10.0.0.5"]


def test_the_hosts_file_is_asked() -> None:
    assert "127.0.0.1" in resolve("localhost", {})


@pytest.mark.parametrize("host", ["", "a" * 64 + ".example", "a..b", "nul\0character", "\ud800"])
def test_a_name_that_cannot_be_one_is_the_same_error_as_one_that_is_unknown(host: str) -> None:
    with pytest.raises(socket.gaierror):
        resolve(host, {})


@given(st.ip_addresses())
def test_addresses_are_shown_as_management_shows_them(address: object) -> None:
    text = str(address).partition("%")[0]
    expected = f"IPv6={text}" if ":" in text else f"IP={text}"
    assert format_address(str(address)) == expected
    assert format_address(f"{address}%1") == expected or ":" not in text


@pytest.mark.parametrize("name", ["10.3", "1.2.3", "127.0.0.01", "0x7f.1", "2130706433"])
def test_half_an_address_means_no_other_computer(name: str) -> None:
    """The C library would fill it up, or read it in another base."""
    with pytest.raises(socket.gaierror, match="is not an IPv4 address"):
        resolve(name, {})
    # Who wants it so can say it so.
    assert resolve(name, {name: "127.0.0.9"}) == ["127.0.0.9"]
