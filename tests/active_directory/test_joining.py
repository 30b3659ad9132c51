"""`lanner domain`: a computer joins a Samba domain, is renamed, is reinstalled and leaves."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

import lanner
from lanner.client.runtimes import runtime_of
from lanner.directory.ldap.computer_account import principals_of
from lanner.engine.queue_kinds import format_name_of
from lanner.host.membership import KEYTAB_FILE, MEMBERSHIP_FILE, Membership
from lanner.model.errors import AccessDenied
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.pdu import AuthLevel, AuthType
from lanner.rpc.security import Credentials
from lanner.security.keys import BEST_FIRST, QueueManagerKeys
from lanner.security.profile import Profile
from lanner.services.interfaces import mqrr
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.interfaces.mqmr import QMMGMT, R_QM_MGMT_GET_INFO
from lanner.services.interfaces.mqrr import REMOTE_READ
from lanner.services.management_client import get_info_arguments, get_info_values
from lanner.store import Store
from lanner.wire.property_ids import ManagementMachineProperty
from lanner.wire.user_certificates import UserSignCert, UserSignCerts
from tests.active_directory.domain import ADDRESS, DNS_DOMAIN, HOST, PASSWORD, REALM, ROOT, Domain
from tests.cli.conftest import Ran, Run
from tests.cli.conftest import data as data  # noqa: PLC0414 (a fixture)
from tests.cli.conftest import run as run  # noqa: PLC0414 (a fixture)
from tests.contract.service import Service
from tests.services.mqrr_peer import opening

_NAMES = itertools.count(1)


@dataclass
class Joining:
    """The command with what every joining needs."""

    run: Run
    domain: Domain
    data: Path
    password_file: Path
    name: str

    @property
    def dn(self) -> str:
        return f"CN={self.name},CN=Computers,{ROOT}"

    def administrator(self) -> list[str]:
        return ["--user", "MQ\\Administrator", "--password-file", str(self.password_file)]

    def join(self, *more: object, code: int = 0) -> Ran:
        given = [] if Store.exists(self.data) else ["--name", self.name]
        return self.run(
            "domain", "join", DNS_DOMAIN, "--name-server", ADDRESS, "--json", *given, *self.administrator(), *more,
            code=code,
        )  # fmt: skip

    def leave(self, *more: object, code: int = 0) -> Any:  # noqa: ANN401 (JSON)
        return self.run("domain", "leave", "--yes", "--json", *(more or self.administrator()), code=code).json

    def attributes(self, dn: str = "") -> dict[str, list[bytes]]:
        return self.domain.attributes(dn or self.dn)


@pytest.fixture
def joining(run: Run, domain: Domain, data: Path, tmp_path: Path) -> Joining:
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    password.chmod(0o600)
    return Joining(run, domain, data, password, f"JOIN{next(_NAMES)}")


@pytest.fixture(params=["kerberos", "ntlm"])
def authentication(request: pytest.FixtureRequest) -> str:
    if request.param == "kerberos":
        pytest.importorskip("gssapi", reason="the extra kerberos is not installed")
    return str(request.param)


def exists(domain: Domain, dn: str) -> bool:
    return domain.administrator.operations.exists(dn)


@pytest.mark.spec("DMPR-3.1.3-4")
def test_a_new_computer_joins_and_leaves(joining: Joining, authentication: str) -> None:
    done = joining.join("--authentication", authentication).json
    assert (done["computer"], done["made_account"]) == (joining.name, True)
    account = joining.attributes()
    assert account["dNSHostName"] == [f"{joining.name.lower()}.{DNS_DOMAIN}".encode()]
    assert f"HOST/{joining.name}".encode() in account["servicePrincipalName"]
    assert uuid.UUID(done["identifier"]) == joining.domain.guid(f"CN=msmq,{joining.dn}")
    encryption, _ = QueueManagerKeys.load_or_create(joining.data / "keys.json", Profile.SAFE).public_key_lists()
    assert joining.attributes(f"CN=msmq,{joining.dn}")["mSMQEncryptKey"] == [encryption]
    assert account["mSMQSignCertificates"]
    for name in (KEYTAB_FILE, MEMBERSHIP_FILE):
        assert (joining.data / name).stat().st_mode & 0o077 == 0
    status = joining.run("domain", "status", "--json").json
    assert status["problems"] == []
    assert (status["identifier"], status["authentication"]) == (done["identifier"], authentication)

    with lanner.QueueManager(joining.data) as manager:
        # As the DNS of the domain has them.
        assert runtime_of(manager).engine.queue_manager.directory_server_list == [HOST]
    # Every program that opens the data directory is in the domain then.
    joining.run("queue", "create", r".\orders")
    assert exists(joining.domain, f"CN=orders,CN=msmq,{joining.dn}")
    joining.run("send", r".\orders", "hello")

    left = joining.leave()
    assert left["remains"] == ""
    assert not exists(joining.domain, joining.dn)
    assert not (joining.data / MEMBERSHIP_FILE).exists()
    assert not (joining.data / KEYTAB_FILE).exists()
    assert joining.run("receive", r".\orders", "--raw").out == "hello"
    assert "is in no domain" in joining.run("domain", "status", code=1).err
    # And back again.
    assert joining.join().json["published"] == [rf"{joining.name}\orders"]
    joining.leave()


def test_an_account_that_the_domain_refuses(joining: Joining, authentication: str) -> None:
    """The domain refuses the computer; the queue manager itself works."""
    joining.join("--authentication", authentication)
    joining.run("queue", "create", "letters")
    # A domain accepts the former password by NTLM for a while, but not that of a disabled account.
    joining.domain.modify(joining.dn, unicodePwd='"Other-Pass1"'.encode("utf-16-le"), userAccountControl="4098")
    status = joining.run("domain", "status", code=1).out
    assert "problem: the domain cannot be reached as" in status
    joining.run("send", "letters", "hello")
    assert joining.run("receive", "letters", "--raw").out == "hello"
    refused = joining.run("domain", "leave", "--yes", "--as-computer", code=1).err
    assert "MQ_ERROR_CANNOT_JOIN_DOMAIN" in refused
    # A second joining of an account that exists takes a --yes, which sets a new password.
    joining.leave("--force")
    joining.join("--yes", "--authentication", authentication)
    assert joining.run("domain", "status", "--json").json["problems"] == []
    joining.leave()


def test_names_from_before_continue_to_mean_their_queues(joining: Joining) -> None:
    run = joining.run
    run("queue", "create", "letters", "--name", joining.name)
    run("queue", "create", r".\orders")
    with lanner.QueueManager(joining.data) as manager:
        engine = runtime_of(manager).engine
        former = engine.queue_manager.identifier
        names = {queue.pathname.rpartition("\\")[2]: format_name_of(queue) for queue in engine.local_queues()}
    run("send", "letters", "private before")
    run("send", r".\orders", "public before")
    done = joining.join().json
    assert uuid.UUID(done["identifier"]) != former
    assert done["published"] == [rf"{joining.name}\orders"]
    for name in ("letters", "orders"):
        assert run("receive", str(names[name]), "--raw").out.endswith("before")
    run("send", str(names["orders"]), "after")
    assert run("receive", r".\orders", "--raw").out == "after"
    # The computer may still change its object.
    run("queue", "set", r".\orders", "--label", "in the domain")
    assert joining.attributes(f"CN=orders,CN=msmq,{joining.dn}")["mSMQLabelEx"] == [b"in the domain"]
    run("queue", "access", "grant", r".\orders", "Everyone", "peek")
    joining.leave()
    run("send", str(names["letters"]), "after leaving")
    assert run("receive", "letters", "--raw").out == "after leaving"


@pytest.mark.parametrize("is_new", [True, False])
def test_the_account_has_a_certificate(joining: Joining, *, is_new: bool) -> None:
    """Others verify with it what this computer signs, notifications among others."""
    if not is_new:
        joining.run("queue", "create", "letters", "--name", joining.name)
    joining.join()
    keys = QueueManagerKeys.load_or_create(joining.data / "keys.json", Profile.SAFE)
    (listed,) = joining.attributes()["mSMQSignCertificates"]
    (entry,) = UserSignCerts.unpack(listed).certificates
    found = x509.load_der_x509_certificate(entry.certificate).public_key()
    assert isinstance(found, rsa.RSAPublicKey)
    assert found.public_numbers().n == keys.signing[BEST_FIRST[0]].modulus
    assert joining.attributes()["mSMQDigests"] == [entry.digest]
    assert joining.run("domain", "status", "--json").json["problems"] == []
    # A survey of the domain reads the accounts of its computers, too.
    joining.domain.delete_links()
    joining.domain.modify(joining.dn, mSMQSignCertificates=keys.public_key_lists()[1])
    assert joining.name in joining.run("directory", "show").out
    (problem,) = joining.run("domain", "status", "--json", code=1).json["problems"]
    assert "no certificate of this computer's signing key" in problem
    joining.leave()


def test_a_value_that_is_no_certificate_is_listed(joining: Joining) -> None:
    """Active Directory keeps what other programs write into the attribute."""
    joining.join()
    joining.domain.add_user("mallory")
    dn = f"CN=mallory,CN=Users,{ROOT}"
    octets = b"no certificate"
    joining.domain.modify(dn, mSMQSignCertificates=UserSignCerts((UserSignCert(uuid.uuid4(), octets),)).pack())
    sha256 = hashlib.sha256(octets).hexdigest()
    listed = joining.run("certificate", "list", "--json").lines
    (found,) = [one for one in listed if one["sha256"] == sha256]
    assert (found["subject"], found["not_valid_after"]) == ("(not a certificate)", "")
    assert "(not a certificate)" in joining.run("certificate", "list").out
    joining.domain.delete(dn)
    joining.leave()


def test_a_computer_leaves_that_has_principals_of_an_administrator(joining: Joining) -> None:
    joining.join()
    principals = (*principals_of(joining.name, DNS_DOMAIN), "host/127.0.0.66")
    joining.domain.modify(joining.dn, servicePrincipalName=principals)
    assert "with its service principals" in joining.leave("--as-computer")["remains"]
    assert not exists(joining.domain, f"CN=msmq,{joining.dn}")
    joining.domain.delete(joining.dn)


def test_messages_on_their_way_keep_a_computer_from_joining(joining: Joining) -> None:
    joining.run("queue", "create", "letters", "--name", joining.name)
    joining.run("send", r"DIRECT=OS:elsewhere\private$\q", "on its way")
    error = joining.join(code=1).err
    assert "1 messages for other computers wait" in error
    assert not exists(joining.domain, joining.dn)
    assert not (joining.data / MEMBERSHIP_FILE).exists()


def test_an_account_that_an_administrator_has_made(joining: Joining) -> None:
    joining.domain.add_computer(joining.name)
    done = joining.run(
        "domain", "join", DNS_DOMAIN, "--name-server", ADDRESS, "--json", "--name", joining.name,
        "--own-account", "--password-file", joining.password_file,
    ).json  # fmt: skip
    assert done["made_account"] is False
    assert exists(joining.domain, f"CN=msmq,{joining.dn}")
    assert joining.run("domain", "status", "--json").json["problems"] == []
    # The password that the administrator knew is no longer that of the account.
    membership = Membership.load(joining.data)
    assert membership is not None
    assert membership.password != PASSWORD
    left = joining.leave("--as-computer")
    assert "which an administrator can delete" in left["remains"]
    assert not exists(joining.domain, f"CN=msmq,{joining.dn}")
    assert "mSMQSignCertificates" not in joining.attributes()
    assert not any(joining.name.encode() in one for one in joining.attributes().get("servicePrincipalName", []))


def test_a_computer_that_is_set_up_again(joining: Joining, tmp_path: Path) -> None:
    first = joining.join().json
    joining.run("queue", "create", r".\orders", "--label", "kept in the domain")
    joining.data.rename(tmp_path / "lost")
    assert "set up again" in joining.run(
        "domain", "join", DNS_DOMAIN, "--name-server", ADDRESS, "--name", joining.name, *joining.administrator(),
        code=1,
    ).err  # fmt: skip
    again = joining.join("--yes").json
    assert again["identifier"] == first["identifier"]
    assert again["made_account"] is False
    assert again["restored"] == [rf"{joining.name}\orders"]
    joining.run("send", r".\orders", "to the restored queue")
    shown = joining.run("queue", "show", r".\orders", "--json").json
    assert shown["label"] == "kept in the domain"
    assert joining.run("domain", "status", "--json").json["problems"] == []
    joining.leave()


def test_a_computer_is_renamed(joining: Joining) -> None:
    first = joining.join().json
    joining.run("queue", "create", r".\orders")
    joining.run("send", r".\orders", "from before")
    old, joining.name = joining.dn, f"{joining.name}NEW"
    joining.run("domain", "rename", joining.name, *joining.administrator())
    assert not exists(joining.domain, old)
    status = joining.run("domain", "status", "--json").json
    assert (status["computer"], status["identifier"]) == (joining.name, first["identifier"])
    assert (status["problems"], status["public_queues"]) == ([], 1)
    assert f"HOST/{joining.name}".encode() in joining.attributes()["servicePrincipalName"]
    assert joining.run("receive", rf"{joining.name}\orders", "--raw").out == "from before"
    joining.leave()


def test_leaving_without_the_domain(joining: Joining) -> None:
    joining.join()
    joining.run("queue", "create", r".\orders")
    left = joining.leave("--force")
    assert left["remains"] == "all objects of the computer"
    assert exists(joining.domain, f"CN=orders,CN=msmq,{joining.dn}")
    joining.run("send", r".\orders", "here")
    joining.domain.delete(joining.dn)


def test_what_cannot_be_joined(joining: Joining) -> None:
    error = joining.run(
        "domain", "join", "nowhere.test", "--name-server", ADDRESS, *joining.administrator(), code=1
    ).err
    assert "no domain controller found" in error
    assert "the domain has no such site" in joining.join("--site", "nowhere", code=1).err
    wrong = joining.password_file.with_name("wrong")
    wrong.write_text("wrong\n")
    error = joining.run(
        "domain", "join", DNS_DOMAIN, "--name-server", ADDRESS, "--user", "MQ\\Administrator",
        "--password-file", wrong, "--name", joining.name, code=1,
    ).err  # fmt: skip
    assert "MQ\\Administrator" in error
    assert not Store.exists(joining.data)
    joining.join()
    assert "is a member of the domain" in joining.join(code=1).err
    with pytest.raises(lanner.errors.LannerError, match="lanner domain rename OTHER"):
        lanner.QueueManager(joining.data, "OTHER").open(".")
    joining.leave()


@pytest.fixture
def ticket(domain: Domain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ticket of the administrator, as kinit gets it."""
    pytest.importorskip("gssapi", reason="the extra kerberos is not installed")
    import gssapi

    cache = tmp_path / "tickets"
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    name = gssapi.Name(f"Administrator@{REALM}", gssapi.NameType.kerberos_principal)
    acquired = gssapi.raw.acquire_cred_with_password(name, PASSWORD.encode())
    gssapi.raw.store_cred_into({b"ccache": f"FILE:{cache}".encode()}, acquired.creds, usage="initiate", overwrite=True)


