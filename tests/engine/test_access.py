"""Access to queues: rights are checked when a name becomes a handle and at administration.

The descriptors and the check itself are tested in tests/security. These tests check that the engine
asks the right question before it changes anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lanner.model.directory_objects import Queue, Site
from lanner.model.enums import INFINITE, DirectoryOperationResult, QueueAccessType, QueuePrivacyLevel
from lanner.model.errors import (
    AccessDenied,
    IllegalPropertyValue,
    IllegalSecurityDescriptor,
    InvalidOwner,
    PropertyNotallowed,
)
from lanner.security.access_masks import ConnectedNetworkAccess, QueueAccess, QueueManagerAccess
from lanner.security.identity import ANONYMOUS, ANONYMOUS_IN_EVERYONE, SYSTEM, Identity
from lanner.security.profile import Profile
from lanner.wire.path_name import PathName
from lanner.wire.security_descriptor import AccessMask, Ace, Acl, SecurityDescriptor, allow, deny
from lanner.wire.sid import ANONYMOUS_LOGON, BUILTIN_ADMINISTRATORS, EVERYONE, Sid
from tests.engine.harness import Harness
from tests.statuses import MQ_ERROR_ACCESS_DENIED

RECEIVE, SEND, MOVE, PEEK = QueueAccessType.RECEIVE, QueueAccessType.SEND, QueueAccessType.MOVE, QueueAccessType.PEEK
DOMAIN = Sid.parse("S-1-5-21-1-2-3")
STAFF = DOMAIN.child(1100)
OWNER = Identity("owner", DOMAIN.child(1001), is_domain_user=True)
READER = Identity("reader", DOMAIN.child(1002), frozenset({STAFF}), is_domain_user=True)
STRANGER = Identity("stranger", DOMAIN.child(1003), is_domain_user=True)
ADMINISTRATOR = Identity("administrator", DOMAIN.child(500), is_domain_user=True, is_administrator=True)


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Harness]:
    """A queue manager where every user may create queues."""
    harness = Harness(tmp_path / "data")
    manager = harness.engine.queue_manager
    assert manager.security is not None
    grant = allow(EVERYONE, QueueManagerAccess.CREATE_QUEUE)
    descriptor = SecurityDescriptor.unpack(manager.security)
    assert descriptor.dacl is not None
    manager.security = replace(descriptor, dacl=Acl((*descriptor.dacl.aces, grant))).pack()
    yield harness
    harness.close()


def descriptor(*entries: Ace, owner: Sid = OWNER.sid) -> bytes:
    return SecurityDescriptor(owner=owner, dacl=Acl(entries)).pack()


def opens(h: Harness, name: str, access: QueueAccessType, identity: Identity) -> bool:
    try:
        h.engine.close_queue(h.open(name, access, identity=identity))
    except AccessDenied:
        return False
    return True


# Opening
# ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "granted"),
    [
        (QueueAccess.RECEIVE_MESSAGE, {RECEIVE, MOVE, PEEK}),
        (QueueAccess.PEEK_MESSAGE, {PEEK}),
        (QueueAccess.DELETE_MESSAGE, set()),
        (QueueAccess.WRITE_MESSAGE, {SEND}),
        (QueueAccess.GENERIC_READ, {RECEIVE, MOVE, PEEK}),
        (QueueAccess.GENERIC_WRITE, {SEND}),
        (QueueAccess.GENERIC_ALL, {RECEIVE, MOVE, PEEK, SEND}),
        (QueueAccess.SET_QUEUE_PROPERTIES | QueueAccess.DELETE_QUEUE, set()),
    ],
    ids=lambda value: value.name if isinstance(value, QueueAccess) else "",
)
def test_a_queue_opens_for_what_its_descriptor_grants(
    h: Harness, right: QueueAccess, granted: set[QueueAccessType]
) -> None:
    """MS-MQMQ 2.2.24: to the user, or to a group of the user's; to no other user."""
    for sid in (READER.sid, STAFF):
        name = f"q{sid.rid}"
        h.create(name, identity=OWNER, security=descriptor(allow(sid, right)))
        for access in (RECEIVE, MOVE, PEEK, SEND):
            assert opens(h, name, access, READER) == (access in granted)
            assert not opens(h, name, access, STRANGER)
            assert not opens(h, name, access, ANONYMOUS)
            assert opens(h, name, access, SYSTEM)


