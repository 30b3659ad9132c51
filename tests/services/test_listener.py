"""The RPC listener of a queue manager: who a Kerberos principal is, and addresses for people."""

from __future__ import annotations

import shutil
from pathlib import Path

from lanner.services.listener import RpcSettings
from tests.cli.conftest import free_address
from tests.client.served import ServedManager


def test_a_principal_of_our_realm_is_the_account_of_that_name(tmp_path: Path) -> None:
    settings = RpcSettings(enabled=False)
    served = ServedManager(tmp_path / "data", free_address(), settings, dns_domain="example.com")
    try:
        served.runtime.users.add("alice", "secret", administrator=True)
        alice = served.listener.identity_of("alice@EXAMPLE.COM")
        assert alice is not None
        assert (alice.name, alice.is_administrator) == ("alice", True)
        for other in ("alice@ELSEWHERE.COM", "alice", "alice@", "bob@EXAMPLE.COM", "@EXAMPLE.COM"):
            assert served.listener.identity_of(other) is None
        assert (served.listener.ports, served.listener.address) == ([], str(tmp_path / "data" / "lanner.sock"))
    finally:
        served.close()
    shutil.rmtree(tmp_path)


def test_without_a_domain_no_principal_is_anybody(tmp_path: Path) -> None:
    served = ServedManager(tmp_path / "data", free_address(), RpcSettings(enabled=False), dns_domain="")
    try:
        served.runtime.users.add("alice", "secret")
        assert served.listener.identity_of("alice@") is None
    finally:
        served.close()
    shutil.rmtree(tmp_path)
