"""MS-MQCN 3.3: which computers are notified of a directory change, when, and how."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.engine.settings import NotificationSettings
from lanner.model.directory_objects import GUID_NULL, Queue, QueueManager
from lanner.model.enums import (
    AuthenticationLevel,
    DeliveryGuarantee,
    DirectoryOperationResult,
    HashAlgorithm,
    OutgoingState,
    QueuePrivacyLevel,
    QueueScope,
    QueueType,
    SenderIdentifierType,
)
from lanner.security.keys import BEST_FIRST
from lanner.security.listed_keys import read_signing_keys
from lanner.security.signing import SigningKey, verify
from lanner.wire import fields
from lanner.wire.change_notification import (
    ChangeNotificationMessage,
    NotificationBody,
    NotificationCommand,
    NotificationEvent,
    NotificationUpdate,
)
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.property_ids import DeletionProperty, MachineProperty, QueueProperty
from lanner.wire.reader import Reader
from lanner.wire.security_header import SecurityHeader
from lanner.wire.sid import Sid
from lanner.wire.user_certificates import UserSignCert, UserSignCerts
from lanner.wire.user_message import UserMessage
from tests.security.samples import certificate_of, queue_manager_keys
from tests.transfer.incoming_harness import IncomingHarness
from tests.transfer.notified import QUEUE_TYPE, SECURITY

SUCCESS = DirectoryOperationResult.SUCCESS
SERVER = "dc1.mq.test"
BETA = uuid.UUID("be7abe7a-0000-1111-2222-be7abe7abe7a")
Q, QM = QueueProperty, MachineProperty


def own_key() -> SigningKey:
    key = queue_manager_keys().signing[BEST_FIRST[0]].for_library()
    return SigningKey(key, certificate_of(key, "ALPHA"))


class Telling(IncomingHarness):
    """Directory-integrated; the directory knows another queue manager, BETA."""

    def start(self) -> None:
        self.settings = {"directory_integrated": True, "signing_keys": lambda: [own_key()]} | self.settings
        super().start()
        self.directory.answers["server"] = SERVER
        self.order: list[str] = []
        sites = list(self.engine.queue_manager.site_identifier_list)
        self.directory.create_object(QueueManager(identifier=BETA, computer_name="BETA", site_identifier_list=sites))
        for name in ("create_object", "delete_object", "write"):
            self._watch(name)

    def _watch(self, name: str) -> None:
        original = getattr(self.directory, name)

        def watched(*arguments: object) -> object:
            self.order.append(name)
            return original(*arguments)

        self.directory.answers[name] = watched

    @property
    def address(self) -> str:
        return rf"PRIVATE={BETA}\3"

    @property
    def sent(self) -> list[Message]:
        return self.outgoing(self.address)

    @property
    def bodies_sent(self) -> list[NotificationBody]:
        return [notification(message).notification_body for message in self.sent]

    @property
    def updates_sent(self) -> list[NotificationUpdate]:
        return [update for message in self.sent for update in notification(message).updates()]

    def queue_of_beta(self, name: str = "orders", **values: object) -> Queue:
        queue = Queue(identifier=GUID_NULL, pathname=rf"BETA\{name}", queue_type=QueueType.PUBLIC, security=SECURITY)
        for attribute, value in values.items():
            setattr(queue, attribute, value)
        result, identifier = self.engine.create_directory_object(queue)
        assert result is SUCCESS
        assert identifier is not None
        queue.identifier = identifier
        return queue

    def purge(self) -> None:
        queue = self.engine.find_outgoing_queue(parse(self.address))
        assert queue is not None
        self.engine.purge_queue(queue)
        self.order.clear()


def notification(message: Message) -> ChangeNotificationMessage:
    assert message.body[-1:] == b"\0"
    return ChangeNotificationMessage.unpack(message.body[:-1])


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Telling]:
    harness = Telling(tmp_path / "data")
    yield harness
    harness.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Telling]:
    """A directory server that sends version 0x01."""
    harness = Telling(tmp_path / "data", notifications=NotificationSettings(sends_version_1=True))
    harness.engine.queue_manager.directory_server = True
    yield harness
    harness.close()


# Who is told of what (3.3.4.1, 3.3.5.1)
# ---------------------------------------------------------------------------------------------


@pytest.mark.spec("MQCN-3.3.4.1-1", "MQCN-3.3.4.1-5", "MQCN-3.3.5.1-3", "MQCN-3.3.5.1-4", "MQCN-2.2.4-2")
def test_the_owner_of_a_created_queue_is_told(h: Telling) -> None:
    """With the identifier that the directory has given it, so not before."""
    queue = h.queue_of_beta()
    assert h.bodies_sent == [NotificationBody(NotificationEvent.CREATE_QUEUE, queue.identifier, SERVER)]
    assert h.sent[0].body[:6] == bytes.fromhex("0201 3c00 4e00")
    assert queue.identifier != GUID_NULL
    assert len(h.sent) == 1


@pytest.mark.spec("MQCN-3.3.4.1-2", "MQCN-3.3.5.1-3")
@pytest.mark.parametrize("is_read", [True, False])
def test_the_owner_of_a_changed_queue_is_told(h: Telling, is_read: bool) -> None:
    """This holds also if the changer knows only its identifier."""
    queue = h.queue_of_beta()
    h.purge()
    if is_read:
        found = h.engine.read_directory("Queue", None)[1]
        assert isinstance(found, Queue)
        assert found.queue_manager is not None
        queue = found
    else:
        queue = Queue(identifier=queue.identifier, queue_type=QueueType.PUBLIC)
    queue.label = "new"
    assert h.engine.write_directory(queue, ["Label"]) is SUCCESS
    assert h.bodies_sent == [NotificationBody(NotificationEvent.CHANGE_QUEUE, queue.identifier, SERVER)]


@pytest.mark.spec("MQCN-3.3.4.1-3", "MQCN-3.3.4.1-6", "MQCN-3.3.5.1-3")
def test_the_owner_of_a_deleted_queue_is_told(h: Telling) -> None:
    queue = h.queue_of_beta()
    h.purge()
    assert h.engine.delete_directory_object(Queue(identifier=queue.identifier, queue_type=QueueType.PUBLIC)) is SUCCESS
    assert h.bodies_sent == [NotificationBody(NotificationEvent.DELETE_QUEUE, queue.identifier, SERVER)]


@pytest.mark.spec("MQCN-3.3.4.1-4", "MQCN-3.3.5.1-3")
def test_a_queue_manager_is_told_of_its_own_change(h: Telling) -> None:
    changed = QueueManager(identifier=BETA, computer_name="BETA", journal_quota=77)
    assert h.engine.write_directory(changed, ["JournalQuota"]) is SUCCESS
    assert h.bodies_sent == [NotificationBody(NotificationEvent.CHANGE_MACHINE, BETA, SERVER)]


@pytest.mark.spec("MQCN-3.3.4.1-5", "MQCN-3.3.4.1-6")
@pytest.mark.parametrize(
    "result", [DirectoryOperationResult.GENERIC_ERROR, DirectoryOperationResult.OBJECT_ALREADY_EXISTS]
)
def test_what_fails_is_reported_to_nobody(h: Telling, result: DirectoryOperationResult) -> None:
    queue = h.queue_of_beta()
    h.purge()
    h.directory.answers |= {
        "create_object": lambda *_: (result, None),
        "delete_object": lambda *_: result,
        "write": lambda *_: result,
    }
    other = Queue(pathname=r"BETA\other", queue_type=QueueType.PUBLIC)
    assert h.engine.create_directory_object(other) == (result, None)
    assert h.engine.delete_directory_object(queue) is result
    assert h.engine.write_directory(queue) is result
    assert h.sent == []


@pytest.mark.spec("MQCN-3.3.5.1-5")
def test_each_change_has_a_message_of_its_own(h: Telling) -> None:
    queue = h.queue_of_beta()
    h.engine.write_directory(queue, ["Label"])
    h.engine.delete_directory_object(queue)
    assert [body.event for body in h.bodies_sent] == [1, 2, 3]
    assert [notification(message).number_of_update_notifications for message in h.sent] == [1, 1, 1]


@pytest.mark.spec("MQCN-3.3.4.1-7", "MQCN-1.6-1")
def test_what_belongs_to_this_queue_manager_is_told_to_nobody(h: Telling) -> None:
    """Public queues here raise the event and send no message; private ones do neither."""
    raised: list[object] = []
    h.engine.change_notification_subscribers.append(lambda operation, *_: raised.append(operation.value))
    for name in (r".\orders", r".\private$\q"):
        queue = h.create(name)
        h.engine.set_queue_properties(queue, {"label": "new"})
        h.engine.delete_queue(queue)
    h.engine.write_directory(h.engine.queue_manager, ["JournalQuota"])
    assert raised == ["QueueCreation", "QueueUpdate", "QueueDeletion", "QueueManagerUpdate"]
    assert h.all_outgoing() == {}


@pytest.mark.spec("MQCN-1.6-1")
def test_a_private_queue_of_another_computer_is_no_subject(h: Telling) -> None:
    queue = Queue(pathname=r"BETA\private$\q", queue_type=QueueType.PRIVATE)
    h.engine.create_directory_object(queue)
    h.engine.write_directory(queue)
    h.engine.delete_directory_object(queue)
    assert h.all_outgoing() == {}


def test_in_workgroup_mode_nobody_is_told(tmp_path: Path) -> None:
    h = Telling(tmp_path / "data", directory_integrated=False)
    try:
        h.queue_of_beta()
        assert h.all_outgoing() == {}
    finally:
        h.close()


def test_an_owner_that_is_not_known_is_told_nothing(h: Telling, caplog: pytest.LogCaptureFixture) -> None:
    """The directory operation keeps its own result."""
    for pathname in (r"GAMMA\orders", "no path name", ""):
        queue = Queue(pathname=pathname, queue_type=QueueType.PUBLIC)
        assert h.engine.create_directory_object(queue)[0] is not SUCCESS
    assert "the queue manager of GAMMA is not notified" in caplog.text
    assert h.all_outgoing() == {}


def test_topology_changes_are_reported(h: Telling) -> None:
    """`lanner directory remove computer` deletes the public queues of a computer, too."""
    from lanner.directory.topology import Computer, Topology

    h.engine.provision_directory(Topology(computers=(Computer("BETA", public_queues={"bills": uuid.uuid4()}),)))
    assert [body.event for body in h.bodies_sent] == [NotificationEvent.CREATE_QUEUE]
    h.purge()
    h.engine.provision_directory(Topology(computers=(Computer("BETA", routing_server=True),)))
    assert NotificationEvent.CHANGE_MACHINE in [body.event for body in h.bodies_sent]


# The message (3.3.3, 3.3.5.3)
# -------------------------------------------------------------------------------------


@pytest.mark.spec("MQCN-3.3.5.3-1", "MQCN-3.3.5.3-7", "MQCN-1.4-1")
def test_the_message_is_an_ordinary_one(h: Telling) -> None:
    h.queue_of_beta()
    (message,) = h.sent
    packet = message.packet
    assert packet[2] & 0x08 == 0  # IN: no internal packet
    assert packet[12:16] == bytes.fromhex("2c010000")
    assert message.time_to_reach_queue == 300
    assert message.delivery_guarantee is DeliveryGuarantee.EXPRESS
    assert not fields.user_flags_2(packet) & 0x80
    assert message.message_class == 0
    data = notification(message).data
    assert message.body_size == 2 + len(data) + 1


@pytest.mark.spec("MQCN-1.9-3")
def test_its_destination_is_private_queue_3_of_the_owner(h: Telling) -> None:
    h.queue_of_beta()
    (message,) = h.sent
    unpacked = UserMessage.unpack(message.packet)
    assert fields.destination(message.packet) == (3, bytes.fromhex("03000000"))
    assert message.packet[32:48] == BETA.bytes_le
    assert unpacked.user_header is not None
    assert message.destination_queue_format_name == parse(h.address)


@pytest.mark.spec("MQCN-3.3.3-1", "MQCN-3.3.3-5")
def test_its_outgoing_queue_is_opened_when_it_is_due(h: Telling) -> None:
    assert h.all_outgoing() == {}
    h.queue_of_beta()
    (queue,) = h.engine.outgoing_queues()
    assert queue.destination_format_name.lower() == rf"private={BETA}\00000003"
    assert not queue.next_hops
    assert queue.message_count == 1


@pytest.mark.spec("MQCN-3.3.3-6")
def test_a_message_that_cannot_be_sent_changes_no_result(h: Telling, caplog: pytest.LogCaptureFixture) -> None:
    h.engine.express_memory.set_limit(0)
    h.engine.begin_flow_control()
    queue = Queue(pathname=r"BETA\orders", queue_type=QueueType.PUBLIC, security=SECURITY)
    assert h.engine.create_directory_object(queue)[0] is SUCCESS
    assert "is not notified" in caplog.text
    assert h.sent == []
    h.engine.end_flow_control()


def test_without_keys_nothing_is_sent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    h = Telling(tmp_path / "data", signing_keys=list)
    try:
        h.queue_of_beta()
        assert "no keys to sign" in caplog.text
        assert h.all_outgoing() == {}
    finally:
        h.close()


@pytest.mark.parametrize("name", ["", "x" * 257, "a b"])
def test_a_server_whose_name_cannot_be_sent(h: Telling, caplog: pytest.LogCaptureFixture, name: str) -> None:
    h.directory.answers["server"] = name
    h.queue_of_beta()
    assert "DomainController" in caplog.text
    assert h.sent == []


@pytest.mark.spec("MQCN-3.3.5.3-2")
def test_it_waits_for_five_minutes_at_most(h: Telling) -> None:
    h.queue_of_beta()
    h.tick(299)
    assert len(h.sent) == 1
    h.tick(2)
    assert h.sent == []


@pytest.mark.spec("MQCN-3.3.5.3-13")
def test_nothing_waits_for_its_delivery(h: Telling) -> None:
    """The owner is switched off; its outgoing queue is paused, too."""
    queue = h.queue_of_beta()
    (outgoing,) = h.engine.outgoing_queues()
    h.engine.pause_queue(outgoing)
    assert h.engine.write_directory(queue, ["Label"]) is SUCCESS
    assert h.engine.delete_directory_object(queue) is SUCCESS
    assert outgoing.state is OutgoingState.ON_HOLD
    assert len(h.sent) == 3


# Its signature
# -------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQCN-3.3.5.3-5", "MQCN-3.3.5.3-6")
@pytest.mark.parametrize("which", ["h", "server"])
def test_it_is_signed_with_a_signature_of_msmq_2(request: pytest.FixtureRequest, which: str) -> None:
    h: Telling = request.getfixturevalue(which)
    h.queue_of_beta()
    (message,) = h.sent
    assert message.has_security_header
    assert message.authentication_level == AuthenticationLevel.NONE  # AS is the receiver's
    assert len(message.signature) == 256
    assert message.hash_algorithm == HashAlgorithm.SHA1
    keys = read_signing_keys(queue_manager_keys().public_key_lists()[1], message.sender_certificate)
    assert verify(message, keys) is AuthenticationLevel.SIG20


def security_header(message: Message) -> SecurityHeader:
    header = UserMessage.unpack(message.packet).security_header
    assert header is not None
    return header


@pytest.mark.spec("MQCN-3.3.5.3-14")
def test_version_2_comes_from_the_account_of_the_computer(h: Telling) -> None:
    """ST 1 and its SID, where the directory lists the certificate for it; else ST 0."""
    h.queue_of_beta()
    (message,) = h.sent
    assert (message.sender_identifier_type, security_header(message).security_id) == (SenderIdentifierType.NONE, b"")
    assert message.sender_certificate == own_key().certificate
    h.purge()
    listed = UserSignCerts((UserSignCert(uuid.uuid4(), own_key().certificate),)).pack()
    h.engine.queue_manager.public_signing_key_list = listed
    h.queue_of_beta("bills")
    (message,) = h.sent
    assert message.sender_identifier_type is SenderIdentifierType.SID
    assert security_header(message).security_id == h.directory.computer_sid("ALPHA")
    assert Sid.unpack(message.sender_identifier).is_account


@pytest.mark.spec("MQCN-3.3.5.3-10", "MQCN-3.3.5.3-11")
def test_version_1_comes_from_the_queue_manager_that_signs_it(server: Telling) -> None:
    server.queue_of_beta()
    (message,) = server.sent
    header = security_header(message)
    assert (header.flags & 7, len(header.security_id)) == (2, 16)
    assert header.security_id == server.engine.queue_manager.identifier.bytes_le


# Version 0x01 (3.3.5.2)
# -----------------------------------------------------------------------------------------


@pytest.mark.spec("MQCN-3.3.4.1-9", "MQCN-2.2.4-2")
def test_only_a_directory_server_sends_version_1(server: Telling) -> None:
    server.queue_of_beta()
    server.engine.queue_manager.directory_server = False
    server.queue_of_beta("bills")
    assert [notification(message).version for message in server.sent] == [1, 2]


@pytest.mark.spec(
    "MQCN-3.3.5.2-1", "MQCN-3.3.5.2-4", "MQCN-3.3.5.2-8", "MQCN-3.3.5.2-9", "MQCN-3.3.5.2-10", "MQCN-3.3.5.2-24"
)
def test_a_created_queue_in_version_1(server: Telling) -> None:
    queue = server.queue_of_beta(
        type=QUEUE_TYPE,
        base_priority=-3,
        journaling=True,
        quota=77,
        label="a label",
        authentication=True,
        privacy_level=QueuePrivacyLevel.BODY,
        transactional=True,
        scope=QueueScope.SITE,
        directory_path="LDAP://somewhere",
    )
    (message,) = server.sent
    octets = notification(message).data
    assert octets[:2] == b"\0\0"
    assert octets[2:].startswith("BETA\\orders\0".encode("utf-16-le"))
    (update,) = server.updates_sent
    assert update.command is NotificationCommand.CREATE
    assert (update.path_name, update.guid_identifier) == (r"BETA\orders", None)
    assert update.guid_master_id == server.engine.queue_manager.identifier
    assert sorted(update.property_ids) == [101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 1101]
    assert update.values == {
        Q.INSTANCE: queue.identifier,
        Q.TYPE: QUEUE_TYPE,
        Q.PATHNAME: r"BETA\orders",
        Q.JOURNAL: 1,
        Q.QUOTA: 77,
        Q.BASEPRIORITY: -3,
        Q.JOURNAL_QUOTA: 0xFFFF_FFFF,
        Q.LABEL: "a label",
        Q.CREATE_TIME: int(server.now),
        Q.MODIFY_TIME: int(server.now),
        Q.AUTHENTICATE: 1,
        Q.PRIV_LEVEL: 2,
        Q.TRANSACTION: 1,
        Q.SCOPE: 0,
        Q.SECURITY: SECURITY,
    }


@pytest.mark.spec("MQCN-3.3.5.2-1", "MQCN-3.3.5.2-4", "MQCN-3.3.5.2-8", "MQCN-3.3.5.2-12", "MQCN-3.3.5.2-13")
def test_a_changed_queue_in_version_1(server: Telling) -> None:
    queue = server.queue_of_beta(quota=77)
    server.purge()
    for attributes, identifiers in (
        (["Quota"], [115, 105]),
        (["Label"], [115]),
        (["base_priority", "Journaling"], [115, 104, 106]),
        (None, [115, 104, 105, 106, 107, 1101, 111, 112]),
    ):
        assert server.engine.write_directory(queue, attributes) is SUCCESS
        update = server.updates_sent[-1]
        assert update.command is NotificationCommand.CHANGE
        assert (update.path_name, update.guid_identifier) == (None, queue.identifier)
        assert update.guid_master_id == server.engine.queue_manager.identifier
        assert sorted(update.property_ids) == sorted(identifiers)
        assert update.values[Q.QMID] == BETA
    assert server.updates_sent[0].values[Q.QUOTA] == 77


@pytest.mark.spec("MQCN-3.3.5.2-1", "MQCN-3.3.5.2-14", "MQCN-3.3.5.2-16", "MQCN-3.3.5.2-24")
def test_a_changed_machine_in_version_1(server: Telling) -> None:
    changed = QueueManager(identifier=BETA, computer_name="BETA", journal_quota=77, foreign_system=True)
    assert server.engine.write_directory(changed, ["JournalQuota"]) is SUCCESS
    changed.security = SECURITY
    assert server.engine.write_directory(changed, ["QueueManagerQuota", "Security", "ForeignSystem"]) is SUCCESS
    one, two = server.updates_sent
    assert (one.command, one.guid_identifier) == (NotificationCommand.CHANGE, BETA)
    assert one.values == {QM.MACHINE_ID: BETA, QM.FOREIGN: 1, QM.JOURNAL_QUOTA: 77}
    assert sorted(two.property_ids) == [202, 214, 219, 1201]
    assert two.values[QM.SECURITY] == SECURITY


@pytest.mark.spec("MQCN-3.3.5.2-1", "MQCN-3.3.5.2-4", "MQCN-3.3.5.2-18", "MQCN-3.3.5.2-22")
def test_a_deleted_queue_in_version_1(server: Telling) -> None:
    queue = server.queue_of_beta()
    server.purge()
    assert server.engine.delete_directory_object(queue) is SUCCESS
    (message,) = server.sent
    assert message.body_size == 72
    assert message.body[58 + 2 : 71] == bytes.fromhex("02 7B050000 7C050000 01 01")
    (update,) = server.updates_sent
    assert (update.command, update.guid_identifier) == (NotificationCommand.DELETE, queue.identifier)
    assert update.property_ids == (DeletionProperty.SCOPE, DeletionProperty.OBJTYPE)
    assert NotificationUpdate.read(Reader(message.body[2:])) == update
    assert not any(one.multicast for one in server.engine.outgoing_queues())