def test_a_denied_open_leaves_nothing_behind(h: Harness) -> None:
    queue = h.create(identity=OWNER)
    assert not opens(h, "q", RECEIVE, STRANGER)
    assert not queue.open_queue_descriptors
    assert not queue.active


def test_a_new_queue_belongs_to_whoever_made_it(h: Harness) -> None:
    """DECISIONS, safe defaults: the creator and administrators have every right.

    Everybody else may send.
    """
    queue = h.create(identity=OWNER)
    for access in (RECEIVE, MOVE, PEEK, SEND):
        for identity in (OWNER, ADMINISTRATOR):
            assert opens(h, "q", access, identity)
        for identity in (STRANGER, ANONYMOUS):
            assert opens(h, "q", access, identity) is (access is SEND)
    for identity in (STRANGER, ANONYMOUS):
        with pytest.raises(AccessDenied):
            h.engine.get_queue_properties(queue, identity=identity)
        with pytest.raises(AccessDenied):
            h.engine.set_queue_properties(queue, {"security": descriptor(owner=identity.sid)}, identity=identity)
        with pytest.raises(AccessDenied):
            h.engine.delete_queue(queue, identity=identity)


def test_in_the_document_profile_a_new_queue_shows_its_properties_and_takes_nothing(tmp_path: Path) -> None:
    """MS-MQDMPR 3.1.7.1.3.1: the owner has every right.

    Everybody else may read the queue's properties.
    """
    h = Harness(tmp_path / "data", profile=Profile.DOCUMENT)
    queue = h.engine.queues.make(Queue(pathname=r".\private$\q"), PathName.parse(r".\private$\q"), identity=OWNER)
    for access in (RECEIVE, MOVE, PEEK, SEND):
        assert opens(h, "q", access, OWNER)
        assert not opens(h, "q", access, STRANGER)
        assert not opens(h, "q", access, ADMINISTRATOR)
    assert h.engine.get_queue_properties(queue, identity=STRANGER).label == ""
    with pytest.raises(AccessDenied):
        h.engine.get_queue_properties(queue, identity=ANONYMOUS)
    h.close()


@pytest.mark.parametrize("owner", [ANONYMOUS_LOGON, EVERYONE], ids=str)
def test_what_nobody_proves_to_be_never_owns_a_queue(h: Harness, owner: Sid) -> None:
    """No unproven identity becomes an owner, by a descriptor for a new queue or later.

    This holds even where the list allows taking ownership.
    """
    everything = (allow(EVERYONE, QueueAccess.GENERIC_ALL), allow(ANONYMOUS_LOGON, QueueAccess.GENERIC_ALL))
    for identity, expected in ((OWNER, OWNER.sid), (SYSTEM, BUILTIN_ADMINISTRATORS)):
        queue = h.create(identity.name, identity=identity, security=descriptor(*everything, owner=owner))
        assert queue.security is not None
        assert SecurityDescriptor.unpack(queue.security).owner == expected
        for caller in (SYSTEM, OWNER, ANONYMOUS_IN_EVERYONE):
            with pytest.raises((InvalidOwner, AccessDenied)):
                h.engine.set_queue_properties(
                    queue, {"security": descriptor(*everything, owner=owner)}, identity=caller
                )
        with pytest.raises(InvalidOwner):
            h.engine.set_queue_properties(queue, {"security": descriptor(owner=owner)})
        assert SecurityDescriptor.unpack(queue.security).owner == expected


def test_the_administration_queue_belongs_to_the_administrators(h: Harness) -> None:
    queue = h.queue("admin_queue$")
    assert queue.security is not None
    assert SecurityDescriptor.unpack(queue.security).owner == BUILTIN_ADMINISTRATORS
    assert not opens(h, "admin_queue$", PEEK, STRANGER)
    assert opens(h, "admin_queue$", SEND, ANONYMOUS)
    manager = h.engine.queue_manager
    assert manager.security is not None
    assert SecurityDescriptor.unpack(manager.security).owner == BUILTIN_ADMINISTRATORS