def test_with_the_ticket_of_an_administrator(joining: Joining, ticket: None) -> None:
    joining.run(
        "domain", "join", DNS_DOMAIN, "--name-server", ADDRESS, "--json", "--name", joining.name
    )  # fmt: skip
    assert exists(joining.domain, f"CN=msmq,{joining.dn}")
    joining.run("domain", "leave", "--yes")
    assert not exists(joining.domain, joining.dn)


@pytest.mark.spec("MQRR-1.7-4")
@pytest.mark.spec("MQMR-2.3-1")
def test_domain_users_log_on_at_the_service_of_a_member(joining: Joining, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service uses the keytab that joining wrote.

    `lanner queue access grant` finds groups by their names.
    """
    pytest.importorskip("gssapi", reason="the extra kerberos is not installed")
    monkeypatch.setenv("KRB5CCNAME", "MEMORY:")
    monkeypatch.setenv("KRB5RCACHEDIR", str(joining.domain.path))
    user, group = f"clerk{joining.name}", f"Clerks{joining.name}"
    joining.domain.add_user(user)
    files = ["-H", str(joining.domain.path / "private" / "sam.ldb")]
    joining.domain.tool("group", "add", group, *files)
    joining.domain.tool("group", "addmembers", group, user, *files)
    service = Service(joining.data)
    joining.name = "ALPHA"
    try:
        assert "stop it first" in joining.join(code=1).err
        service.stop()
        joining.join()
        principals = (*principals_of("ALPHA", DNS_DOMAIN), f"host/{service.address}")
        joining.domain.modify(joining.dn, servicePrincipalName=principals)
        service.start()
        joining.run("queue", "create", "orders")
        joining.run("queue", "access", "grant", "orders", rf"MQ\{group}", "receive")
        assert rf"MQ\{group}" in joining.run("queue", "access", "show", "orders").out
        with pytest.raises(AssertionError, match="has no such account"):
            joining.run("queue", "access", "grant", "orders", r"MQ\nobody", "receive")
        joining.run("send", "orders", "for the clerks")
        with lanner.connect(
            service.address, user=f"{user}@{REALM}", password=PASSWORD, authentication="kerberos"
        ) as clerk:
            message = clerk.open("orders").receive(timeout=0)
            assert message is not None
            assert message.value == "for the clerks"
            with pytest.raises(AccessDenied):
                clerk.create_queue("mine")
        asyncio.run(windows_calls(service, user))
    finally:
        service.close()
    joining.leave()


async def windows_calls(service: Service, user: str) -> None:
    """The calls of a Windows computer of the domain, with Kerberos at level privacy.

    They are remote read and management.
    """
    options: dict[str, Any] = {"auth_type": AuthType.GSS_KERBEROS, "level": AuthLevel.PKT_PRIVACY}
    credentials = Credentials(f"{user}@{REALM}", PASSWORD)
    async with await connect_tcp(service.address, 2103, credentials=credentials, **options) as client:
        bound = await client.bind(REMOTE_READ)
        name = QueueFormat(3, 0, 0, "OS:ALPHA\\private$\\orders")
        await bound.call(mqrr.R_OPEN_QUEUE, **opening(name))
    operator = Credentials("alice", "secret")
    async with await connect_tcp(service.address, 2103, credentials=operator) as client:
        bound = await client.bind(QMMGMT)
        asked = get_info_arguments(None, [ManagementMachineProperty.DSSERVER])
        (value,) = get_info_values(await bound.call(R_QM_MGMT_GET_INFO, **asked))
        # The directory is that of the domain.
        assert value.value == f"\\\\{HOST}"
