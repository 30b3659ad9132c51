"""Three queue managers as processes in two sites of a Samba domain.

Each becomes a member by `lanner domain join`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import lanner
import lanner.com
from lanner.client._sync.mqrr_reader import MqrrReader
from lanner.client.remote_message import from_remote_read
from lanner.client.target import Target
from lanner.directory.ldap.computer_account import principals_of
from lanner.directory.ldap.connection import LdapRefused
from lanner.model.directory_objects import GUID_NULL, RoutingLink, Site, User
from lanner.model.enums import DirectoryOperationResult
from lanner.model.errors import AccessDenied, StatusError
from lanner.rpc.security import Credentials
from lanner.security.certificates import add_certificate
from lanner.security.internal_certificates import InternalCertificates
from lanner.security.signing import SigningKey
from lanner.security.users import USER_FILE, UserFile
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.sid import Sid
from tests.active_directory.conftest import equals, made
from tests.active_directory.domain import ADDRESS, DNS_DOMAIN, PASSWORD, REALM, ROOT, Domain
from tests.client.other_manager import until
from tests.client.peers import free_address

LANNER: Final = Path(sys.executable).with_name("lanner")
# Operators of each queue manager, for COM.
OPERATOR: Final = "operator"
OPERATOR_PASSWORD: Final = "Pass-word1"


class Member:
    """A computer of the domain with `lanner serve`."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.address = free_address()
        self.data = folder / name.lower()
        self.config = folder / f"{name.lower()}.toml"
        self.log = folder / f"{name.lower()}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def dn(self) -> str:
        return f"CN={self.name},CN=Computers,{ROOT}"

    def run(self, *arguments: object) -> str:
        done = subprocess.run(
            [LANNER, *map(str, arguments), "--data", self.data], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def tries(self, *arguments: object) -> bool:
        """Run a command; return whether it succeeded."""
        command: list[str | Path] = [LANNER, *map(str, arguments), "--data", self.data]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def json(self, *arguments: object) -> Any:  # noqa: ANN401 (JSON)
        return json.loads(self.run(*arguments, "--json"))

    def start(self, peers: list[Member]) -> None:
        others = "".join(f'"{one.name.lower()}.{DNS_DOMAIN}" = "{one.address}"\n' for one in peers)
        self.config.write_text(
            f'bind = "{self.address}"\n[flight]\nenabled = false\n[http]\nenabled = false\n'
            f"[transfer]\nround_trip_delay = 1\n[peers]\n{others}"
        )
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [LANNER, "serve", "--config", self.config, "--data", self.data, "--json"],
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), self.log.read_text()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.communicate(timeout=30)

    def manager(self) -> lanner.QueueManager:
        return lanner.connect(data=self.data)


def received(member: Member, queue: str, timeout: float = 30) -> lanner.ReceivedMessage:
    with member.manager() as manager:
        return manager.open(queue).receive(timeout=timeout)


@pytest.fixture
def members(domain: Domain, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Member, Member, Member]]:
    """WESTQM in the west, EASTQM in the east, and GATEQM, the gate of the link between them."""
    pytest.importorskip("gssapi", reason="the extra kerberos is not installed")
    monkeypatch.setenv("KRB5CCNAME", "MEMORY:")
    monkeypatch.setenv("KRB5RCACHEDIR", str(domain.path))
    west, east = (made(domain.administrator.create_object(Site(name=name))) for name in ("WEST3", "EAST3"))
    folder = Path(tempfile.mkdtemp(prefix="three"))
    password = folder / "password"
    password.write_text(PASSWORD)
    found = tuple(Member(name, folder) for name in ("WESTQM", "GATEQM", "EASTQM"))
    sites = {"WESTQM": ["WEST3"], "GATEQM": ["WEST3", "EAST3"], "EASTQM": ["EAST3"]}
    by = ["--user", "MQ\\Administrator", "--password-file", str(password)]
    try:
        for one in found:
            more = [part for site in sites[one.name] for part in ("--site", site)]
            if one.name == "GATEQM":
                more.append("--routing-server")
            one.json("domain", "join", DNS_DOMAIN, "--name-server", ADDRESS, "--name", one.name, *by, *more)
            principals = (*principals_of(one.name, DNS_DOMAIN), f"host/{one.address}")
            domain.modify(one.dn, servicePrincipalName=principals)
            UserFile(one.data / USER_FILE).add(OPERATOR, OPERATOR_PASSWORD, administrator=True)
        link = RoutingLink(identifier=GUID_NULL, site1_identifier=west, site2_identifier=east, actual_cost=1)
        link.site_gate_identifier_list = [domain.guid(f"CN=msmq,{found[1].dn}")]
        made(domain.administrator.create_object(link))
        for one in found:
            one.start([other for other in found if other is not one])
        yield found[0], found[1], found[2]
    finally:
        for one in found:
            one.stop()
        # Not by `leave`: it is refused while a message waits for another computer.
        for one in found:
            with contextlib.suppress(LdapRefused):
                domain.delete(one.dn)
        shutil.rmtree(folder)


def lookup(member: Member, label: str) -> str:
    """Find a public queue by its label with MSMQQuery of a queue manager; its format name."""
    with lanner.com.connect(member.address, OPERATOR, OPERATOR_PASSWORD) as computer:
        query = computer.dispatch("MSMQ.MSMQQuery")
        infos = query.LookupQueue(Label=label)
        infos.Reset()
        info = infos.Next()
        assert info is not None, f"{member.name} does not find {label}"
        return str(info.FormatName)