def test_a_denying_entry_wins_over_a_later_grant(h: Harness) -> None:
    entries = [deny(READER.sid, QueueAccess.WRITE_MESSAGE), allow(STAFF, QueueAccess.GENERIC_ALL)]
    h.create(identity=OWNER, security=descriptor(*entries))
    assert not opens(h, "q", SEND, READER)
    assert opens(h, "q", RECEIVE, READER)


def test_the_anonymous_user_is_not_everyone(h: Harness) -> None:
    """MS-MQDMPR 3.1.7.1.3.1 names both; an operator may decide otherwise."""
    h.create("everyone", identity=OWNER, security=descriptor(allow(EVERYONE, QueueAccess.WRITE_MESSAGE)))
    h.create("anonymous", identity=OWNER, security=descriptor(allow(ANONYMOUS_LOGON, QueueAccess.WRITE_MESSAGE)))
    assert (opens(h, "everyone", SEND, ANONYMOUS), opens(h, "anonymous", SEND, ANONYMOUS)) == (False, True)
    assert opens(h, "everyone", SEND, ANONYMOUS_IN_EVERYONE)
    assert (opens(h, "everyone", SEND, STRANGER), opens(h, "anonymous", SEND, STRANGER)) == (True, False)


def test_generic_rights_of_a_new_queue_mean_what_they_say(h: Harness) -> None:
    """MS-DTYP 2.4.3: setting a descriptor maps generic rights.

    0x80000000 then is GENERIC_READ of a queue.
    """
    h.create(identity=OWNER, security=descriptor(allow(READER.sid, AccessMask.GENERIC_READ)))
    assert (opens(h, "q", RECEIVE, READER), opens(h, "q", SEND, READER)) == (True, False)
    h.engine.set_queue_properties(
        h.queue(), {"security": descriptor(allow(READER.sid, AccessMask.GENERIC_ALL))}, identity=OWNER
    )
    assert (opens(h, "q", RECEIVE, READER), opens(h, "q", SEND, READER)) == (True, True)


def test_an_open_handle_keeps_its_rights(h: Harness) -> None:
    """They are checked when a queue is opened, as Windows does."""
    queue = h.create(identity=OWNER, security=descriptor(allow(READER.sid, QueueAccess.GENERIC_ALL)))
    handle = h.open(access=SEND, identity=READER)
    h.engine.set_queue_properties(queue, {"security": descriptor()}, identity=OWNER)
    assert not opens(h, "q", SEND, READER)
    assert h.engine.enqueue_message_to_an_open_queue(handle, h.properties(b"x")) == 0


def test_a_send_names_the_user_who_opened_the_queue(h: Harness) -> None:
    h.create(identity=OWNER, security=descriptor(allow(READER.sid, QueueAccess.GENERIC_ALL)))
    handle = h.open(access=SEND, identity=READER)
    h.engine.enqueue_message_to_an_open_queue(handle, h.properties(b"x"))
    (message,) = h.messages()
    assert message.sender_identifier == READER.sid.pack()


@pytest.mark.parametrize("identity", [STRANGER, ANONYMOUS], ids=lambda identity: identity.name)
def test_several_destinations_are_opened_all_or_none(h: Harness, identity: Identity) -> None:
    everyone = descriptor(allow(EVERYONE, QueueAccess.GENERIC_ALL), allow(ANONYMOUS_LOGON, QueueAccess.GENERIC_ALL))
    mine = h.create("a", identity=OWNER, security=everyone)
    h.create("b", identity=OWNER, security=descriptor())
    assert opens(h, "a", SEND, identity)
    assert not opens(h, r"DIRECT=OS:.\private$\a,DIRECT=OS:.\private$\b", SEND, identity)
    assert not mine.active


def test_every_name_of_a_queue_is_checked(h: Harness) -> None:
    private, public = h.create(identity=OWNER), h.create(r".\orders", identity=OWNER)
    me = h.engine.queue_manager.identifier
    for name in (
        r"DIRECT=OS:.\private$\q",
        r"DIRECT=OS:alpha.example.com\private$\q",
        rf"PRIVATE={me}\{private.private_queue_number:x}",
        rf"PRIVATE={me}\{private.private_queue_number:x};journal",
        r"DIRECT=OS:.\private$\q;journal",
        r"DIRECT=OS:.\orders",
        f"PUBLIC={public.identifier}",
        f"PUBLIC={public.identifier};journal",
    ):
        for identity in (STRANGER, ANONYMOUS):
            assert not opens(h, name, RECEIVE, identity)
            assert not opens(h, name, PEEK, identity)
        for identity in (OWNER, ADMINISTRATOR):
            assert opens(h, name, RECEIVE, identity)


