"""Change Notification Messages of version 0x01 (MS-MQCN 3.2.5.1).

The tests check what they do, and whose are believed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.engine.notification_updates import QUEUE_ATTRIBUTES, QUEUE_MANAGER_ATTRIBUTES
from lanner.model.directory_objects import Queue, QueueManager, attributes_of
from lanner.model.enums import INFINITE, AuthenticationLevel, QueuePrivacyLevel, QueueScope, SenderIdentifierType
from lanner.security.keys import BEST_FIRST
from lanner.security.listed_keys import lists_certificate
from lanner.security.profile import Profile
from lanner.security.signing import SigningKey, sign
from lanner.wire.change_notification import ChangeNotificationMessage, NotificationCommand, NotificationUpdate
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.property_ids import MachineProperty, QueueProperty
from lanner.wire.sddl import parse_sddl
from lanner.wire.user_certificates import UserSignCert, UserSignCerts
from tests.security.samples import certificate_of, queue_manager_keys, signing_key
from tests.transfer.incoming_harness import OPEN_TO_ALL, PEER
from tests.transfer.notified import QUEUE_TYPE, SECURITY, Notified, change_of, creation_of, deletion_of, peer_key

Q, QM = QueueProperty, MachineProperty


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Notified]:
    harness = Notified(tmp_path / "data")
    yield harness
    harness.close()


def body(*updates: NotificationUpdate) -> bytes:
    return ChangeNotificationMessage.of_updates(*updates).message_body()


# Whose messages are believed
# -----------------------------------------------------------------------------------


@pytest.mark.spec("MQCN-3.2.5.1-1")
def test_only_a_queue_manager_is_believed(h: Notified) -> None:
    """A user's message is disregarded although its signature is valid; so is an anonymous one."""
    identifier = uuid.uuid4()
    h.told(body(creation_of("orders", identifier)))
    packet = h.packet(body(creation_of("orders", identifier)), to=h.address, recoverable=False)
    nobody = sign(packet, signing_key())
    assert Message(nobody).sender_identifier_type is SenderIdentifierType.NONE
    h.arrive(nobody)
    assert h.delay is None
    h.process()
    assert h.publics == []


@pytest.mark.spec("MQCN-3.2.5.1-2")
def test_a_message_without_a_signature_is_not_believed(h: Notified) -> None:
    sender: dict[str, Any] = {
        "sender_identifier": PEER.bytes_le,
        "sender_identifier_type": SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER,
    }
    h.told(body(creation_of("orders", uuid.uuid4())), **sender)
    assert h.delay is None
    h.process()
    assert h.publics == []


@pytest.mark.spec("MQCN-3.2.5.1-3")
@pytest.mark.parametrize("level", [AuthenticationLevel.SIG10, AuthenticationLevel.SIG20, AuthenticationLevel.SIG30])
def test_a_signature_of_any_kind_is_enough(tmp_path: Path, level: AuthenticationLevel) -> None:
    """Profile DOCUMENT: SAFE takes only signatures that cover the destination."""
    h = Notified(tmp_path / "data", profile=Profile.DOCUMENT, is_peer_directory_server=False)
    try:
        packet = h.packet(body(creation_of("orders", uuid.uuid4())), to=h.address, recoverable=False)
        h.arrive(sign(packet, peer_key(), level=level, queue_manager=PEER))
        h.process()
        assert h.publics == [r"ALPHA\orders"]
    finally:
        h.close()


@pytest.mark.spec("MQCN-3.2.5.1-4")
@pytest.mark.parametrize(
    ("profile", "is_server", "is_believed"),
    [(Profile.SAFE, True, True), (Profile.SAFE, False, False), (Profile.DOCUMENT, False, True)],
)
def test_profile_safe_believes_directory_servers_alone(
    tmp_path: Path, profile: Profile, is_server: bool, is_believed: bool
) -> None:
    h = Notified(tmp_path / "data", profile=profile, is_peer_directory_server=is_server)
    try:
        h.update(creation_of("orders", uuid.uuid4()))
        h.process()
        assert bool(h.publics) is is_believed
    finally:
        h.close()


