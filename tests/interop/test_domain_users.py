"""Users of an Active Directory (Samba's) at `lanner serve`: no local accounts, and access lists that name users and groups of the domain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

import lanner
from lanner.model.errors import AccessDenied
from lanner.security.users import ADMINISTRATORS, USER_FILE, UserFile
from lanner.wire.sid import Sid
from tests.contract.service import Service
from tests.samba_ad import REALM, SambaDomain, is_missing, samba_domain

PASSWORD: Final = "Secret.pw-1"


@pytest.fixture(scope="module")
def domain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SambaDomain]:
    missing = is_missing()
    if missing is not None:
        pytest.skip(f"no domain controller can be made here: {missing} is missing")
    pytest.importorskip("gssapi")
    with samba_domain(tmp_path_factory.mktemp("ad") / "dc") as found, pytest.MonkeyPatch.context() as patch:
        for user in ("alice", "bob", "carol"):
            found.tool("user", "create", user, PASSWORD)
        found.tool("group", "add", "Accounting")
        found.tool("group", "addmembers", "Accounting", "alice")
        found.tool("group", "addmembers", "Domain Admins", "carol")
        for name, value in found.environment.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture(scope="module")
def service(domain: SambaDomain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    # The account file has an alice, who is an administrator: somebody else than the domain's.
    service = Service(tmp_path_factory.mktemp("qm") / "data", f'[rpc]\nkeytab = "{domain.folder}/QM1.keytab"\n')
    try:
        domain.add_computer("QM1", f"host/{service.address}")
        yield service
    finally:
        service.close()


def connect(service: Service, user: str) -> lanner.QueueManager:
    return lanner.connect(service.address, user=f"{user}@{REALM}", password=PASSWORD, authentication="kerberos")


def test_a_group_of_the_domain_in_an_access_list(domain: SambaDomain, service: Service) -> None:
    with lanner.connect(data=service.data) as local:
        orders = local.create_queue("orders", access={domain.sid_of("Accounting"): ["receive", "peek"]})
        orders.send("for the accountants")
    with connect(service, "bob") as bob, pytest.raises(AccessDenied, match=r"MQ\\bob has no right"):
        bob.open("orders").receive(timeout=0)
    with connect(service, "alice") as alice:
        message = alice.open("orders").receive(timeout=0)
    assert message is not None
    assert message.value == "for the accountants"


def test_a_user_is_not_the_local_one_of_the_same_name(service: Service) -> None:
    """The local alice is an administrator; the domain's may not even list queues."""
    with connect(service, "alice") as alice, pytest.raises(AccessDenied, match=r"MQ\\alice is no administrator"):
        alice.queues()


def test_names_of_those_who_have_logged_on(service: Service) -> None:
    with connect(service, "bob") as bob, pytest.raises(AccessDenied):
        bob.status()
    with lanner.connect(data=service.data) as local:
        queue = local.create_queue("shared", access={r"MQ\bob": "full"})
        assert r"MQ\bob" in [entry.account for entry in queue.access().entries or ()]
    with connect(service, "bob") as bob:
        bob.open("shared").send("mine")


def test_the_sender_is_the_user_of_the_domain(domain: SambaDomain, service: Service) -> None:
    with lanner.connect(data=service.data) as local:
        local.create_queue("letters", access={domain.sid_of("Domain Users"): "send"})
        with connect(service, "bob") as bob:
            bob.open("letters").send("hello")
        message = local.open("letters").receive(timeout=0)
    assert message is not None
    assert (str(Sid.unpack(message.sender_id)), message.sender_verified) == (domain.sid_of("bob"), True)


def test_administrators_of_the_domain_are_those_that_a_local_group_names(domain: SambaDomain, service: Service) -> None:
    with connect(service, "carol") as carol, pytest.raises(AccessDenied):
        carol.queues()
    UserFile(service.data / USER_FILE).add_member(ADMINISTRATORS, domain.sid_of("Domain Admins"))
    with connect(service, "carol") as carol:
        assert carol.queues()