# Journals, subqueues, system queues
# -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "granted"),
    [
        (QueueAccess.RECEIVE_JOURNAL_MESSAGE, {RECEIVE, PEEK}),
        (QueueAccess.RECEIVE_MESSAGE, {PEEK}),
        (QueueAccess.WRITE_MESSAGE, set()),
    ],
    ids=lambda value: value.name if isinstance(value, QueueAccess) else "",
)
def test_a_journal_is_guarded_by_its_queue_with_rights_of_its_own(
    h: Harness, right: QueueAccess, granted: set[QueueAccessType]
) -> None:
    """MS-MQMQ 2.2.24: MQSEC_RECEIVE_JOURNAL_MESSAGE."""
    h.create(identity=OWNER, security=descriptor(allow(READER.sid, right)))
    journal = r"DIRECT=OS:.\private$\q;journal"
    assert {access for access in (RECEIVE, PEEK) if opens(h, journal, access, READER)} == granted
    assert not opens(h, journal, PEEK, STRANGER)


def test_a_subqueue_is_made_only_by_who_may_open_its_queue(h: Harness) -> None:
    """Otherwise anybody could fill the store with subqueues of other people's queues."""
    queue = h.create(identity=OWNER, security=descriptor(allow(READER.sid, QueueAccess.PEEK_MESSAGE)))
    name = r"DIRECT=OS:.\private$\q;retry"
    before = dict(h.engine.queue_manager.queue_collection)
    for access in (RECEIVE, MOVE, PEEK):
        assert not opens(h, name, access, STRANGER)
        assert not opens(h, name, access, ANONYMOUS)
    assert not opens(h, name, RECEIVE, READER)
    assert queue.subqueues == {}
    assert h.engine.queue_manager.queue_collection == before
    assert opens(h, name, PEEK, READER)
    assert not opens(h, name, RECEIVE, READER)
    assert list(queue.subqueues) == ["retry"]


@pytest.mark.parametrize("suffix", ["DEADLETTER", "DEADXACT", "JOURNAL"])
def test_the_systems_queues_are_guarded_by_the_queue_manager(h: Harness, suffix: str) -> None:
    """MS-MQMQ 2.2.23: system queues need rights on the machine.

    Administrators have them, others only when they are granted.
    """
    is_journal = suffix == "JOURNAL"
    rights = (
        (QueueManagerAccess.PEEK_JOURNAL_QUEUE_MESSAGE, QueueManagerAccess.RECEIVE_JOURNAL_QUEUE_MESSAGE)
        if is_journal
        else (QueueManagerAccess.PEEK_DEADLETTER_MESSAGE, QueueManagerAccess.RECEIVE_DEADLETTER_MESSAGE)
    )
    manager = h.engine.queue_manager
    names = (f"MACHINE={manager.identifier};{suffix}", rf"DIRECT=OS:.\system$;{suffix}")
    for name in names:
        assert opens(h, name, RECEIVE, ADMINISTRATOR)
        for identity in (OWNER, ANONYMOUS):
            assert not opens(h, name, PEEK, identity)
    for right, may_receive in zip(rights, (False, True), strict=True):
        manager.security = descriptor(allow(READER.sid, right))
        for name in names:
            assert opens(h, name, PEEK, READER)
            assert opens(h, name, RECEIVE, READER) == may_receive
    # Only an administrator may use what is left.
    queue = h.queue(names[0])
    for identity in (READER, ANONYMOUS):
        with pytest.raises(AccessDenied):
            h.engine.set_queue_properties(queue, {"quota": 0}, identity=identity)


@pytest.mark.parametrize("name", ["order_queue$", "notify_queue$"])
@pytest.mark.parametrize("identity", [OWNER, ADMINISTRATOR, ANONYMOUS], ids=lambda identity: identity.name)
def test_internal_queues_are_for_the_queue_manager_alone(h: Harness, name: str, identity: Identity) -> None:
    for access in (RECEIVE, PEEK, SEND, MOVE):
        assert not opens(h, name, access, identity)


