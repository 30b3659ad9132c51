"""The connection to a Samba domain controller by LDAPS, bound with a name and a password."""

from __future__ import annotations

import socket
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lanner.daemon.domain import member_of
from lanner.daemon.settings import SettingsError, load_settings
from lanner.directory.ldap import LdapDirectory, Ldaps, LogOn, Server
from lanner.directory.ldap.connection import ConnectionFailed, LdapConnection, LdapRefused
from lanner.directory.ldap.ldaps import LDAPS_PORT
from lanner.directory.ldap.messages import SaslBind, Scope, Search, SimpleBind
from lanner.host.membership import Membership
from lanner.model.enums import DirectoryOperationResult
from lanner.security.profile import Profile
from tests.active_directory.conftest import Wire, World, equals
from tests.active_directory.domain import ADDRESS, ADMINISTRATOR, DNS_DOMAIN, HOST, PASSWORD, ROOT, SERVER, Domain
from tests.active_directory.test_joining import Joining, exists
from tests.active_directory.test_joining import joining as joining  # noqa: PLC0414 (a fixture)
from tests.active_directory.test_service import settings_of
from tests.cli.conftest import data as data  # noqa: PLC0414 (a fixture)
from tests.cli.conftest import run as run  # noqa: PLC0414 (a fixture)
from tests.transfer.tls_files import issue

SUCCESS = DirectoryOperationResult.SUCCESS
NOT_CONNECTED = DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
NOBODY = Server("nobody.mq.test", "127.0.0.11")


@pytest.fixture
def ldaps(domain: Domain) -> Ldaps:
    return Ldaps(DNS_DOMAIN, domain.authority)


def connect(ldaps: Ldaps, host: str = HOST, log_on: LogOn = ADMINISTRATOR) -> LdapConnection:
    return LdapConnection(host, ADDRESS, SERVER.port, replace(log_on, ldaps=ldaps))


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """Make an authority that has issued nothing to the domain controller."""
    return issue(tmp_path, "stranger", may_issue=True).certificate_file


def test_all_traffic_is_tls(ldaps: Ldaps, wire: Wire) -> None:
    connection = connect(ldaps)
    assert isinstance(connection._socket, ssl.SSLSocket)
    assert connection._socket.getpeername() == (ADDRESS, LDAPS_PORT)
    assert connection._socket.version() in ("TLSv1.2", "TLSv1.3")
    assert wire.requests(SimpleBind) == [SimpleBind(ADMINISTRATOR.user, PASSWORD)]
    assert not wire.requests(SaslBind)
    assert PASSWORD not in repr(wire.requests(SimpleBind))
    assert not connection.is_closed
    everything = Search(ROOT, Scope.SUBTREE, attributes=("cn",))
    assert sum(map(len, connection.search_paged(everything))) > 100
    connection.close()


@pytest.mark.parametrize("name", ["MQ\\{}$", "{}$@mq.test"])
def test_the_account_of_a_computer(world: World, ldaps: Ldaps, name: str) -> None:
    """It creates its own objects, and finds queues, as over a sealed connection."""
    log_on = LogOn(name.format(world.computer), PASSWORD, ldaps=ldaps)
    world.directory = world.as_account(log_on)
    world.add_manager()
    identifier = world.add_queue("orders", label="over TLS")
    assert [one.identifier for one in world.all("Queue", [equals("Label", "over TLS")])] == [identifier]
    other = world.directory.apart()
    assert other.read("Queue", [equals("Identifier", identifier)], ["Label"])[0] is SUCCESS
    # This takes Kerberos.
    assert other.acting_for("MQ\\Administrator") is None


def test_the_next_controller_is_tried(ldaps: Ldaps) -> None:
    directory = LdapDirectory(lambda: [NOBODY, SERVER], replace(ADMINISTRATOR, ldaps=ldaps))
    assert directory.initialize() is SUCCESS
    assert directory.operations.servers() == [SERVER, NOBODY]
    assert directory.server == HOST