def with_list(h: Notified, keys: bytes) -> None:
    """Give PEER a PublicSigningKeyList."""
    h.directory.write(
        QueueManager(identifier=PEER, computer_name="DS", public_signing_key_list=keys), ["PublicSigningKeyList"]
    )
    h.writes.clear()


@pytest.mark.spec("MQCN-3.2.5.1-33")
@pytest.mark.parametrize("form", ["MQDSPUBLICKEYS", "MQUSERSIGNCERTS"])
def test_the_certificate_of_a_queue_manager_must_be_in_its_list(h: Notified, form: str) -> None:
    """Both forms of the list.

    A certificate that is not in it is rejected although its signature is valid.
    """
    key = queue_manager_keys().signing[BEST_FIRST[0]].for_library()
    listed = certificate_of(key, "listed")
    another = SigningKey(signing_key("mallory").key, signing_key("mallory").certificate)
    if form == "MQUSERSIGNCERTS":
        with_list(h, UserSignCerts((UserSignCert(uuid.uuid4(), listed),)).pack())
    update = creation_of("orders", uuid.uuid4())
    h.arrive(h.signed(body(update), key=another))
    h.arrive(h.signed(body(update), key=SigningKey(key, another.certificate)))
    h.arrive(h.signed(body(update), queue_manager=uuid.uuid4(), key=SigningKey(key, listed)))
    assert not h.delay
    h.arrive(h.signed(body(update), key=SigningKey(key, listed)))
    assert h.delay == 60
    h.process()
    assert h.publics == [r"ALPHA\orders"]
    if form == "MQUSERSIGNCERTS":
        # The key alone is not enough where the list has certificates.
        h.arrive(h.signed(body(update), key=SigningKey(key, certificate_of(key, "unlisted"))))
        assert h.delay is None


def test_a_list_of_nonsense_has_no_certificate() -> None:
    certificate = signing_key().certificate
    for octets in (b"", b"\1", b"\xff" * 40, UserSignCerts().pack()):
        assert not lists_certificate(octets, certificate)
    assert not lists_certificate(queue_manager_keys().public_key_lists()[1], b"no certificate")
    assert not lists_certificate(queue_manager_keys().public_key_lists()[1], b"")


# Creation
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQCN-3.2.5.1-11", "MQCN-3.2.5.1-12", "MQCN-3.2.5.1-13", "MQCN-3.2.5.1-16", "MQCN-3.1.1.3-1")
def test_a_created_queue_has_the_values_of_the_update(h: Notified) -> None:
    identifier = uuid.uuid4()
    h.update(creation_of("orders", identifier))
    h.process()
    made = h.here("orders")
    assert made is not None
    assert (made.identifier, made.type) == (identifier, QUEUE_TYPE)
    assert (made.journaling, made.authentication, made.transactional) == (True, True, True)
    assert (made.quota, made.journal_quota, made.base_priority) == (77, 55, -3)
    assert (made.label, made.privacy_level, made.security) == ("from the directory", QueuePrivacyLevel.BODY, SECURITY)
    assert (made.create_time, made.modify_time, made.scope) == (1_600_000_001, 1_600_000_002, QueueScope.SITE)
    assert made.journal_queue is not None
    assert h.engine.find_queue(parse(f"PUBLIC={identifier}")) is made
    assert (h.writes, h.raised) == ([], [])
    assert [kind for _, kind, _ in h.reads] == ["QueueManager"]


@pytest.mark.spec("MQCN-3.2.5.1-14")
def test_the_order_of_the_properties_means_nothing(h: Notified) -> None:
    names = [
        name
        for name in attributes_of(Queue, "directory")
        if name not in ("identifier", "pathname", "qualified_pathname")
    ]
    made = []
    for number, turn in enumerate((1, -1)):
        update = creation_of(f"q{number}", uuid.uuid4())
        ids, values = update.property_ids[::turn], update.property_values[::turn]
        h.update(NotificationUpdate(update.command, update.path_name, None, PEER, ids, values))
        h.process(900)
        queue = h.here(f"q{number}")
        assert queue is not None
        made.append([getattr(queue, name) for name in names])
    assert made[0] == made[1]


