"""MSMQApplication (MC-MQAC 3.2)."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lanner.activex.application import MSMQApplication
from lanner.activex.tables import IMSMQ_APPLICATION, IMSMQ_APPLICATION2, IMSMQ_APPLICATION3
from lanner.com.automation.values import EMPTY, MISSING, SafeArray, Variant
from lanner.com.constants import E_INVALIDARG, E_NOTIMPL
from lanner.com.objects import Success
from lanner.host.committer import Committer
from lanner.model.directory_objects import User
from lanner.model.enums import DirectoryOperationResult, QueueManagerState
from lanner.rpc.server import RpcServer
from lanner.security.certificates import CertificateWithKey, generate_certificate
from lanner.security.identity import ANONYMOUS, Identity
from lanner.services.management import ManagementService
from lanner.wire.sid import Sid
from lanner.wire.user_certificates import UserSignCerts
from lanner.wire.vartypes import VT
from tests.activex.world import World
from tests.engine.harness import Harness
from tests.statuses import (
    MQ_ERROR_ACCESS_DENIED,
    MQ_ERROR_DS_ERROR,
    MQ_ERROR_ILLEGAL_PROPERTY_VALUE,
    MQ_ERROR_ILLEGAL_USER,
    MQ_ERROR_INVALID_CERTIFICATE,
    MQ_ERROR_INVALID_PARAMETER,
    MQ_ERROR_MACHINE_NOT_FOUND,
    MQ_ERROR_NO_DS,
    MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE,
    MQ_ERROR_SERVICE_NOT_AVAILABLE,
    MQ_INFORMATION_INTERNAL_USER_CERT_EXIST,
)

ALICE = Identity("alice", Sid.parse("S-1-5-21-1-2-3-1001"), is_domain_user=True)
OPERATOR = Identity("operator", ANONYMOUS.sid, is_administrator=True)


def i4(value: int) -> Variant:
    return Variant(VT.I4, value)


def octets(value: bytes) -> Variant:
    return Variant(VT.ARRAY | VT.UI1, value)


@pytest.fixture
def application(world: World) -> MSMQApplication:
    return MSMQApplication(world.environment)


@pytest.mark.spec("MQAC-3.2.4-1")
def test_revisions() -> None:
    tables = (IMSMQ_APPLICATION, IMSMQ_APPLICATION2, IMSMQ_APPLICATION3)
    slots = [[member.opnum for member in table.members] for table in tables]
    assert slots == [[7], list(range(7, 15)), list(range(7, 25))]
    assert MSMQApplication.interfaces == tables


@pytest.mark.spec("MQAC-3.2.4.2.7-1")
def test_properties_are_not_implemented(world: World, application: MSMQApplication) -> None:
    assert world.status(application, "get_properties") == E_NOTIMPL


class TestDirectory:
    @pytest.mark.spec("MQAC-3.2.4.1.1-1", "MQAC-3.2.3-1")
    @pytest.mark.parametrize("name", [None, "", "ALPHA", "alpha", "alpha.example.com"])
    def test_identifier_of_a_name(self, world: World, application: MSMQApplication, name: str | None) -> None:
        """36 characters, no braces; without a name it is this computer's."""
        found = world.call(application, "machine_id_of_machine_name", name)
        assert len(found) == 36
        assert uuid.UUID(found) == world.engine.queue_manager.identifier

    @pytest.mark.spec("MQAC-3.2.4.1.1-2", "MQAC-3.2.4.2.2-1")
    def test_directory_failures(self, world: World, application: MSMQApplication) -> None:
        assert world.status(application, "machine_id_of_machine_name", "BETA") == MQ_ERROR_MACHINE_NOT_FOUND
        assert world.status(application, "machine_name_of_machine_id", str(uuid.uuid4())) == MQ_ERROR_MACHINE_NOT_FOUND
        with world.held() as h:
            h.directory.connected = False
        assert world.status(application, "machine_id_of_machine_name", "BETA") == MQ_ERROR_NO_DS
        assert world.status(application, "machine_name_of_machine_id", str(uuid.uuid4())) == MQ_ERROR_NO_DS
        failure = (DirectoryOperationResult.GENERIC_ERROR, None)
        with world.held() as h:
            h.directory.answers["read"] = lambda *_: failure
        assert world.status(application, "machine_id_of_machine_name", "BETA") == MQ_ERROR_DS_ERROR

    @pytest.mark.spec("MQAC-3.2.4.2.2-1")
    def test_name_of_an_identifier(self, world: World, application: MSMQApplication) -> None:
        identifier = str(world.engine.queue_manager.identifier)
        for given in (identifier, f"{{{identifier}}}", identifier.upper()):
            assert world.call(application, "machine_name_of_machine_id", given) == "ALPHA"
        for wrong in ("x", "", None, f"{{{identifier}", identifier + "}"):
            assert world.status(application, "machine_name_of_machine_id", wrong) == MQ_ERROR_ILLEGAL_PROPERTY_VALUE

    @pytest.mark.spec("MQAC-3.2.4.2.6-1")
    @pytest.mark.parametrize("integrated", [False, True])
    def test_is_ds_enabled(self, new_world: Callable[..., World], integrated: bool) -> None:
        world = new_world(directory_integrated=integrated)
        application = MSMQApplication(world.environment)
        assert world.call(application, "get_is_ds_enabled") is integrated
        world.call(application, "put_machine", "BETA")
        assert world.status(application, "get_is_ds_enabled") == MQ_ERROR_INVALID_PARAMETER