def test_a_controller_that_does_not_answer_is_left(ldaps: Ldaps, monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts connections, and does not say a word of TLS."""
    monkeypatch.setattr("lanner.directory.ldap.connection.CONNECT_TIMEOUT", 1.0)
    with socket.create_server((NOBODY.address, LDAPS_PORT)):
        directory = LdapDirectory(lambda: [NOBODY, SERVER], replace(ADMINISTRATOR, ldaps=ldaps))
        assert directory.initialize() is SUCCESS
        assert directory.operations.servers() == [SERVER, NOBODY]


def test_the_controller_goes_and_comes_back(domain: Domain, ldaps: Ldaps) -> None:
    directory = domain.directory(replace(ADMINISTRATOR, ldaps=ldaps))
    directory.operations.linger()
    connection = directory.operations.prepare()
    domain.stop()
    try:
        assert connection.is_closed
        assert directory.read("Enterprise", None)[0] is NOT_CONNECTED
    finally:
        domain.start()
    assert directory.read("Enterprise", None)[0] is SUCCESS
    for _ in range(2):
        directory.operations.shut_down()


def test_no_password_without_a_proven_name(ldaps: Ldaps, stranger: Path, tmp_path: Path, wire: Wire) -> None:
    missing = tmp_path / "missing.pem"
    (empty := tmp_path / "empty.pem").touch()
    setting = r"directory\.tls_authorities \(lanner domain join --tls-authorities\)"
    for refused, host, why in (
        (replace(ldaps, authorities=stranger), HOST, rf"{HOST} .*port 636: .*not trusted .*stranger.*{setting}"),
        (replace(ldaps, authorities=None), HOST, rf"not trusted .* by this machine: .*{setting}"),
        (replace(ldaps, authorities=missing), HOST, rf"no certificate can be read from {missing} .*No such file"),
        (replace(ldaps, authorities=empty), HOST, rf"no certificate can be read from {empty} "),
        (ldaps, "dc2.mq.test", r"dc2\.mq\.test .*its certificate has another name .*'dc2\.mq\.test'"),
        (ldaps, "dc1.mq.test.example", r"only to hosts of the domain mq\.test"),
        (ldaps, "dc1.notmq.test", r"only to hosts of the domain mq\.test"),
        (replace(ldaps, port=389), HOST, r"port 389: it does not answer with TLS .*plain LDAP"),
        (replace(ldaps, port=9), HOST, r"port 9: .*refused"),
    ):
        with pytest.raises(ConnectionFailed, match=why):
            connect(refused, host)
    assert len(wire) == 0


def test_this_machine_may_trust_the_authority(ldaps: Ldaps, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if its certificate were in the store of the system."""
    monkeypatch.setenv("SSL_CERT_FILE", str(ldaps.authorities))
    connect(replace(ldaps, authorities=None)).close()


def test_old_versions_of_tls_are_refused(ldaps: Ldaps) -> None:
    assert ldaps._context().minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_bind_that_is_refused(domain: Domain, ldaps: Ldaps, wire: Wire) -> None:
    with pytest.raises(LdapRefused, match=r"bind as MQ\\Administrator to dc1.mq.test: the name or the password"):
        connect(ldaps, log_on=LogOn("MQ\\Administrator", "wrong"))
    wire.clear()
    # A domain controller would take these for anonymous.
    for nobody in (LogOn("MQ\\Administrator", ""), LogOn("", PASSWORD), LogOn(protocol="kerberos")):
        with pytest.raises(ConnectionFailed, match="LDAPS needs a name and a password"):
            connect(ldaps, log_on=nobody)
    assert len(wire) == 0


def test_only_a_located_controller_is_told_the_password(domain: Domain, ldaps: Ldaps) -> None:
    """The name of another server may come from another computer, which may have a certificate."""
    asked: list[str] = []

    def find_server(name: str) -> list[Server]:
        asked.append(name)
        return [SERVER]

    log_on = replace(ADMINISTRATOR, ldaps=ldaps)
    directory = LdapDirectory(lambda: [SERVER], log_on, find_server=find_server)
    assert directory.initialize() is SUCCESS
    assert directory.read_at(HOST, "Enterprise", None)[0] is SUCCESS
    assert directory.read_at("other.mq.test", "Enterprise", None)[0] is NOT_CONNECTED
    assert not asked


# As a member of the domain
# ------------------------------------------------------------------------------------------------


def join(joining: Joining, *more: object, **options: Any) -> Any:  # noqa: ANN401 (JSON)
    return joining.join("--ldaps", "--tls-authorities", joining.domain.authority, *more, **options)


def test_a_computer_joins_works_and_leaves(joining: Joining, wire: Wire) -> None:
    with joining.domain.connected():
        wire.clear()
    done = join(joining).json
    assert (done["made_account"], done["authentication"]) == (True, "ldaps")
    status = joining.run("domain", "status", "--json").json
    assert (status["problems"], status["authentication"]) == ([], "ldaps")
    joining.run("queue", "create", r".\orders", "--label", "over TLS")
    assert joining.attributes(f"CN=orders,CN=msmq,{joining.dn}")["mSMQLabelEx"] == [b"over TLS"]
    membership = Membership.load(joining.data)
    assert membership is not None
    directory = membership.directory(Profile.SAFE, 60)
    result, found = directory.read("Queue", [equals("Label", "over TLS")], ["Identifier"])
    directory.close()
    assert result is SUCCESS
    assert found is not None
    assert found.identifier == joining.domain.guid(f"CN=orders,CN=msmq,{joining.dn}")
    joining.run("send", f"{joining.name}\\orders", "hello")
    assert joining.run("receive", r".\orders", "--raw").out == "hello"
    joining.run("domain", "rename", f"{joining.name}NEW", *joining.administrator())
    joining.name = f"{joining.name}NEW"
    assert joining.run("domain", "status", "--json").json["problems"] == []
    left = joining.leave()
    assert not wire.requests(SaslBind)
    assert {"MQ\\Administrator", f"MQ\\{joining.name}$"} <= {one.name for one in wire.requests(SimpleBind)}
    assert left["remains"] == ""
    assert not exists(joining.domain, joining.dn)


def test_an_account_that_an_administrator_has_made(joining: Joining, wire: Wire) -> None:
    joining.domain.add_computer(joining.name)
    wire.clear()
    done = joining.run(
        "domain", "join", DNS_DOMAIN, "--name-server", ADDRESS, "--json", "--name", joining.name, "--own-account",
        "--password-file", joining.password_file, "--ldaps", "--tls-authorities", joining.domain.authority,
    ).json  # fmt: skip
    assert done["made_account"] is False
    membership = Membership.load(joining.data)
    assert membership is not None
    assert membership.password != PASSWORD
    assert joining.run("domain", "status", "--json").json["problems"] == []
    joining.leave("--as-computer")
    assert not wire.requests(SaslBind)


def test_what_cannot_be_joined(joining: Joining, stranger: Path) -> None:
    assert "not trusted" in joining.join("--ldaps", "--tls-authorities", stranger, code=1).err
    wrong = joining.password_file.with_name("wrong")
    wrong.write_text("wrong\n")
    assert "the name or the password is wrong" in join(joining, "--password-file", wrong, code=1).err
    assert not exists(joining.domain, joining.dn)
    assert "without --authentication" in join(joining, "--authentication", "ntlm", code=2).err
    assert "goes with --ldaps" in joining.join("--tls-authorities", stranger, code=2).err
    no_user = joining.run("domain", "join", DNS_DOMAIN, "--name", joining.name, "--ldaps", code=2).err
    assert "--ldaps goes with --user" in no_user


def test_a_member_by_settings(world: World, domain: Domain, stranger: Path, tmp_path: Path, wire: Wire) -> None:
    table = settings_of(world, tmp_path, ldaps=True, tls_authorities=domain.authority)
    member = member_of(table, tmp_path / "data", Profile.SAFE)
    assert member is not None
    assert member.site == world.site
    member.directory.close()
    assert wire.requests(SimpleBind)
    other = settings_of(world, tmp_path, ldaps=True, tls_authorities=stranger)
    with pytest.raises(SettingsError, match="the domain cannot be reached as the account"):
        member_of(other, tmp_path / "data", Profile.SAFE)


def test_settings_that_contradict_each_other(tmp_path: Path) -> None:
    config = tmp_path / "lanner.toml"
    member = 'domain = "mq.test"\naccount = "QM1$@MQ.TEST"\n'
    for text, why in (
        ('ldaps = true\nkeytab = "computer.keytab"', r"directory\.ldaps takes directory\.password_file"),
        ('tls_authorities = "ca.pem"', r"set directory\.ldaps = true"),
    ):
        config.write_text(f"[directory]\n{member}{text}\n")
        with pytest.raises(SettingsError, match=why):
            load_settings(config, {})
    config.write_text(f'[directory]\n{member}ldaps = true\ntls_authorities = "ca.pem"\n')
    assert load_settings(config, {}).directory.tls_authorities == Path("ca.pem")
