"""Users of an Active Directory (Samba) as users of `lanner serve`.

There are no local accounts; access lists name users and groups of the domain.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lanner
from lanner.model.errors import AccessDenied
from lanner.wire.sid import Sid
from tests.active_directory.domain import PASSWORD, REALM, ROOT, Domain
from tests.cli.conftest import Run
from tests.cli.conftest import data as data  # noqa: PLC0414 (a fixture)
from tests.cli.conftest import run as run  # noqa: PLC0414 (a fixture)
from tests.contract.service import Service


@pytest.fixture(scope="module")
def service(domain: Domain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A queue manager with a keytab of the domain.

    Its own account alice is an administrator; the domain's alice is not.
    """
    pytest.importorskip("gssapi", reason="the extra kerberos is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5CCNAME", "MEMORY:")
        patch.setenv("KRB5RCACHEDIR", str(domain.path))
        for user in ("alice", "bob", "carol"):
            domain.add_user(user)
        domain.tool("group", "add", "Accounting", *on_files(domain))
        domain.tool("group", "addmembers", "Accounting", "alice", *on_files(domain))
        domain.tool("group", "addmembers", "Domain Admins", "carol", *on_files(domain))
        keytab = domain.path / "qm1.keytab"
        service = Service(tmp_path_factory.mktemp("qm") / "data", f'[rpc]\nkeytab = "{keytab}"\n')
        try:
            domain.add_computer("TICKETS")
            principal = f"host/{service.address}"
            domain.modify(f"CN=TICKETS,CN=Computers,{ROOT}", servicePrincipalName=principal)
            domain.tool("domain", "exportkeytab", str(keytab), f"--principal={principal}")
            yield service
        finally:
            service.close()


def on_files(domain: Domain) -> list[str]:
    """Return what has samba-tool work on the files of the domain controller."""
    return ["-H", str(domain.path / "private" / "sam.ldb")]


def sid_of(domain: Domain, account: str) -> str:
    """Return the SID of a user or group."""
    return str(Sid.unpack(domain.attributes(f"CN={account},CN=Users,{ROOT}", "objectSid")["objectSid"][0]))


def connect(service: Service, user: str) -> lanner.QueueManager:
    return lanner.connect(service.address, user=f"{user}@{REALM}", password=PASSWORD, authentication="kerberos")


def test_a_group_of_the_domain_in_an_access_list(domain: Domain, service: Service) -> None:
    with lanner.connect(data=service.data) as local:
        orders = local.create_queue("orders", access={sid_of(domain, "Accounting"): ["receive", "peek"]})
        orders.send("for the accountants")
    with connect(service, "bob") as bob, pytest.raises(AccessDenied, match=r"MQ\\bob has no right"):
        bob.open("orders").receive(timeout=0)
    with connect(service, "alice") as alice:
        message = alice.open("orders").receive(timeout=0)
    assert message is not None
    assert message.value == "for the accountants"


def test_a_command_with_the_ticket_of_a_user(
    run: Run, domain: Domain, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gssapi = pytest.importorskip("gssapi", reason="the extra kerberos is not installed")
    with lanner.connect(data=service.data) as local:
        local.create_queue("desk", access={sid_of(domain, "alice"): ["receive", "peek"]}).send("for alice")
    at = ("--host", service.address, "--kerberos")
    for user, code in (("bob", 1), ("alice", 0)):
        cache = f"FILE:{tmp_path / user}"
        # As kinit does.
        name = gssapi.Name(f"{user}@{REALM}", gssapi.NameType.user)
        held = gssapi.raw.acquire_cred_with_password(name, PASSWORD.encode(), usage="initiate").creds
        gssapi.raw.store_cred_into({b"ccache": cache.encode()}, held, usage="initiate", overwrite=True)
        monkeypatch.setenv("KRB5CCNAME", cache)
        done = run("receive", "desk", "--raw", *at, code=code)
        assert (r"MQ\bob has no right" in done.err) is bool(code)
    assert done.out == "for alice"


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("nobody", PASSWORD)], ids=["a wrong password", "an unknown user"]
)
def test_who_gets_no_ticket_is_refused(service: Service, user: str, password: str) -> None:
    with pytest.raises(AccessDenied, match=f"Kerberos: {user}@{REALM} gets no ticket"):
        lanner.connect(service.address, user=f"{user}@{REALM}", password=password, authentication="kerberos")


def test_a_computer_must_be_named_as_the_domain_does(service: Service) -> None:
    first, second, third, fourth = map(int, service.address.split("."))
    other = f"{first}.{second}.{third << 8 | fourth}"
    with pytest.raises(AccessDenied, match=f"the domain has no service host/{other}; name the computer as"):
        lanner.connect(other, user=f"alice@{REALM}", password=PASSWORD, authentication="kerberos")


def test_a_user_is_not_the_local_one_of_the_same_name(service: Service) -> None:
    """The local alice is an administrator; the domain's may not even list queues."""
    with connect(service, "alice") as alice, pytest.raises(AccessDenied, match=r"MQ\\alice is no .*administrator"):
        alice.queues()


def test_names_of_those_who_have_logged_on(service: Service) -> None:
    with connect(service, "bob") as bob, pytest.raises(AccessDenied):
        bob.status()
    with lanner.connect(data=service.data) as local:
        queue = local.create_queue("shared", access={r"MQ\bob": "full"})
        assert r"MQ\bob" in [entry.account for entry in queue.access().entries or ()]
    with connect(service, "bob") as bob:
        bob.open("shared").send("mine")


def test_the_sender_is_the_user_of_the_domain(domain: Domain, service: Service) -> None:
    with lanner.connect(data=service.data) as local:
        local.create_queue("letters", access={sid_of(domain, "Domain Users"): "send"})
        with connect(service, "bob") as bob:
            bob.open("letters").send("hello")
        message = local.open("letters").receive(timeout=0)
    assert message is not None
    assert (str(Sid.unpack(message.sender_id)), message.sender_verified) == (sid_of(domain, "bob"), True)


def test_administrators_of_the_domain_are_those_that_a_local_group_names(domain: Domain, service: Service) -> None:
    with connect(service, "carol") as carol, pytest.raises(AccessDenied):
        carol.queues()
    with lanner.connect(data=service.data) as local:
        local.set_user(sid_of(domain, "Domain Admins"), role="administrator")
        assert [user["role"] for user in local.users() if user["name"] == sid_of(domain, "Domain Admins")] == [
            "administrator"
        ]
    with connect(service, "carol") as carol:
        assert carol.queues()