def read_remotely(member: Member, queue: str) -> lanner.ReceivedMessage:
    """Receive a message by MS-MQRR; the reader gives up an open that takes 300 seconds."""
    operator = Credentials(OPERATOR, OPERATOR_PASSWORD, "")
    target = Target(member.address, credentials=operator)
    with MqrrReader.connect(target, client_id=uuid.uuid4(), open_timeout=300) as reader:
        name = parse(queue)
        reader.open_for_move(name).close()
        with pytest.raises(StatusError):
            reader.enlist(bytes(range(16)), b"no token", name)
        return from_remote_read(reader.open(name).receive(30_000))


@pytest.mark.spec("MQRR-3.1.2.1-1", "MQRR-3.1.2.1-5")
@pytest.mark.spec("MQRR-2.3-1/public queues of a domain")
def test_three_members_in_two_sites(domain: Domain, members: tuple[Member, Member, Member]) -> None:
    west, gate, east = members
    # Public queues are found by name from each, and used.
    for one in members:
        one.run("queue", "create", r".\orders", "--label", f"orders of {one.name}")
    for one in members:
        for other in members:
            name = lookup(one, f"orders of {other.name}")
            assert name.upper() == f"PUBLIC={domain.guid(f'CN=orders,CN=msmq,{other.dn}')}".upper()
            one.run("send", name, f"{one.name} to {other.name}")
    for other in members:
        bodies = {received(other, r".\orders").value for _ in members}
        assert bodies == {f"{one.name} to {other.name}" for one in members}
    # West and east have no site in common: the gate of the link passes messages on.
    target = lookup(west, "orders of EASTQM")
    west.run("send", target, "over the link")
    routed = received(east, r".\orders")
    assert (routed.value, Message(routed.packet).route_count) == ("over the link", 1)

    # Encrypted with the key that the directory has; the queue takes no other.
    east.run("queue", "create", r".\secrets", "--label", "secrets", "--privacy", "body")
    secrets = lookup(west, "secrets")
    west.run("send", secrets, "for your eyes", "--encrypt")
    secret = received(east, r".\secrets")
    assert secret.value == "for your eyes"

    # A user of the domain signs; the certificate is on her object in the directory.
    log_on = domain.add_user("sigrid")
    sid = str(Sid.unpack(domain.attributes(f"CN=sigrid,CN=Users,{ROOT}", "objectSid")["objectSid"][0]))
    east.run("queue", "create", r".\signed", "--label", "signed", "--authenticate")
    east.run("queue", "access", "grant", r".\signed", r"MQ\sigrid", "send")
    west.run("queue", "create", "any")
    with lanner.connect(west.address, user=f"sigrid@{REALM}", password=PASSWORD, authentication="kerberos") as sigrid:
        certificate = InternalCertificates(west.data.parent / "sigrid.json").find_or_create(
            sid, "sigrid", dt.datetime.now(dt.UTC)
        )
        # As a Windows computer does it: with her own rights.
        own = domain.directory(log_on)
        _, user = own.read("User", [equals("SecurityIdentifier", Sid.parse(sid).pack())])
        assert isinstance(user, User)
        add_certificate(user, certificate.certificate)
        assert own.write(user, ["Certificates", "CertificateDigestList"]) is DirectoryOperationResult.SUCCESS
        sigrid.signing_key = SigningKey.load(certificate.certificate, certificate.private_key)
        sigrid.open(lookup(west, "signed")).send(
            lanner.Message(body="signed by me", authenticate=True, recoverable=True)
        )
    signed = received(east, r".\signed")
    assert (signed.value, signed.authenticated) == ("signed by me", True)
    assert str(Sid.unpack(signed.sender_id)) == sid

    # A user and a group of the domain in an access list.
    domain.tool("group", "add", "Eastern", "-H", str(domain.path / "private" / "sam.ldb"))
    domain.add_user("erik")
    domain.tool("group", "addmembers", "Eastern", "erik", "-H", str(domain.path / "private" / "sam.ldb"))
    east.run("queue", "create", "files")
    east.run("queue", "access", "grant", "files", r"MQ\Eastern", "receive")
    east.run("send", "files", "for the group")
    with (
        lanner.connect(east.address, user=f"sigrid@{REALM}", password=PASSWORD, authentication="kerberos") as sigrid,
        pytest.raises(AccessDenied),
    ):
        sigrid.open("files").receive(timeout=0)
    east.run("queue", "access", "grant", "files", r"MQ\sigrid", "peek")
    with lanner.connect(east.address, user=f"sigrid@{REALM}", password=PASSWORD, authentication="kerberos") as sigrid:
        assert sigrid.open("files").peek(timeout=0).value == "for the group"
    with lanner.connect(east.address, user=f"erik@{REALM}", password=PASSWORD, authentication="kerberos") as erik:
        assert erik.open("files").receive(timeout=0).value == "for the group"

    # Without the domain controller what is known goes on; with it everything does.
    domain.stop()
    try:
        west.run("send", target, "while it was away")
        assert read_remotely(east, target).value == "while it was away"
    finally:
        domain.start()
    # A queue manager looks every few seconds whether a controller is there again.
    until(lambda: east.tries("queue", "create", r".\second", "--label", "second"))
    gate.run("send", lookup(gate, "second"), "again")
    assert received(east, r".\second").value == "again"