# Outgoing and connector queues
# ------------------------------------------------------------------------


def test_everybody_may_send_elsewhere_and_administrators_look_at_what_waits(h: Harness) -> None:
    far = r"DIRECT=OS:BETA\private$\q"
    for identity in (STRANGER, ANONYMOUS, ADMINISTRATOR):
        assert opens(h, far, SEND, identity)
        for access in (QueueAccessType.PEEK_ADMIN, QueueAccessType.RECEIVE_ADMIN):
            assert opens(h, far, access, identity) == identity.is_administrator
    queue = h.queue(far)
    for identity in (STRANGER, ANONYMOUS):
        for act in (
            lambda: h.engine.delete_queue(queue, identity=identity),  # noqa: B023 (called at once)
            lambda: h.engine.set_queue_properties(queue, {"quota": 0}, identity=identity),  # noqa: B023
            lambda: h.engine.get_queue_properties(queue, identity=identity),  # noqa: B023
        ):
            with pytest.raises(AccessDenied):
                act()
    assert h.queue(far) is queue


def test_a_connector_queue_is_guarded_by_its_site(h: Harness) -> None:
    """MS-MQMQ 2.2.27: MQSEC_CN_OPEN_CONNECTOR.

    Without that right a caller cannot even cause the queue to be created.
    """
    site = Site(name="Mainframe", foreign_site=True)
    assert h.directory.create_object(site)[0] is DirectoryOperationResult.SUCCESS
    name = f"CONNECTOR={site.identifier}"
    before = dict(h.engine.queue_manager.queue_collection)
    for identity in (STRANGER, ANONYMOUS):
        assert not opens(h, name, RECEIVE, identity)
    assert h.engine.queue_manager.queue_collection == before
    assert opens(h, name, RECEIVE, ADMINISTRATOR)
    assert not opens(h, name, PEEK, STRANGER)
    granted = descriptor(allow(READER.sid, ConnectedNetworkAccess.OPEN_CONNECTOR))
    other = Site(name="Other", foreign_site=True, security=granted)
    assert h.directory.create_object(other)[0] is DirectoryOperationResult.SUCCESS
    assert opens(h, f"CONNECTOR={other.identifier}", RECEIVE, READER)
    assert not opens(h, f"CONNECTOR={other.identifier}", RECEIVE, STRANGER)


# Administration
# ---------------------------------------------------------------------------------------


def test_a_queue_is_created_by_who_may(tmp_path: Path) -> None:
    """MS-MQMQ 2.2.23 MQSEC_CREATE_QUEUE: administrators, until others are granted it."""
    h = Harness(tmp_path / "other")
    for identity in (STRANGER, ANONYMOUS):
        with pytest.raises(AccessDenied):
            h.create(identity=identity)
        with pytest.raises(AccessDenied):
            h.create(r".\orders", identity=identity)
    assert not h.directory.read("Queue", None)[1]
    h.create(identity=ADMINISTRATOR)
    assert opens(h, "q", RECEIVE, ADMINISTRATOR)
    h.close()


def test_a_queue_is_deleted_by_who_may(h: Harness) -> None:
    queue = h.create(identity=OWNER, security=descriptor(allow(READER.sid, QueueAccess.DELETE_QUEUE)))
    for identity in (STRANGER, ANONYMOUS, ADMINISTRATOR, OWNER):
        with pytest.raises(AccessDenied) as raised:
            h.engine.delete_queue(queue, identity=identity)
        assert raised.value.status == MQ_ERROR_ACCESS_DENIED
    assert h.queue() is queue
    h.engine.delete_queue(queue, identity=READER)
    assert h.engine.find_queue(h.name("q")) is None


def test_the_systems_queues_are_deleted_by_nobody(h: Harness) -> None:
    h.create(identity=OWNER)
    manager = h.engine.queue_manager
    for queue in (manager.system_deadletter_queue, manager.order_acknowledgment_queue, h.queue().journal_queue):
        assert queue is not None
        for identity in (SYSTEM, ADMINISTRATOR, OWNER):
            with pytest.raises(AccessDenied):
                h.engine.delete_queue(queue, identity=identity)


