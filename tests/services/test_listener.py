"""The RPC listener of a queue manager: who a Kerberos principal is, and addresses for people."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lanner
from lanner.errors import AccessDenied
from lanner.services.listener import RpcSettings
from lanner.wire.sddl import parse_sddl
from tests.cli.conftest import free_address
from tests.client.served import ServedManager


def test_a_principal_of_our_realm_is_the_account_of_that_name(tmp_path: Path) -> None:
    settings = RpcSettings(enabled=False)
    served = ServedManager(tmp_path / "data", free_address(), settings, dns_domain="example.com")
    try:
        served.runtime.users.add("alice", "secret", administrator=True)
        alice = served.listener.identity_of("alice@EXAMPLE.COM", None)
        assert alice is not None
        assert (alice.name, alice.is_administrator) == ("alice", True)
        for other in ("alice@ELSEWHERE.COM", "alice", "alice@", "bob@EXAMPLE.COM", "@EXAMPLE.COM"):
            assert served.listener.identity_of(other, None) is None
        assert (served.listener.ports, served.listener.address) == ([], str(tmp_path / "data" / "lanner.sock"))
    finally:
        served.close()
    shutil.rmtree(tmp_path)


def test_without_a_domain_no_principal_is_anybody(tmp_path: Path) -> None:
    served = ServedManager(tmp_path / "data", free_address(), RpcSettings(enabled=False), dns_domain="")
    try:
        served.runtime.users.add("alice", "secret")
        assert served.listener.identity_of("alice@", None) is None
    finally:
        served.close()
    shutil.rmtree(tmp_path)


def test_root_and_the_queue_managers_own_user_pass_every_access_list(tmp_path: Path) -> None:
    """The socket identifies its caller as the system.

    That is the identity of a program that opens the directory. An access list must grant an
    administrator's rights explicitly.
    """
    address = free_address()
    served = ServedManager(tmp_path / "data", address)
    try:
        served.runtime.users.add("alice", "secret", administrator=True)
        with (
            lanner.connect(data=served.data) as here,
            lanner.connect(address, "alice", "secret", port=served.port) as there,
        ):
            here.create_queue("sealed").send("x")
            engine = served.engine
            with engine.store.lock:
                queue = next(one for one in engine.queue_manager.queue_collection.values() if "sealed" in one.pathname)
                engine.set_queue_properties(queue, {"security": parse_sddl("D:").pack()})
            with pytest.raises(AccessDenied):
                there.open("sealed").peek(timeout=0)
            assert here.open("sealed").peek(timeout=0).body == "x"
    finally:
        served.close()
    shutil.rmtree(tmp_path)