@pytest.mark.spec("MQCN-3.2.5.1-15")
def test_what_an_update_leaves_out_has_its_default(h: Notified) -> None:
    h.update(NotificationUpdate(NotificationCommand.CREATE, r"ALPHA\q", None, PEER, (Q.PATHNAME,), (r"ALPHA\q",)))
    h.process()
    made = h.here("q")
    assert made is not None
    assert (made.quota, made.journal_quota, made.base_priority) == (INFINITE, INFINITE, 0)
    assert (made.privacy_level, made.multicast_address, made.label) == (QueuePrivacyLevel.OPTIONAL, None, "")
    assert (made.journaling, made.authentication, made.transactional) == (False, False, False)
    assert made.security is not None


@pytest.mark.spec("MQCN-3.3.5.2-11")
def test_a_path_in_the_directory_is_passed_over(h: Notified) -> None:
    update = creation_of("orders", uuid.uuid4())
    ids, values = list(update.property_ids), list(update.property_values)
    ids.insert(3, Q.ADS_PATH)
    values.insert(3, "LDAP://CN=evil")
    h.update(NotificationUpdate(update.command, update.path_name, None, PEER, tuple(ids), tuple(values)))
    h.process()
    made = h.here("orders")
    assert made is not None
    assert (made.directory_path, made.quota) == ("", 77)


@pytest.mark.spec("MQCN-3.2.5.1-19")
def test_a_queue_manager_is_not_created(h: Notified) -> None:
    own, wanted = h.engine.queue_manager, uuid.uuid4()
    quota = own.queue_manager_quota
    creation = NotificationUpdate(
        NotificationCommand.CREATE, None, own.identifier, PEER, (QM.MACHINE_ID, QM.QUOTA), (own.identifier, 1)
    )
    h.update(creation, creation_of("orders", wanted))
    h.process()
    assert own.queue_manager_quota == quota
    assert h.publics == [r"ALPHA\orders"]


@pytest.mark.parametrize("name", [r"ALPHA\private$\secret", r"ALPHA\orders;sub", r"ALPHA\orders;journal", "orders", ""])
def test_only_public_queues_are_created(h: Notified, name: str) -> None:
    h.public("orders")
    h.update(creation_of("x", uuid.uuid4(), PATHNAME=name), creation_of("behind", uuid.uuid4()))
    h.process()
    assert h.publics == [r"ALPHA\orders"]
    assert [queue.pathname for queue in h.engine.local_queues() if "secret" in queue.pathname] == []


# Change
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQCN-3.2.5.1-20", "MQCN-3.2.5.1-21")
@pytest.mark.parametrize("by_path", [False, True])
def test_a_changed_queue_has_the_values_of_the_update(h: Notified, by_path: bool) -> None:
    other = h.public("other")
    made = h.public("orders", security=OPEN_TO_ALL)
    values: dict[int, object] = {
        Q.BASEPRIORITY: 9,
        Q.JOURNAL: 1,
        Q.QUOTA: 77,
        Q.JOURNAL_QUOTA: 55,
        Q.SECURITY: SECURITY,
        Q.AUTHENTICATE: 1,
        Q.PRIV_LEVEL: 0,
    }
    update = change_of(made, values)
    if by_path:
        update = NotificationUpdate(
            update.command, r"alpha\ORDERS", None, PEER, update.property_ids, update.property_values
        )
    h.update(update)
    h.process()
    assert (made.base_priority, made.journaling, made.quota, made.journal_quota) == (9, True, 77, 55)
    assert (made.security, made.authentication, made.privacy_level) == (SECURITY, True, QueuePrivacyLevel.NONE)
    assert (other.quota, other.journaling) == (INFINITE, False)
    assert (h.writes, h.raised) == ([], [])
    h.restart()
    kept = h.here("orders")
    assert kept is not None
    assert kept.quota == 77


