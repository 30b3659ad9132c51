"""Start and stop (MS-MQDMPR 3.1.3, 3.1.4.1, 3.1.4.2, 3.1.4.12, 3.1.4.13)."""

from __future__ import annotations

import inspect
import math
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from lanner.directory import AttributeFilter, Directory
from lanner.engine import Engine
from lanner.engine.settings import HostPolicy
from lanner.model.directory_objects import DirectoryObject, OutgoingQueue, QueueManager
from lanner.model.enums import (
    Acknowledgements,
    DirectoryOperationResult,
    MessageClass,
    OutgoingState,
    QueueAccessType,
    QueueManagerState,
    QueueType,
)
from lanner.model.errors import AccessDenied, DsError, ServiceNotAvailable
from lanner.security.identity import Identity
from lanner.security.keys import QueueManagerKeys
from lanner.security.profile import Profile
from lanner.wire.public_keys import MqdsPublicKeys
from lanner.wire.sid import Sid
from tests.engine.harness import Harness, WatchedDirectory

ADMINISTRATOR = Identity("boss", Sid.parse("S-1-5-21-1-2-3-500"), is_domain_user=True, is_administrator=True)
DOMAIN = uuid.UUID("11111111-2222-3333-4444-555555555555")
ELSEWHERE = r"DIRECT=OS:BETA\private$\q"
OVER_HTTP = "DIRECT=HTTP://beta/msmq/private$/q"


