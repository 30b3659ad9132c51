"""The name that a new queue manager gets, and what means this computer."""

from __future__ import annotations

import socket

import psutil
import pytest

from lanner.host.addresses import addresses_of, host_computer_name, local_addresses, local_settings


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("web01", "WEB01"),
        ("web01.example.com", "WEB01"),
        ("web_01", "WEB_01"),
        ("a-very-long-host-name.example.com", "A-VERY-LONG-HOS"),
        ("fourteen-long--x", "FOURTEEN-LONG"),
        ("bücher", "B-CHER"),
        ("a b", "A-B"),
        ("", "LANNER"),
        ("---", "LANNER"),
    ],
)
def test_the_name_of_a_host_as_that_of_a_computer(host: str, name: str) -> None:
    assert host_computer_name(host) == name


def test_a_long_host_name_counts_whole_and_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "A-Very-Long-Host-Name.test.invalid")
    settings = local_settings(None)
    assert (settings.computer_name, settings.default_computer_name) == ("", "A-VERY-LONG-HOS")
    assert settings.dns_domain == "test.invalid"
    assert settings.local_addresses >= {
        "a-very-long-host-name.test.invalid",
        "a-very-long-host-name",
        "a-very-long-hos",
        "127.0.0.1",
        "::1",
    }


def test_every_address_of_the_network_interfaces_is_local() -> None:
    families = (socket.AF_INET, socket.AF_INET6)
    found = [one for every in psutil.net_if_addrs().values() for one in every if one.family in families]
    assert {one.address.partition("%")[0] for one in found} <= local_addresses()


def test_the_host_means_the_computer_that_has_its_address() -> None:
    host = socket.gethostname().lower()
    assert {host, "127.0.0.1"} <= addresses_of("127.0.0.1")
    assert {host, "127.0.0.1", "::1"} <= addresses_of("::1")
    assert {host, "127.0.0.1"} <= addresses_of("0.0.0.0")
    # RFC 5737. One that is bound to the address of a network is not the one on 127.0.0.1.
    assert addresses_of("203.0.113.9") >= {host, "203.0.113.9"}
    assert "127.0.0.1" not in addresses_of("203.0.113.9")
    assert addresses_of("127.0.0.77") == {"127.0.0.77"}