@pytest.mark.spec("MQCN-3.2.5.1-22", "MQCN-3.2.5.1-23")
def test_other_properties_of_a_changed_queue_are_passed_over(h: Notified) -> None:
    made = h.public("orders", label="mine", journaling=True)
    before = {name: getattr(made, name) for name in attributes_of(Queue, "directory") if name != "quota"}
    others: dict[int, object] = {
        Q.QMID: uuid.uuid4(),
        Q.LABEL: "other",
        Q.TRANSACTION: 1,
        Q.TYPE: QUEUE_TYPE,
        Q.INSTANCE: uuid.uuid4(),
        Q.PATHNAME: r"ALPHA\other",
        Q.MULTICAST_ADDRESS: "234.1.1.1:80",
        Q.CREATE_TIME: 1,
        Q.SCOPE: 0,
        QM.CNS: [uuid.uuid4(), uuid.uuid4()],
        Q.QUOTA: 66,
    }
    h.update(change_of(made, others))
    h.process()
    assert made.quota == 66
    assert {name: getattr(made, name) for name in before} == before
    assert made.scope is QueueScope.ENTERPRISE
    assert h.publics == [r"ALPHA\orders"]


@pytest.mark.spec("MQCN-3.2.5.1-25", "MQCN-3.1.1.2.1-1")
def test_a_changed_machine_has_the_values_of_the_update(h: Notified) -> None:
    own = h.engine.queue_manager
    security = parse_sddl("O:BAG:BAD:(A;;0x1;;;AU)").pack()
    values: dict[int, object] = {QM.QUOTA: 9999, QM.JOURNAL_QUOTA: 8888, QM.SECURITY: security}
    h.update(change_of(own, values))  # type: ignore[arg-type] # it has an identifier
    h.process()
    assert (own.queue_manager_quota, own.journal_quota, own.security) == (9999, 8888, security)
    assert {int(one): name for one, name in QUEUE_MANAGER_ATTRIBUTES.items()} == {
        202: "identifier",
        219: "foreign_system",
        214: "queue_manager_quota",
        215: "journal_quota",
        1201: "security",
        207: "connected_network_identifier_list",
        216: "queue_manager_version",
        220: "operating_system_type",
    }


@pytest.mark.spec("MQCN-3.1.1.3-1")
def test_the_properties_of_a_queue() -> None:
    assert {int(one): name for one, name in QUEUE_ATTRIBUTES.items()} == {
        101: "identifier",
        102: "type",
        103: "pathname",
        104: "journaling",
        105: "quota",
        106: "base_priority",
        107: "journal_quota",
        108: "label",
        109: "create_time",
        110: "modify_time",
        111: "authentication",
        112: "privacy_level",
        113: "transactional",
        114: "scope",
        125: "multicast_address",
        126: "directory_path",
        1101: "security",
    }


@pytest.mark.spec("MQCN-3.2.5.1-26")
def test_other_properties_of_a_machine_are_passed_over(h: Notified) -> None:
    own = h.engine.queue_manager
    before = {name: getattr(own, name) for name in attributes_of(QueueManager, "directory") if name != "journal_quota"}
    others: dict[int, object] = {
        QM.MACHINE_ID: uuid.uuid4(),
        QM.SITE_ID: uuid.uuid4(),
        QM.ADDRESS: b"\1\2\3",
        QM.CNS: [uuid.uuid4()],
        QM.MACHINE_TYPE: "other",
        QM.FOREIGN: 1,
        QM.OS: 0x200,
        QM.JOURNAL_QUOTA: 4321,
    }
    h.update(change_of(own, others))  # type: ignore[arg-type] # it has an identifier
    h.process()
    assert own.journal_quota == 4321
    assert {name: getattr(own, name) for name in before} == before


@pytest.mark.spec("MQCN-3.2.5.1-27")
def test_a_change_of_another_machine_is_not_taken_for_this_one(h: Notified) -> None:
    own = h.engine.queue_manager
    quota = own.queue_manager_quota
    by_name = NotificationUpdate(NotificationCommand.CHANGE, "ALPHA", None, PEER, (QM.QUOTA,), (1,))
    by_guid = NotificationUpdate(NotificationCommand.CHANGE, None, PEER, PEER, (QM.QUOTA,), (1,))
    h.update(by_name, by_guid)
    h.process()
    assert own.queue_manager_quota == quota