@pytest.fixture(scope="module")
def certificate() -> CertificateWithKey:
    return generate_certificate("alice", dt.datetime.now(dt.UTC))


def user_of(world: World, identity: Identity = ALICE) -> tuple[UserSignCerts, list[bytes]]:
    """Return a user's certificates in the directory."""
    with world.held() as h:
        users = h.engine.read_all_of(User)
    assert users is not None
    (user,) = [one for one in users if one.security_identifier == identity.sid.pack()]
    return UserSignCerts.unpack(user.certificates), user.certificate_digest_list


class TestCertificates:
    @pytest.mark.spec("MQAC-3.2.4.2.1-1")
    def test_for_this_computer_only(self, world: World, application: MSMQApplication) -> None:
        world.call(application, "put_machine", "BETA")
        assert world.status(application, "register_certificate", i4(9), EMPTY, by=ALICE) == E_NOTIMPL

    @pytest.mark.spec("MQAC-3.2.4.2.1-2", "MQAC-3.2.4.2.1-3", "MQAC-3.1.4.2-1")
    @pytest.mark.parametrize("flags", [MISSING, i4(1), Variant(VT.BYREF | VT.I4, 1)])
    def test_an_external_one(
        self, world: World, application: MSMQApplication, certificate: CertificateWithKey, flags: Variant
    ) -> None:
        """The certificate, its MD5 digest and a fresh GUID, and the digest in the list."""
        external = octets(certificate.certificate)
        assert (
            world.status(application, "register_certificate", i4(2), external, by=ALICE) == MQ_ERROR_INVALID_PARAMETER
        )
        assert world.call(application, "register_certificate", flags, external, by=ALICE) is None
        published, digests = user_of(world)
        (entry,) = published.certificates
        assert entry.certificate == certificate.certificate
        assert entry.identifier.int
        digest = hashlib.md5(certificate.certificate, usedforsecurity=False).digest()
        assert [entry.digest] == digests == [digest]
        with world.held() as h:
            assert h.store.pending_batch() <= h.store.synced

    def test_what_is_no_certificate(self, world: World, application: MSMQApplication) -> None:
        for wrong, status in ((octets(b"x"), MQ_ERROR_INVALID_CERTIFICATE), (i4(1), E_INVALIDARG)):
            assert world.status(application, "register_certificate", MISSING, wrong, by=ALICE) == status
        for flags in (0, 3, -1):
            assert world.status(application, "register_certificate", i4(flags), by=ALICE) == MQ_ERROR_INVALID_PARAMETER

    def test_nobody_has_none(self, world: World, application: MSMQApplication, certificate: CertificateWithKey) -> None:
        for external in (MISSING, octets(certificate.certificate)):
            assert (
                world.status(application, "register_certificate", MISSING, external, by=ANONYMOUS)
                == MQ_ERROR_ILLEGAL_USER
            )

    def test_a_directory_that_does_not_take_it(
        self,
        world: World,
        application: MSMQApplication,
        certificate: CertificateWithKey,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        with world.held() as h:
            h.directory.answers["write"] = lambda *_: DirectoryOperationResult.GENERIC_ERROR
        external = octets(certificate.certificate)
        assert world.status(application, "register_certificate", MISSING, external, by=ALICE) == MQ_ERROR_DS_ERROR
        monkeypatch.setattr("lanner.security.internal_certificates.generate_certificate", lambda *_: certificate)
        assert world.status(application, "register_certificate", by=ALICE) == MQ_ERROR_DS_ERROR
        # Also where there is one already, which then stays.
        assert world.status(application, "register_certificate", by=ALICE) == MQ_ERROR_DS_ERROR
        certificates = world.environment.certificates
        assert certificates is not None
        assert certificates.find(str(ALICE.sid)) == certificate

    @pytest.mark.spec("MQAC-3.2.4.2.1-4", "MQAC-3.2.4.2.1-5")
    def test_internal_ones(
        self,
        world: World,
        application: MSMQApplication,
        certificate: CertificateWithKey,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Argument 2 creates a certificate if there is none; 1 replaces it, also in the directory.

        Other certificates stay.
        """
        made = iter([certificate, generate_certificate("alice", dt.datetime.now(dt.UTC))])
        monkeypatch.setattr("lanner.security.internal_certificates.generate_certificate", lambda *_: next(made))
        certificates = world.environment.certificates
        assert certificates is not None
        external = generate_certificate("other", dt.datetime.now(dt.UTC)).certificate
        world.call(application, "register_certificate", MISSING, octets(external), by=ALICE)
        assert world.call(application, "register_certificate", i4(2), by=ALICE) is None
        first = certificates.find(str(ALICE.sid))
        assert first == certificate
        assert world.call(application, "register_certificate", i4(2), EMPTY, by=ALICE) == Success(
            MQ_INFORMATION_INTERNAL_USER_CERT_EXIST
        )
        assert certificates.find(str(ALICE.sid)) == first
        assert [entry.certificate for entry in user_of(world)[0].certificates] == [external, first.certificate]
        assert world.call(application, "register_certificate", by=ALICE) is None
        second = certificates.find(str(ALICE.sid))
        assert second is not None
        assert second != first
        published, digests = user_of(world)
        assert [entry.certificate for entry in published.certificates] == [external, second.certificate]
        assert digests == published.digests
        with world.held() as h:
            internal = h.engine.queue_manager.internal_certificate_collection[str(ALICE.sid)]
        assert internal.certificate == second.certificate


class TestVersion:
    @pytest.mark.spec("MQAC-3.2.4.2.3-1")
    def test_numbers_of_this_computer(self, world: World, application: MSMQApplication) -> None:
        members = ("get_msmq_version_major", "get_msmq_version_minor", "get_msmq_version_build")
        assert [world.call(application, member) for member in members] == [4, 1, 6000]
        world.call(application, "put_machine", "BETA")
        for member in members:
            assert world.status(application, member) == MQ_ERROR_INVALID_PARAMETER


class TestQueueManager:
    @pytest.mark.spec("MQAC-3.2.4.3.1-1")
    def test_active_queues(self, world: World, application: MSMQApplication) -> None:
        """Queues that are open, and outgoing queues with messages."""
        with world.held() as h:
            h.create("idle")
            h.create("used")
            h.open("used")
            h.send(r"DIRECT=OS:BETA\private$\q", b"x")
        found = world.call(application, "active_queues")
        assert found.vt == VT.ARRAY | VT.BSTR == 0x2008
        assert isinstance(found.value, SafeArray)
        assert set(found.value.elements) >= {r"DIRECT=OS:ALPHA\private$\used", r"DIRECT=OS:BETA\private$\q"}
        assert r"DIRECT=OS:ALPHA\private$\idle" not in found.value.elements

    @pytest.mark.spec("MQAC-3.2.4.3.2-1")
    def test_private_queues(self, world: World, application: MSMQApplication) -> None:
        with world.held() as h:
            h.create("q")
            h.create(r".\pub")
        found = world.call(application, "get_private_queues")
        assert found.vt == 0x2008
        assert r"ALPHA\private$\q" in found.value.elements
        assert not [path for path in found.value.elements if path.endswith(r"\pub")]

    @pytest.mark.spec("MQAC-3.2.4.3.3-1")
    def test_directory_service_server(self, new_world: Callable[..., World]) -> None:
        world = new_world(directory_integrated=True)
        application = MSMQApplication(world.environment)
        assert world.status(application, "get_directory_service_server") == MQ_ERROR_NO_DS
        with world.held() as h:
            h.engine.queue_manager.directory_server_list = ["dc.example.com"]
        assert world.call(application, "get_directory_service_server") == r"\\dc.example.com"

    @pytest.mark.spec("MQAC-3.2.4.3.4-1", "MQAC-3.2.4.3.8-1")
    def test_connect_and_disconnect(self, world: World, application: MSMQApplication) -> None:
        assert world.call(application, "get_is_connected") is True
        assert world.call(application, "disconnect") is None
        assert world.engine.queue_manager.connection_active is False
        assert world.call(application, "get_is_connected") is False
        assert world.call(application, "connect") is None
        assert world.call(application, "get_is_connected") is True

    @pytest.mark.spec("MQAC-3.2.4.3.5-1")
    def test_bytes_in_all_queues(self, world: World, application: MSMQApplication) -> None:
        assert world.call(application, "get_bytes_in_all_queues") == Variant(VT.I8, 0)
        with world.held() as h:
            one, other = h.create("one"), h.create("other")
            h.send("one", b"x" * 100)
            h.send("other", b"x" * 1000)
            total = one.total_bytes + other.total_bytes
        assert total > 1100
        assert world.call(application, "get_bytes_in_all_queues") == Variant(VT.I8, total)

    @pytest.mark.spec("MQAC-3.2.4.3.10-1")
    def test_tidy_frees_what_no_message_needs_and_removes_none(
        self, world: World, application: MSMQApplication
    ) -> None:
        with world.held() as h:
            abandon(h)
        assert world.call(application, "tidy") is None
        with world.held() as h:
            assert h.bodies() == [b"1"]
            assert h.engine.store.drop_stage(b"abandoned") is False, "its room is free"

    @pytest.mark.spec("MQAC-3.2.4.3.6-1", "MQAC-3.2.3-1")
    def test_machine(self, world: World, application: MSMQApplication) -> None:
        assert world.call(application, "get_machine") == "ALPHA"
        world.call(application, "put_machine", "BETA")
        assert world.call(application, "get_machine") == "BETA"
        world.call(application, "put_machine", None)
        assert world.call(application, "get_machine") == "ALPHA"

    @pytest.mark.spec("MQAC-3.2.4.3.8-2", "MQAC-3.1.4.1-1")
    @pytest.mark.parametrize("member", ["connect", "disconnect", "tidy", "active_queues", "get_private_queues"])
    def test_for_administrators_of_a_running_queue_manager(
        self, world: World, application: MSMQApplication, member: str
    ) -> None:
        assert world.status(application, member, by=ALICE) == MQ_ERROR_ACCESS_DENIED
        assert world.engine.queue_manager.connection_active
        world.engine.queue_manager.queue_manager_state = QueueManagerState.STOPPING
        assert world.status(application, member) == MQ_ERROR_SERVICE_NOT_AVAILABLE


def abandon(h: Harness) -> None:
    """Create a queue with a message, and a stage that is never published."""
    h.create("q")
    h.send(body=b"1")
    h.engine.store.stage(b"abandoned", h.queue().number, [(3, [bytes(1000)])], 0)


@contextmanager
def served(here: World, there: World) -> Iterator[None]:
    """The management service of one queue manager, where the other looks for it."""
    committer = Committer(there.environment.store, here.loop)
    server = RpcServer([ManagementService(there.engine, committer)])
    here.environment.remote_port = here.run(server.listen_tcp("127.0.0.1", 0))
    try:
        yield
    finally:
        here.run(server.stop())
        here.run(asyncio.to_thread(committer.close))


class TestElsewhere:
    READS = (
        "active_queues",
        "get_private_queues",
        "get_directory_service_server",
        "get_is_connected",
        "get_bytes_in_all_queues",
    )

    @pytest.mark.spec("MQAC-3.2.4.3.1-2", "MQAC-3.2.4.3.4-1", "MQAC-3.2.4.3.8-1", "MQAC-3.2.4.3.10-1")
    def test_the_named_machine_is_asked(self, new_world: Callable[..., World]) -> None:
        here = new_world()
        there = new_world(
            computer_name="BETA",
            directory_integrated=True,
            resolve_identity=lambda sid: OPERATOR if sid == ANONYMOUS.sid else None,
        )
        with here.held() as h:
            abandon(h)
        with there.held() as h:
            abandon(h)
            total = h.queue().total_bytes
            h.engine.queue_manager.directory_server_list = ["dc"]
            h.open()
        application = MSMQApplication(here.environment)
        here.call(application, "put_machine", "127.0.0.1")
        with served(here, there):
            assert r"DIRECT=OS:BETA\private$\q" in here.call(application, "active_queues").value.elements
            assert r"BETA\private$\q" in here.call(application, "get_private_queues").value.elements
            assert here.call(application, "get_directory_service_server") == r"\\dc"
            assert here.call(application, "get_bytes_in_all_queues") == Variant(VT.I8, total)
            assert here.call(application, "get_is_connected") is True
            assert here.call(application, "disconnect") is None
            assert here.call(application, "get_is_connected") is False
            assert here.call(application, "connect") is None
            assert here.call(application, "get_is_connected") is True
            assert here.call(application, "tidy") is None
        assert here.engine.queue_manager.connection_active
        assert there.engine.queue_manager.connection_active
        with there.held() as h:
            assert h.bodies() == [b"1"]
            assert h.engine.store.drop_stage(b"abandoned") is False, "its room is free"
        with here.held() as h:
            assert h.engine.store.drop_stage(b"abandoned") is True, "this one was not asked"

    @pytest.mark.spec("MQAC-3.2.4.3.1-2", "MQAC-3.2.4.3.8-1")
    def test_its_error_is_passed_on(self, new_world: Callable[..., World]) -> None:
        """Here: the anonymous user is no administrator there."""
        here, there = new_world(), new_world(computer_name="BETA")
        application = MSMQApplication(here.environment)
        here.call(application, "put_machine", "127.0.0.1")
        with served(here, there):
            for member in (*self.READS, "connect", "disconnect", "tidy"):
                assert here.status(application, member) == MQ_ERROR_ACCESS_DENIED, member
        for member in (*self.READS, "connect"):
            assert here.status(application, member) == MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, member