def test_properties_are_read_by_who_may(h: Harness) -> None:
    """MS-MQMQ 2.2.24: reading properties needs MQSEC_GET_QUEUE_PROPERTIES.

    Reading the descriptor needs MQSEC_GET_QUEUE_PERMISSIONS.
    """
    queue = h.create(
        identity=OWNER,
        label="mine",
        security=descriptor(
            allow(READER.sid, QueueAccess.GET_QUEUE_PROPERTIES), allow(OWNER.sid, QueueAccess.GET_QUEUE_PROPERTIES)
        ),
    )
    for identity in (STRANGER, ANONYMOUS, ADMINISTRATOR):
        with pytest.raises(AccessDenied):
            h.engine.get_queue_properties(queue, identity=identity)
    found = h.engine.get_queue_properties(queue, identity=READER)
    assert (found.label, found.security) == ("mine", None)
    # The owner may always read the descriptor (MS-DTYP 2.5.3.2).
    assert h.engine.get_queue_properties(queue, identity=OWNER).security == queue.security


def test_what_was_read_is_a_copy(h: Harness) -> None:
    queue = h.create(label="mine")
    found = h.engine.get_queue_properties(queue)
    found.label = "changed"
    h.engine.set_queue_properties(queue, {"label": "new"})
    assert (queue.label, found.label) == ("new", "changed")


def test_properties_are_set_by_who_may(h: Harness) -> None:
    """MS-MQMQ 2.2.24 MQSEC_SET_QUEUE_PROPERTIES; a refused change changes nothing at all."""
    queue = h.create(identity=OWNER, security=descriptor(allow(READER.sid, QueueAccess.SET_QUEUE_PROPERTIES)))
    for identity in (STRANGER, ANONYMOUS, ADMINISTRATOR, OWNER):
        with pytest.raises(AccessDenied):
            h.engine.set_queue_properties(queue, {"label": "theirs"}, identity=identity)
    h.engine.set_queue_properties(queue, {"label": "theirs", "quota": 5}, identity=READER)
    with pytest.raises(AccessDenied):
        h.engine.set_queue_properties(queue, {"label": "more", "security": descriptor()}, identity=READER)
    assert (queue.label, queue.quota) == ("theirs", 5)
    assert opens(h, "q", SEND, READER) is False


def test_the_owner_can_always_repair_the_descriptor(h: Harness) -> None:
    """MS-DTYP 2.5.3.2: READ_CONTROL and WRITE_DAC, whatever the entries say; not more than that."""
    queue = h.create(identity=OWNER, security=descriptor())
    assert not opens(h, "q", RECEIVE, OWNER)
    with pytest.raises(AccessDenied):
        h.engine.set_queue_properties(queue, {"quota": 5}, identity=OWNER)
    h.engine.set_queue_properties(
        queue, {"security": descriptor(allow(OWNER.sid, QueueAccess.GENERIC_ALL))}, identity=OWNER
    )
    assert opens(h, "q", RECEIVE, OWNER)


def test_an_administrator_takes_ownership_first(h: Harness) -> None:
    """The privilege is WRITE_OWNER: to become the owner, who may then change the entries.

    An owner cannot give the ownership away.
    """
    queue = h.create(identity=OWNER, security=descriptor(allow(OWNER.sid, QueueAccess.GENERIC_ALL)))
    assert queue.security is not None
    before = SecurityDescriptor.unpack(queue.security)
    opened = descriptor(allow(ADMINISTRATOR.sid, QueueAccess.GENERIC_ALL))
    with pytest.raises(AccessDenied):
        h.engine.set_queue_properties(queue, {"security": opened}, identity=ADMINISTRATOR)
    for owner in (STRANGER.sid, EVERYONE):
        with pytest.raises(AccessDenied):
            h.engine.set_queue_properties(
                queue,
                {"security": replace(before, owner=owner).pack()},
                identity=OWNER if owner != EVERYONE else READER,
            )
    taken = replace(before, owner=ADMINISTRATOR.sid).pack()
    with pytest.raises(AccessDenied):
        h.engine.set_queue_properties(queue, {"security": taken}, identity=STRANGER)
    h.engine.set_queue_properties(queue, {"security": taken}, identity=ADMINISTRATOR)
    assert not opens(h, "q", RECEIVE, ADMINISTRATOR)
    mine = descriptor(allow(ADMINISTRATOR.sid, QueueAccess.GENERIC_ALL), owner=ADMINISTRATOR.sid)
    h.engine.set_queue_properties(queue, {"security": mine}, identity=ADMINISTRATOR)
    assert opens(h, "q", RECEIVE, ADMINISTRATOR)
    assert not opens(h, "q", RECEIVE, OWNER)