# Deletion
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQCN-3.2.5.1-30", "MQCN-3.2.5.1-16")
def test_a_deleted_queue_is_deleted(h: Notified) -> None:
    other, made = h.public("other"), h.public("orders", security=OPEN_TO_ALL)
    h.arrive(h.packet(b"1", to=rf"PUBLIC={made.identifier}"))
    reader = h.open(r"DIRECT=OS:.\orders")
    h.update(deletion_of(uuid.uuid4()), deletion_of(made.identifier))
    h.process()
    assert h.publics == [other.pathname]
    assert reader.queue is None
    assert (h.writes, h.raised) == ([], [])


@pytest.mark.spec("MQCN-3.2.5.1-28", "MQCN-3.2.5.1-32")
@pytest.mark.parametrize("values", [(1, 2), (1, 4), (1,)])
def test_a_deletion_of_something_else_ends_the_message(h: Notified, values: tuple[int, ...]) -> None:
    made = h.public("orders")
    h.update(deletion_of(made.identifier, *values), deletion_of(made.identifier))
    h.process()
    assert h.publics == [r"ALPHA\orders"]


# What ends a message
# -------------------------------------------------------------------------------------------


def raw(*updates: bytes) -> bytes:
    return bytes((1, len(updates))) + b"".join(updates) + b"\0"


def of_type(identifier: int, value: bytes) -> bytes:
    return b"\1\1" + bytes(56) + b"\1" + identifier.to_bytes(4, "little") + value


BAD = {
    "command": b"\3" + bytes(60),
    "use guid": b"\0\2" + bytes(60),
    "site": of_type(301, b"\0\0"),
    "object type 0": of_type(1001, b""),
    "unknown property": of_type(199, b""),
    "no property": b"\1\1" + bytes(57),
    "cut": b"\1\1" + bytes(20),
}


@pytest.mark.spec(
    "MQCN-3.2.5.1-7",
    "MQCN-3.2.5.1-8",
    "MQCN-3.2.5.1-9",
    "MQCN-3.2.5.1-10",
    "MQCN-2.2.6-4",
    "MQCN-2.2.6-15",
    "MQCN-2.2.2-3",
    "MQCN-3.2.5-5",
)
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_message_ends_at_what_makes_no_sense(h: Notified, bad: bytes) -> None:
    """Earlier changes stay, later ones are not applied, and the next message is processed."""
    before, behind, next_one = (creation_of(name, uuid.uuid4()).pack() for name in ("before", "behind", "next"))
    h.arrive(h.signed(raw(before, bad, behind)))
    h.arrive(h.signed(raw(next_one)))
    h.process()
    assert h.publics == [r"ALPHA\before", r"ALPHA\next"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("JOURNAL", 2), ("PRIV_LEVEL", 3), ("SCOPE", 9), ("SECURITY", b"none"), ("LABEL", "x" * 125), ("TRANSACTION", 7)],
)
def test_a_value_that_an_attribute_cannot_have_ends_the_message(h: Notified, name: str, value: object) -> None:
    h.update(creation_of("orders", uuid.uuid4(), **{name: value}), creation_of("behind", uuid.uuid4()))
    h.process()
    assert h.publics == []


@pytest.mark.spec("MQCN-3.2.5-1", "MQCN-2.2.6-12", "MQCN-3.3.5.3-8", "MQCN-3.3.5.3-9")
@pytest.mark.parametrize("spare", [b"", b"\0", b"\x3c", b"\xff", bytes(100)])
def test_what_makes_no_difference_in_version_1(h: Notified, spare: bytes) -> None:
    one, two = (creation_of(name, uuid.uuid4()).pack() for name in ("one", "two"))
    at = 2 + 2 * len("ALPHA\\one\0") + 16
    one = one[:at] + bytes(range(100, 124)) + one[at + 24 :]
    h.arrive(h.signed(bytes((1, 2)) + one + two + spare))
    h.process()
    assert h.publics == [r"ALPHA\one", r"ALPHA\two"]