class Answering:
    """A directory that answers reads of one class in its own way."""

    def __init__(self, directory: Directory, object_type: str, result: DirectoryOperationResult) -> None:
        self._directory = directory
        self._object_type = object_type
        self._result = result

    def __getattr__(self, name: str) -> object:
        return getattr(self._directory, name)

    def read(
        self, object_type: str, filters: Sequence[AttributeFilter] | None, attributes: Sequence[str] | None = None
    ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        if object_type == self._object_type:
            return self._result, None
        return self._directory.read(object_type, filters, attributes)


def answering(object_type: str, result: DirectoryOperationResult) -> Callable[[Directory], Answering]:
    return lambda directory: Answering(directory, object_type, result)


def state(h: Harness) -> QueueManagerState:
    return h.engine.queue_manager.queue_manager_state


@pytest.fixture
def integrated(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "integrated", directory_integrated=True)
    yield harness
    harness.close()


# The names of the computer
# ------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.3-1")
def test_the_host_is_asked_for_its_names(tmp_path: Path) -> None:
    """The host provides three names.

    MachineDomainId is DomainGuid, ComputerName is the account domain's name, and the qualified name
    contains the DNS domain.
    """
    policy = HostPolicy("GAMMA", "corp.example", DOMAIN)
    h = Harness(tmp_path / "data", computer_name="", dns_domain="", host_policy=lambda: policy)
    qm = h.engine.queue_manager
    assert qm.machine_domain_id == DOMAIN
    assert qm.computer_name == "GAMMA"
    assert qm.qualified_computer_name == "GAMMA.corp.example"
    assert h.create().qualified_pathname == r"GAMMA.corp.example\private$\q"
    h.close()


@pytest.mark.spec("DMPR-3.1.3-2")
def test_no_step_follows_when_the_host_does_not_tell_its_names(h: Harness) -> None:
    """If opening the policy or a query fails, take no further action. The caller gets the error."""

    def refuse() -> HostPolicy:
        message = "STATUS_ACCESS_DENIED"
        raise OSError(message)

    h.create()
    h.stop()
    h.settings["host_policy"] = refuse
    with pytest.raises(OSError, match="STATUS_ACCESS_DENIED"):
        h.start()
    qm = h.engine.queue_manager
    assert state(h) is QueueManagerState.INITIALIZING
    assert qm.queue_collection == {}
    assert qm.system_deadletter_queue is None
    assert not qm.connection_active
    with pytest.raises(ServiceNotAvailable):
        h.open()


@pytest.mark.spec("DMPR-3.1.3-2")
@pytest.mark.parametrize("object_type", ["QueueManager", "Enterprise"])
def test_a_directory_error_without_a_rule_is_raised(integrated: Harness, object_type: str) -> None:
    """If any error occurs and is not handled, the queue manager MUST raise it to the caller."""
    h = integrated
    h.stop()
    h.wrap_directory = answering(object_type, DirectoryOperationResult.GENERIC_ERROR)
    with pytest.raises(DsError):
        h.start()
    assert state(h) is QueueManagerState.INITIALIZING


# Directory-integrated start
# -----------------------------------------------------------------------------------


def test_provisioning_takes_the_sites_and_the_retry_time(tmp_path: Path) -> None:
    """3.1.3: InitializationRetryTimerDuration of 120 seconds is stored.

    The configured site is in SiteIdentifierList.
    """
    h = Harness(tmp_path / "data", directory_integrated=True)
    qm = h.engine.queue_manager
    assert qm.initialization_retry_timer_duration == 120
    assert qm.site_identifier_list == [h.directory.provision()]
    qm.initialization_retry_timer_duration = 240
    h.engine.save_queue_manager()
    h.restart()
    assert h.engine.queue_manager.initialization_retry_timer_duration == 240
    h.close()


@pytest.mark.spec("DMPR-3.1.3-5", "DMPR-3.1.3-6")
def test_provisioning_publishes_one_key_per_provider(tmp_path: Path) -> None:
    """Both lists contain three providers by name (RFC 8017 3.1).

    The base provider has 512 bits, the others have 1024.
    """
    keys = QueueManagerKeys.generate(Profile.DOCUMENT)
    profile = Profile.DOCUMENT
    h = Harness(tmp_path / "data", directory_integrated=True, profile=profile, public_keys=keys.public_key_lists)
    qm = h.engine.queue_manager
    lists = {"encryption": qm.public_encryption_key_list, "signing": qm.public_signing_key_list}
    assert lists["encryption"] != lists["signing"]
    for name, data in lists.items():
        entries = MqdsPublicKeys.unpack(data).keys
        assert {entry.provider_name: entry.public_key.bit_length for entry in entries} == {
            "Microsoft Base Cryptographic Provider v1.0": 512,
            "Microsoft Enhanced Cryptographic Provider v1.0": 1024,
            "Microsoft Enhanced RSA and AES Cryptographic Provider": 1024,
        }
        assert len(entries) == 3
        for entry, private in zip(entries, getattr(keys, name).values(), strict=True):
            assert f"{entry.provider_name}\0".encode("utf-16-le") in data
            key = entry.public_key
            assert key.modulus.bit_length() == key.bit_length
            # RFC 8017 3.1: n = p * q, e odd with 3 <= e < n and gcd(e, lambda(n)) = 1.
            assert private.prime1 * private.prime2 == key.modulus
            assert private.prime1 != private.prime2
            assert 3 <= key.public_exponent < key.modulus
            assert math.gcd(key.public_exponent, math.lcm(private.prime1 - 1, private.prime2 - 1)) == 1
    result, found = h.directory.read("QueueManager", None)
    assert result is DirectoryOperationResult.SUCCESS
    assert isinstance(found, QueueManager)
    assert found.public_encryption_key_list == lists["encryption"]
    assert found.public_signing_key_list == lists["signing"]
    h.close()


@pytest.mark.spec("DMPR-6-8")
def test_a_list_of_two_keys_is_understood(integrated: Harness) -> None:
    """Notes 18, 19: Windows Server 2003 and earlier publish no Enhanced RSA and AES key."""
    h = integrated
    all_keys = MqdsPublicKeys.unpack(QueueManagerKeys.generate().public_key_lists()[0])
    two = MqdsPublicKeys(all_keys.keys[:2]).pack()
    changed = QueueManager(identifier=h.engine.queue_manager.identifier, public_encryption_key_list=two)
    assert h.directory.write(changed, ["PublicEncryptionKeyList"]) is DirectoryOperationResult.SUCCESS
    h.restart()
    found = MqdsPublicKeys.unpack(h.engine.queue_manager.public_encryption_key_list)
    assert [key.provider_name for key in found.keys] == [key.provider_name for key in all_keys.keys[:2]]
    assert found.find("Microsoft Enhanced RSA and AES Cryptographic Provider") is None


@pytest.mark.spec("DMPR-3.1.3-7")
def test_the_own_object_is_adopted_and_its_readable_sites_are_kept(integrated: Harness) -> None:
    """On Success update the attributes; add each Site that can be read to SiteCollection."""
    h = integrated
    (readable,) = h.engine.queue_manager.site_identifier_list
    unreadable = uuid.uuid4()
    changed = QueueManager(
        identifier=h.engine.queue_manager.identifier,
        queue_manager_quota=4711,
        site_identifier_list=[unreadable, readable],
    )
    written = h.directory.write(changed, ["QueueManagerQuota", "SiteIdentifierList"])
    assert written is DirectoryOperationResult.SUCCESS
    assert h.engine.queue_manager.queue_manager_quota != 4711
    h.restart()
    qm = h.engine.queue_manager
    assert qm.queue_manager_quota == 4711
    assert [site.identifier for site in qm.site_collection] == [readable]
    for collection, identifiers in (
        (qm.site_collection, qm.site_identifier_list),
        (qm.out_routing_server_collection, qm.out_routing_server_identifier_list),
        (qm.in_routing_server_collection, qm.in_routing_server_identifier_list),
    ):
        assert {member.identifier for member in collection} <= set(identifiers)


@pytest.mark.spec("DMPR-3.1.3-8")
def test_a_missing_own_object_is_an_error_except_while_provisioning(tmp_path: Path) -> None:
    """ObjectNotFound and iProvisioning: continue; else the error is raised."""
    missing = answering("QueueManager", DirectoryOperationResult.OBJECT_NOT_FOUND)
    h = Harness(tmp_path / "data", directory_integrated=True, wrap_directory=missing)
    assert state(h) is QueueManagerState.READY
    assert h.engine.queue_manager.site_collection == []
    h.stop()
    with pytest.raises(DsError, match="ObjectNotFound"):
        h.start()
    assert state(h) is QueueManagerState.INITIALIZING
    h.close()


@pytest.mark.spec("DMPR-3.1.3-9")
def test_the_enterprise_is_read_for_its_notification_flag(integrated: Harness) -> None:
    """Success: EnterpriseReference is the object.

    AttributeNotFound: it is a local object with the flag True.
    """
    h = integrated
    enterprise = h.engine.queue_manager.enterprise_reference
    assert enterprise is not None
    _, found = h.directory.read("Enterprise", None)
    assert found is not None
    assert enterprise.identifier == found.identifier
    assert enterprise.non_ldap_capable_queue_manager_notification is False

    h.wrap_directory = answering("Enterprise", DirectoryOperationResult.ATTRIBUTE_NOT_FOUND)
    h.restart()
    enterprise = h.engine.queue_manager.enterprise_reference
    assert enterprise is not None
    assert enterprise.identifier != found.identifier
    assert enterprise.non_ldap_capable_queue_manager_notification is True


@pytest.mark.spec("DMPR-3.1.3-10")
@pytest.mark.parametrize("directory_integrated", [True, False])
def test_the_directory_timers_run_in_integrated_mode_only(tmp_path: Path, directory_integrated: bool) -> None:
    reads: list[str] = []
    h = Harness(
        tmp_path / "data",
        directory_integrated=directory_integrated,
        wrap_directory=lambda directory: WatchedDirectory(directory, lambda object_type, _: reads.append(object_type)),
    )
    assert (h.engine.next_delay() is None) is not directory_integrated
    reads.clear()
    h.tick(24 * 3600)
    # Sites are read one by one, site gates by the routing links that name them.
    assert reads == (["Site", "RoutingLink"] if directory_integrated else [])
    h.close()


def test_a_directory_that_is_away_does_not_keep_the_queue_manager_from_starting(integrated: Harness) -> None:
    """MS-MQDMPR 3.1.7.1.20: DirectoryNotConnected begins the offline mode."""
    h = integrated
    h.create()
    h.before_start = lambda engine: setattr(engine.directory, "connected", False)
    h.restart()
    assert state(h) is QueueManagerState.READY
    assert h.engine.queue_manager.directory_offline
    h.send(body=b"works")
    assert h.receive() == b"works"


# System queues
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.3-11")
@pytest.mark.parametrize("directory_integrated", [True, False])
def test_five_system_queues_are_made_and_two_of_them_are_not_for_applications(
    tmp_path: Path, directory_integrated: bool
) -> None:
    """Dead-letter, transactional dead-letter and journal are for applications.

    Order acknowledgments and change notifications are internal.
    """
    h = Harness(tmp_path / "data", directory_integrated=directory_integrated)
    for _ in range(2):
        qm = h.engine.queue_manager
        internal = [qm.order_acknowledgment_queue, qm.change_notification_queue]
        queues = [
            qm.system_deadletter_queue,
            qm.system_transactional_deadletter_queue,
            qm.system_journal_queue,
            *internal,
        ]
        assert len({queue.number for queue in queues if queue is not None}) == 5
        for queue in queues:
            assert queue is not None
            assert queue.queue_type is QueueType.SYSTEM
            assert qm.queue_collection[queue.number] is queue
        for queue in internal:
            assert queue is not None
            for access in (QueueAccessType.SEND, QueueAccessType.RECEIVE, QueueAccessType.PEEK):
                with pytest.raises(AccessDenied):
                    h.open(f"DIRECT=OS:{queue.pathname}", access, identity=ADMINISTRATOR)
        for suffix in ("DEADLETTER", "DEADXACT", "JOURNAL"):
            h.open(f"MACHINE={qm.identifier};{suffix}", identity=ADMINISTRATOR)
        assert h.directory.read("Queue", None)[0] is DirectoryOperationResult.OBJECT_NOT_FOUND
        # The second start finds them and makes no others.
        count = len(qm.queue_collection)
        h.restart()
        assert len(h.engine.queue_manager.queue_collection) == count
    h.close()


# Hardened mode
# --------------------------------------------------------------------------------------------------


def states(h: Harness) -> tuple[OutgoingState, OutgoingState]:
    queues = h.queue(ELSEWHERE), h.queue(OVER_HTTP)
    first, second = (queue.state for queue in queues if isinstance(queue, OutgoingQueue))
    return first, second


@pytest.mark.spec("DMPR-3.1.3-12", "DMPR-6-4")
def test_hardened_mode_locks_outgoing_queues_at_the_next_start(h: Harness) -> None:
    """HardenedSecurity False: a Locked queue becomes Waiting.

    HardenedSecurity True: every non-HTTP queue becomes Locked.
    """
    h.send(ELSEWHERE, b"one")
    h.send(OVER_HTTP, b"two")
    h.settings["hardened_security"] = True
    assert OutgoingState.LOCKED not in states(h), "a change takes effect when the queue manager is restarted"
    h.restart()
    assert states(h)[0] is OutgoingState.LOCKED
    assert states(h)[1] is not OutgoingState.LOCKED
    h.settings["hardened_security"] = False
    assert states(h)[0] is OutgoingState.LOCKED
    h.restart()
    assert states(h)[0] is OutgoingState.WAITING


def test_hardened_mode_locks_new_outgoing_queues(tmp_path: Path) -> None:
    """MS-MQDMPR 3.1.1.3 Locked."""
    h = Harness(tmp_path / "data", hardened_security=True)
    h.send(ELSEWHERE, b"one")
    h.send(OVER_HTTP, b"two")
    assert states(h) == (OutgoingState.LOCKED, OutgoingState.INACTIVE)
    h.close()


# Recovery
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.3-14")
@pytest.mark.parametrize("how", ["crash", "restart"])
@pytest.mark.parametrize("prepared", [False, True])
def test_single_phase_transactions_are_aborted_at_the_start(h: Harness, how: str, prepared: bool) -> None:
    """Its received messages return to Available and its unsent messages vanish."""
    h.create("ledger", transactional=True)
    first = h.begin()
    h.send("ledger", b"received", transaction=first)
    h.commit(first)
    transaction = h.begin()
    assert h.receive("ledger", transaction) == b"received"
    h.send("ledger", b"unsent", transaction=transaction)
    if prepared:
        h.engine.transaction_prepare(transaction.identifier, single_phase=True)
    h.sync()
    used = h.queue("ledger").total_bytes
    getattr(h, how)()
    assert h.bodies("ledger") == [b"received"]
    assert h.engine.queue_manager.transaction_collection == {}
    assert 0 < h.queue("ledger").total_bytes < used
    assert h.receive("ledger") == b"received"


# Start and stop
# -------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.1.1-8")
def test_nothing_is_done_outside_the_ready_state(h: Harness) -> None:
    """Stopped is the initial state; the queue manager performs none of its functions in it."""
    assert {member.value for member in QueueManagerState} == {"Stopped", "Initializing", "Ready", "Stopping"}
    seen: list[QueueManagerState] = []
    queue = h.create()
    h.send(body=b"one")
    h.engine.stopped_subscribers.append(lambda: seen.append(state(h)))
    h.before_start = lambda engine: seen.append(engine.queue_manager.queue_manager_state)

    def policy() -> HostPolicy:
        seen.append(state(h))
        return HostPolicy("ALPHA", "example.com")

    h.settings["host_policy"] = policy
    assert state(h) is QueueManagerState.READY
    descriptor = h.open(access=QueueAccessType.SEND)
    h.engine.queue_manager_stopped()
    seen.append(state(h))
    engine, message = h.engine, h.message()
    operations: list[Callable[[], object]] = [
        h.create,
        h.open,
        lambda: engine.create_transaction(uuid.uuid4()),
        lambda: engine.delete_queue(queue),
        lambda: engine.dequeue_message(descriptor, timeout=0),
        lambda: engine.enqueue_message(queue, message),
        lambda: engine.enqueue_message_to_an_open_queue(descriptor, h.properties()),
        lambda: engine.insert_message(queue, message),
        lambda: engine.peek_message(descriptor, timeout=0),
        lambda: engine.purge_queue(queue),
        lambda: engine.set_queue_properties(queue, {"label": "x"}),
    ]
    for operation in operations:
        with pytest.raises(ServiceNotAvailable):
            operation()
    assert queue.message_count == 1
    h.restart()
    assert state(h) is QueueManagerState.READY
    stopping, stopped, initial, initializing = (seen[i] for i in (0, 1, 3, 4))
    assert stopping is QueueManagerState.STOPPING
    assert stopped is initial is QueueManagerState.STOPPED
    assert initializing is QueueManagerState.INITIALIZING


@pytest.mark.spec("DMPR-3.1.4.1-1")
def test_queue_manager_started_takes_no_arguments_and_initializes(tmp_path: Path) -> None:
    """3.1.4.1: no argument; the initialization makes the data model ready for use."""
    before: list[tuple[QueueManagerState, int]] = []

    def look(engine: Engine) -> None:
        qm = engine.queue_manager
        before.append((qm.queue_manager_state, len(qm.queue_collection)))

    h = Harness(tmp_path / "data", before_start=look)
    assert before == [(QueueManagerState.STOPPED, 0)]
    assert list(inspect.signature(h.engine.queue_manager_started).parameters) == []
    qm = h.engine.queue_manager
    assert qm.queue_manager_state is QueueManagerState.READY
    assert (qm.computer_name, qm.qualified_computer_name) == ("ALPHA", "ALPHA.example.com")
    assert qm.system_journal_queue is not None
    assert qm.connection_active
    h.close()


@pytest.mark.spec("DMPR-3.1.4.2-1")
def test_queue_manager_stopped_reaches_every_protocol_and_changes_no_queue(h: Harness) -> None:
    """3.1.4.2: no processing of its own; other protocols that subscribe shut down."""
    h.create()
    h.send(body=b"one")
    before = {number: queue.total_bytes for number, queue in h.engine.queue_manager.queue_collection.items()}
    told: list[str] = []
    h.engine.stopped_subscribers += [lambda: told.append("transfer"), lambda: told.append("remote read")]
    assert list(inspect.signature(h.engine.queue_manager_stopped).parameters) == []
    h.engine.queue_manager_stopped()
    assert told == ["transfer", "remote read"]
    after = {number: queue.total_bytes for number, queue in h.engine.queue_manager.queue_collection.items()}
    assert after == before
    h.restart()
    assert h.bodies() == [b"one"]


@pytest.mark.spec("DMPR-3.1.4.12-1", "DMPR-3.1.4.13-1")
def test_offline_and_online_switch_the_connection(h: Harness) -> None:
    """Take Offline sets ConnectionActive to False, Bring Online to True."""

    def is_active() -> bool:
        return h.engine.queue_manager.connection_active

    assert is_active()
    h.engine.take_offline()
    assert not is_active()
    h.engine.bring_online()
    assert is_active()


def test_a_purge_that_a_crash_interrupted_is_acknowledged_at_the_start(h: Harness) -> None:
    """A removal during recovery is reported like any other removal."""
    h.create()
    h.create("admin")
    h.send(
        body=b"lost",
        acknowledgements_requested=Acknowledgements.NEG_RECEIVE,
        administration_queue_format_name=h.name("admin"),
    )
    assert h.engine.dequeue_message_begin(h.open(), timeout=0) is not None
    h.engine.purge_queue(h.queue())
    h.sync()
    h.crash()
    assert h.bodies() == []
    assert [message.message_class for message in h.messages("admin")] == [MessageClass.NACK_QUEUE_PURGED]


@pytest.mark.spec("DMPR-3.1.3-3")
def test_the_list_of_directory_servers_is_read_again(tmp_path: Path) -> None:
    servers = ["dc1.example.com"]

    class Located:
        """The directory, with servers that can be found."""

        def __init__(self, directory: Directory) -> None:
            self._directory = directory

        def __getattr__(self, name: str) -> object:
            return (lambda: list(servers)) if name == "servers" else getattr(self._directory, name)

    interval = 3600.0
    h = Harness(
        tmp_path / "data",
        wrap_directory=Located,
        directory_integrated=True,
        directory_server_list_update_interval=interval,
    )
    try:
        qm = h.engine.queue_manager
        assert qm.initialization_retry_timer_duration == 120
        assert [str(site) for site in qm.site_identifier_list] == list(h.engine.settings.site_identifiers)
        assert qm.directory_server_list == ["dc1.example.com"]
        servers[:] = ["dc2.example.com", "dc1.example.com"]
        h.tick(interval - 1)
        assert qm.directory_server_list == ["dc1.example.com"]
        h.tick(1)
        assert qm.directory_server_list == servers
        # No answer is no news.
        servers.clear()
        h.tick(interval)
        assert qm.directory_server_list == ["dc2.example.com", "dc1.example.com"]
        h.restart()
        assert h.engine.queue_manager.directory_server_list == ["dc2.example.com", "dc1.example.com"]
    finally:
        h.close()