def test_a_changed_descriptor_outlives_a_restart(h: Harness) -> None:
    queue = h.create(identity=OWNER)
    h.engine.set_queue_properties(queue, {"security": descriptor(allow(READER.sid, QueueAccess.PEEK_MESSAGE))})
    h.restart()
    assert opens(h, "q", PEEK, READER)
    assert not opens(h, "q", PEEK, OWNER)


# Values
# -----------------------------------------------------------------------------------------------

GOOD: dict[str, list[object]] = {
    "label": ["", "x" * 124],
    "type": [uuid.UUID(int=1)],
    "journaling": [True, False],
    "quota": [0, INFINITE],
    "journal_quota": [0, INFINITE],
    "authentication": [True],
    "privacy_level": list(QueuePrivacyLevel),
    "multicast_address": [None, "234.1.1.1:8001"],
    "base_priority": [-32768, 32767],
}
BAD: dict[str, list[object]] = {
    "label": ["x" * 125, 5, None],
    "type": ["x"],
    "journaling": [1, "yes", None],
    "quota": [-1, INFINITE + 1, 1.5, True, None],
    "journal_quota": [-1, INFINITE + 1],
    "authentication": [0],
    "privacy_level": [1, "body"],
    "multicast_address": ["", "10.0.0.1:1", "234.1.1.1"],
    "base_priority": [-32769, 32768],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_a_good_value_is_taken_and_kept(h: Harness, name: str, value: object) -> None:
    queue = h.create("changed")
    h.engine.set_queue_properties(queue, {name: value})
    h.create("created", **{name: value})  # type: ignore[arg-type] # an attribute
    h.restart()
    assert getattr(h.queue("changed"), name) == value
    assert getattr(h.queue("created"), name) == value


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_value_is_refused_and_changes_nothing(h: Harness, name: str, value: object) -> None:
    queue = h.create("changed", label="before")
    with pytest.raises(IllegalPropertyValue, match=name):
        h.engine.set_queue_properties(queue, {"label": "after", name: value})
    assert queue.label == "before"
    with pytest.raises(IllegalPropertyValue, match=name):
        h.create("created", **{name: value})  # type: ignore[arg-type] # an attribute
    assert h.engine.find_queue(h.name("created")) is None


@pytest.mark.parametrize("value", [b"", b"garbage", "O:BA", 5])
def test_what_is_no_descriptor_is_refused(h: Harness, value: object) -> None:
    queue = h.create("changed")
    with pytest.raises(IllegalSecurityDescriptor):
        h.engine.set_queue_properties(queue, {"security": value})
    with pytest.raises(IllegalSecurityDescriptor):
        h.create("created", security=value)


@pytest.mark.spec("DMPR-3.1.1.1-4")
def test_a_right_that_queues_do_not_have_is_refused(h: Harness) -> None:
    """MS-MQDMPR 3.1.1.2 Security: entries use the bits of MQQUEUEACCESSMASK."""
    strange = descriptor(allow(READER.sid, 0x0000_0100))
    with pytest.raises(IllegalSecurityDescriptor):
        h.create(security=strange)
    with pytest.raises(IllegalSecurityDescriptor):
        h.engine.set_queue_properties(h.create(), {"security": strange})


@pytest.mark.parametrize(
    "name",
    ["pathname", "transactional", "identifier", "number", "parent", "queue_type", "create_time", "total_bytes", "x"],
)
def test_what_a_queue_is_cannot_be_changed(h: Harness, name: str) -> None:
    queue: Queue = h.create(label="before")
    with pytest.raises(PropertyNotallowed, match=name):
        h.engine.set_queue_properties(queue, {"label": "after", name: 1})
    assert queue.label == "before"
