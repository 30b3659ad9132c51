"""Which queue a name means.

Covered: Get Queue Path, Expand Format Name, and opening by every kind of name.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.model.directory_objects import OutgoingQueue, Queue, QueueManager, Site
from lanner.model.enums import DirectoryOperationResult, QueueAccessType, QueueType
from lanner.model.errors import (
    IllegalFormatname,
    IllegalQueuePathname,
    QueueExists,
    QueueNotFound,
    StatusError,
    UnsupportedFormatnameOperation,
)
from lanner.wire.format_name import parse
from tests.engine.harness import Harness
from tests.statuses import MQ_ERROR_ILLEGAL_FORMATNAME

GUID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "data", local_addresses=frozenset({"10.0.0.5", "fe80::1", "www.example.com"}))
    yield harness
    harness.close()


def beta(h: Harness) -> QueueManager:
    """Another computer of the directory."""
    other = QueueManager(computer_name="BETA", site_identifier_list=h.engine.queue_manager.site_identifier_list)
    assert h.directory.create_object(other)[0] is DirectoryOperationResult.SUCCESS
    return other


def public_queue_on_beta(h: Harness, **attributes: object) -> Queue:
    beta(h)
    queue = Queue(pathname=r"BETA\orders", queue_type=QueueType.PUBLIC, **attributes)  # type: ignore[arg-type]
    assert h.directory.create_object(queue)[0] is DirectoryOperationResult.SUCCESS
    return queue


def status_of(h: Harness, name: str, access: QueueAccessType) -> int:
    with pytest.raises(StatusError) as raised:
        h.open(name, access)
    return raised.value.status


# 3.1.7.1.26 Get Queue Path
# ----------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.26-1")
@pytest.mark.parametrize(
    ("name", "path", "machine"),
    [
        (r"DIRECT=OS:Beta\private$\q", r"Beta\private$\q", "Beta"),
        (r"DIRECT=TCP:10.0.0.7\orders", r"10.0.0.7\orders", "10.0.0.7"),
        (
            r"direct=ipx:00000012:00a0234f7500\orders;retry",
            r"00000012:00a0234f7500\orders;retry",
            "00000012:00a0234f7500",
        ),
        (r"DIRECT=OS:beta.example.com\q;journal", r"beta.example.com\q;journal", "beta.example.com"),
        (r"DIRECT=HTTP://beta:8080/msmq/private$/q", "", "beta"),
        (r"DIRECT=HTTPS://beta.example.com/msmq/q", "", "beta.example.com"),
        (r"DIRECT=https://[fe80::7]:443/msmq/q", "", "fe80::7"),
    ],
)
def test_a_direct_name_says_its_path_itself(h: Harness, name: str, path: str, machine: str) -> None:
    """3.1.7.1.26: the address, and the address with what follows it; of a URL the host only."""
    assert h.engine.get_queue_path(parse(name)) == (path, machine)


@pytest.mark.spec("DMPR-3.1.7.1.26-2")
def test_a_public_name_is_read_from_the_directory(h: Harness) -> None:
    """3.1.7.1.26: Pathname and the host's ComputerName.

    A failed read is MQ_ERROR_ILLEGAL_FORMATNAME.
    """
    queue = public_queue_on_beta(h)
    path, machine = h.engine.get_queue_path(parse(f"PUBLIC={queue.identifier}"))
    assert (path.lower(), machine) == (r"beta\orders", "BETA")
    for name in (f"PUBLIC={GUID}", f"PUBLIC={h.create('q').identifier}"):
        with pytest.raises(IllegalFormatname) as raised:
            h.engine.get_queue_path(parse(name))
        assert raised.value.status == MQ_ERROR_ILLEGAL_FORMATNAME


@pytest.mark.spec("DMPR-3.1.7.1.26-2", "DMPR-3.1.7.1.26-3")
def test_a_directory_that_is_away_gives_no_path(h: Harness) -> None:
    """3.1.7.1.26: any result but Success is MQ_ERROR_ILLEGAL_FORMATNAME."""
    queue = public_queue_on_beta(h)
    h.directory.connected = False
    for name in (f"PUBLIC={queue.identifier}", rf"PRIVATE={queue.identifier}\1"):
        with pytest.raises(IllegalFormatname):
            h.engine.get_queue_path(parse(name))


@pytest.mark.spec("DMPR-3.1.7.1.26-3")
def test_a_private_name_has_a_path_on_its_own_computer_only(h: Harness) -> None:
    """3.1.7.1.26: the owner's ComputerName.

    Pathname is returned when GUID and number are those of a queue here.
    """
    here, other = h.engine.queue_manager.identifier, beta(h).identifier
    number = h.create("q").private_queue_number
    assert h.engine.get_queue_path(parse(rf"PRIVATE={here}\{number:x}")) == (r"ALPHA\private$\q", "ALPHA")
    assert h.engine.get_queue_path(parse(rf"PRIVATE={here}\{number + 100:x}")) == ("", "ALPHA")
    assert h.engine.get_queue_path(parse(rf"PRIVATE={other}\{number:x}")) == ("", "BETA")
    with pytest.raises(IllegalFormatname):
        h.engine.get_queue_path(parse(rf"PRIVATE={GUID}\{number:x}"))


@pytest.mark.spec("DMPR-3.1.7.1.26-4")
@pytest.mark.parametrize("name", [f"MACHINE={GUID};JOURNAL", f"DL={GUID}", "MULTICAST=234.1.1.1:8001"])
def test_other_names_have_no_path(h: Harness, name: str) -> None:
    """3.1.7.1.26: no rule for them: MQ_OK, both empty."""
    assert h.engine.get_queue_path(parse(name)) == ("", "")


# 3.1.7.3.8 Expand Format Name
# -------------------------------------------------------------------------


def expand(h: Harness, name: str) -> str:
    return str(h.engine.names.expand_format_name(parse(name)))


def distribution_list(h: Harness, name: str, *members: str, identifier: uuid.UUID | None = None) -> str:
    result, found = h.directory.add_distribution_list(name, members, identifier)
    assert result is DirectoryOperationResult.SUCCESS
    return f"DL={found}"


@pytest.mark.spec("DMPR-3.1.7.3.8-1")
@pytest.mark.parametrize(
    "name",
    [
        r"DIRECT=OS:Beta\private$\Q",
        f"PUBLIC={GUID}",
        rf"PRIVATE={GUID}\0000000a;JOURNAL",
        f"MACHINE={GUID};DEADXACT",
        f"CONNECTOR={GUID};XACTONLY",
        "MULTICAST=234.1.1.1:8001",
    ],
)
def test_a_single_name_expands_to_itself(h: Harness, name: str) -> None:
    """3.1.7.3.8: neither a list nor several elements: unchanged, TRUE.

    The directory is not asked.
    """
    h.directory.connected = False
    assert expand(h, name) == name


@pytest.mark.spec("DMPR-3.1.7.3.8-2")
def test_lists_are_replaced_by_their_members_at_any_depth(h: Harness) -> None:
    """3.1.7.3.8: members go to the end of the elements, so lists inside lists are resolved too."""
    inner = distribution_list(h, "inner", r"DIRECT=OS:c\q", r"DIRECT=OS:d\q")
    outer = distribution_list(h, "outer", inner, r"DIRECT=OS:b\q")
    assert expand(h, outer) == r"DIRECT=OS:b\q,DIRECT=OS:c\q,DIRECT=OS:d\q"
    assert expand(h, rf"DIRECT=OS:a\q,{outer}") == r"DIRECT=OS:a\q,DIRECT=OS:b\q,DIRECT=OS:c\q,DIRECT=OS:d\q"


@pytest.mark.spec("DMPR-3.1.7.3.8-2")
def test_a_list_that_cannot_be_resolved_fails_the_whole_name(h: Harness) -> None:
    """3.1.7.3.8: rStatus FALSE.

    A nested list counts as well, and so does an unreachable directory.
    """
    missing = f"DL={GUID}"
    outer = distribution_list(h, "outer", missing, r"DIRECT=OS:b\q")
    good = distribution_list(h, "good", r"DIRECT=OS:b\q", r"DIRECT=OS:c\q")
    for name in (missing, rf"DIRECT=OS:a\q,{missing}", outer):
        with pytest.raises(IllegalFormatname):
            expand(h, name)
    h.directory.connected = False
    with pytest.raises(IllegalFormatname):
        expand(h, good)


@pytest.mark.spec("DMPR-3.1.7.3.8-3")
def test_elements_are_sorted_and_each_stands_once(h: Harness) -> None:
    """3.1.7.3.8: elements are compared without case.

    One remaining element is a single name; several are joined with commas only.
    """
    assert expand(h, r"DIRECT=OS:b\q,DIRECT=OS:C\q,DIRECT=OS:a\q") == r"DIRECT=OS:a\q,DIRECT=OS:b\q,DIRECT=OS:C\q"
    pair = expand(h, r"DIRECT=OS:b\q,direct=OS:A\q,DIRECT=OS:a\Q")
    assert pair.lower() == r"direct=os:a\q,direct=os:b\q"
    single = expand(h, r"DIRECT=OS:a\q,DIRECT=os:A\Q")
    assert single.lower() == r"direct=os:a\q"
    one = distribution_list(h, "one", r"DIRECT=OS:a\q")
    assert expand(h, one) == r"DIRECT=OS:a\q"
    assert expand(h, rf"{one},DIRECT=OS:A\Q").lower() == r"direct=os:a\q"


@pytest.mark.spec("DMPR-3.1.7.3.8-4")
def test_a_list_that_contains_itself_is_resolved_once(h: Harness) -> None:
    """DECISIONS: a cycle guard; what else is in the lists is returned."""
    first, second = uuid.uuid4(), uuid.uuid4()
    distribution_list(h, "first", f"DL={second}", r"DIRECT=OS:a\q", identifier=first)
    distribution_list(h, "second", f"DL={first}", f"DL={second}", r"DIRECT=OS:b\q", identifier=second)
    assert expand(h, f"DL={first}") == r"DIRECT=OS:a\q,DIRECT=OS:b\q"
    lonely = uuid.uuid4()
    distribution_list(h, "lonely", f"DL={lonely}", identifier=lonely)
    with pytest.raises(IllegalFormatname, match="no members"):
        expand(h, f"DL={lonely}")


# Opening by name
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [".", "ALPHA", "alpha", "Alpha.Example.COM", "localhost", "LOCALHOST", "10.0.0.5", "fe80::1", "www.example.com"],
)
@pytest.mark.parametrize("protocol", ["OS", "tcp"])
def test_every_spelling_of_this_computer_is_this_computer(h: Harness, host: str, protocol: str) -> None:
    """DECISIONS: NetBIOS name, FQDN, every local address and localhost, without case."""
    queue = h.create("Q")
    for access in (QueueAccessType.SEND, QueueAccessType.RECEIVE, QueueAccessType.PEEK, QueueAccessType.MOVE):
        assert h.open(rf"DIRECT={protocol}:{host}\PRIVATE$\q", access).queue is queue
    assert not list(h.engine.outgoing_queues())


@pytest.mark.parametrize("host", ["ALPHAX", "alpha.example.org", "10.0.0.6", "example.com", "host"])
def test_other_computers_are_not_this_one(h: Harness, host: str) -> None:
    """3.1.7.1.5: to send, an outgoing queue; to read, nothing."""
    h.create("q")
    name = rf"DIRECT=OS:{host}\private$\q"
    assert isinstance(h.open(name, QueueAccessType.SEND).queue, OutgoingQueue)
    assert status_of(h, name, QueueAccessType.RECEIVE) == QueueNotFound.status


def test_what_is_sent_to_this_computer_does_not_carry_a_dot(h: Harness) -> None:
    """A "." in a packet would mean whatever computer reads it."""
    h.create("q")
    h.send(r"DIRECT=OS:.\private$\q")
    (message,) = h.messages()
    assert str(message.destination_queue_format_name) == r"DIRECT=OS:ALPHA\private$\q"


def test_a_private_queue_is_found_by_its_number(h: Harness) -> None:
    """MS-MQMQ 2.1.4: the computer's GUID and the number in hexadecimal, in either case."""
    me = h.engine.queue_manager.identifier
    queues = [h.create(f"q{index}") for index in range(12)]
    for queue in queues:
        for guid in (str(me), str(me).upper()):
            assert h.open(rf"PRIVATE={guid}\{queue.private_queue_number:X}").queue is queue
            assert h.open(rf"private={guid}\{queue.private_queue_number:08x};Journal").queue is queue.journal_queue
    unknown = max(queue.private_queue_number for queue in queues) + 1
    for access in (QueueAccessType.SEND, QueueAccessType.RECEIVE):
        assert status_of(h, rf"PRIVATE={me}\{unknown:x}", access) == QueueNotFound.status
    elsewhere = rf"PRIVATE={GUID}\{queues[0].private_queue_number:x}"
    assert status_of(h, elsewhere, QueueAccessType.RECEIVE) == QueueNotFound.status
    assert isinstance(h.open(elsewhere, QueueAccessType.SEND).queue, OutgoingQueue)


def test_a_public_queue_is_found_by_its_identifier(h: Harness) -> None:
    """MS-MQMQ 2.1.3; a private queue has an identifier too, and no public name."""
    queue = h.create(r".\orders")
    for guid in (str(queue.identifier), str(queue.identifier).upper()):
        assert h.open(f"PUBLIC={guid}").queue is queue
        assert h.open(f"public={guid};journal").queue is queue.journal_queue
    private = h.create("q")
    assert status_of(h, f"PUBLIC={private.identifier}", QueueAccessType.RECEIVE) == QueueNotFound.status
    assert status_of(h, f"PUBLIC={GUID}", QueueAccessType.SEND) == UnsupportedFormatnameOperation.status


def test_public_and_private_queues_may_share_a_name(h: Harness) -> None:
    """MS-MQMQ 2.1.1: `private$` is a part of the name."""
    public, private = h.create(r".\orders"), h.create(r".\private$\orders")
    assert h.open(r"DIRECT=OS:alpha\Orders").queue is public
    assert h.open(r"DIRECT=OS:alpha\private$\Orders").queue is private


def test_a_public_queue_elsewhere_gets_an_outgoing_queue_with_its_priority(h: Harness) -> None:
    """3.1.7.1.5: BasePriority is the directory's."""
    there = public_queue_on_beta(h, base_priority=1234)
    queue = h.open(f"PUBLIC={there.identifier}", QueueAccessType.SEND).queue
    assert isinstance(queue, OutgoingQueue)
    assert queue.base_priority == 1234


def test_the_systems_queues_are_found_by_the_machine_name(h: Harness) -> None:
    """MS-MQMQ 2.1.6: the three system queues of the computer with that GUID."""
    manager = h.engine.queue_manager
    for suffix, queue in (
        ("JOURNAL", manager.system_journal_queue),
        ("DeadLetter", manager.system_deadletter_queue),
        ("deadxact", manager.system_transactional_deadletter_queue),
    ):
        assert h.open(f"MACHINE={manager.identifier};{suffix}").queue is queue
        assert h.open(rf"DIRECT=OS:.\System$;{suffix}").queue is queue
        assert status_of(h, f"MACHINE={GUID};{suffix}", QueueAccessType.RECEIVE) == QueueNotFound.status
    assert status_of(h, f"MACHINE={manager.identifier}", QueueAccessType.RECEIVE) == QueueNotFound.status


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
def test_nobody_sends_to_a_journal_a_dead_letter_queue_or_a_subqueue(h: Harness, *, elsewhere: bool) -> None:
    """These queues are filled only by queue managers and by moves.

    Opening one to send fails with 0xC00E0020 and creates no queue.
    """
    queue, public = h.create("q"), h.create(r".\orders")
    host = "BETA" if elsewhere else "."
    guid = GUID if elsewhere else h.engine.queue_manager.identifier
    before = len(h.engine.queue_manager.queue_collection)
    for name in (
        rf"DIRECT=OS:{host}\private$\q;journal",
        rf"DIRECT=OS:{host}\private$\q;retry",
        rf"DIRECT=OS:{host}\system$;deadletter",
        rf"DIRECT=OS:{host}\system$;deadxact",
        rf"DIRECT=OS:{host}\system$;journal",
        rf"PRIVATE={guid}\{queue.private_queue_number:x};JOURNAL",
        f"PUBLIC={public.identifier};JOURNAL",
        f"MACHINE={guid};JOURNAL",
        f"MACHINE={guid};DEADLETTER",
    ):
        assert status_of(h, name, QueueAccessType.SEND) == UnsupportedFormatnameOperation.status
    assert len(h.engine.queue_manager.queue_collection) == before


def test_journals_are_read_by_any_of_their_names(h: Harness) -> None:
    h.create("q", journaling=True)
    h.send(body=b"kept")
    h.receive()
    for name in (r"DIRECT=OS:alpha\private$\Q;JOURNAL", r"DIRECT=TCP:10.0.0.5\private$\q;Journal"):
        assert h.bodies(name) == [b"kept"]
    assert h.receive(r"DIRECT=OS:.\private$\q;journal") == b"kept"


def test_a_subqueue_comes_into_being_when_it_is_opened(h: Harness) -> None:
    """Found again in any case; never without its queue, and it has no journal and no subqueues."""
    queue = h.create("q")
    subqueue = h.open(r"DIRECT=OS:.\private$\q;Retry", QueueAccessType.MOVE).queue
    assert subqueue is h.open(r"DIRECT=OS:ALPHA\private$\Q;RETRY", QueueAccessType.PEEK).queue
    assert list(queue.subqueues.values()) == [subqueue]
    assert subqueue is not None
    assert (subqueue.journal_queue, subqueue.parent) == (None, queue.number)
    assert status_of(h, r"DIRECT=OS:.\private$\none;retry", QueueAccessType.RECEIVE) == QueueNotFound.status
    h.restart()
    assert h.open(r"DIRECT=OS:.\private$\q;retry").queue is h.queue("q").subqueues["retry"]


def test_a_deleted_queue_is_not_found_by_any_name(h: Harness) -> None:
    private, public = h.create("q"), h.create(r".\orders")
    me = h.engine.queue_manager.identifier
    h.open(r"DIRECT=OS:.\private$\q;retry")
    h.engine.delete_queue(private)
    h.engine.delete_queue(public)
    for name in (
        r"DIRECT=OS:.\private$\q",
        r"DIRECT=OS:.\private$\q;retry",
        r"DIRECT=OS:.\private$\q;journal",
        rf"PRIVATE={me}\{private.private_queue_number:x}",
        rf"PRIVATE={me}\{private.private_queue_number:x};journal",
        r"DIRECT=OS:.\orders",
        f"PUBLIC={public.identifier}",
        f"PUBLIC={public.identifier};journal",
    ):
        assert status_of(h, name, QueueAccessType.RECEIVE) == QueueNotFound.status
    assert status_of(h, f"PUBLIC={public.identifier}", QueueAccessType.SEND) == UnsupportedFormatnameOperation.status
    h.create("q")
    h.create(r".\orders")


@pytest.mark.parametrize("name", ["nothing here", r"OS:.\q", r"DIRECT=XYZ:.\q", "PUBLIC=1", rf"PRIVATE={GUID}\xyz", ""])
def test_what_is_no_format_name_is_refused(h: Harness, name: str) -> None:
    with pytest.raises(IllegalFormatname):
        parse(name)


@pytest.mark.parametrize(
    "pathname",
    ["q", r".\private$\q;journal", r".\system$;other", r"BETA\private$\q", r".\private$\a+b", r"\q", r".\private$\\q"],
)
def test_only_a_legal_path_of_this_computer_is_created(h: Harness, pathname: str) -> None:
    with pytest.raises(IllegalQueuePathname):
        h.engine.create_queue(h.engine.set_queue_defaults(pathname))


def test_names_that_differ_in_case_are_one_queue(h: Harness) -> None:
    h.create("Orders")
    for name in (r".\private$\orders", r"ALPHA\PRIVATE$\ORDERS", r"localhost\private$\Orders"):
        with pytest.raises(QueueExists):
            h.create(name)


# Connector queues
# -------------------------------------------------------------------------------------


def foreign_site(h: Harness) -> Site:
    site = Site(name="Mainframe", foreign_site=True)
    assert h.directory.create_object(site)[0] is DirectoryOperationResult.SUCCESS
    return site


def test_the_connector_of_a_foreign_site_has_two_queues(h: Harness) -> None:
    """MS-MQMQ 2.1.6: CONNECTOR=guid, and ;XACTONLY for transactional messages.

    Both queues survive a restart.
    """
    site = foreign_site(h)
    name = f"CONNECTOR={site.identifier}"
    plain = h.open(name).queue
    transacted = h.open(f"{name};XactOnly").queue
    assert plain is not None
    assert transacted is not None
    assert (plain.queue_type, plain.transactional) == (QueueType.CONNECTOR, False)
    assert (transacted.queue_type, transacted.transactional) == (QueueType.CONNECTOR, True)
    assert h.open(name.lower(), QueueAccessType.PEEK).queue is plain
    h.engine.enqueue_message(plain, h.message(b"for the mainframe"))
    h.restart()
    assert h.receive(name) == b"for the mainframe"


def test_only_a_foreign_site_has_a_connector(h: Harness) -> None:
    (own,) = h.engine.queue_manager.site_identifier_list
    for guid in (own, GUID):
        assert status_of(h, f"CONNECTOR={guid}", QueueAccessType.RECEIVE) == QueueNotFound.status


def test_nobody_sends_to_a_connector_queue_itself(h: Harness) -> None:
    """MS-MQMQ 2.2.19.2: no packet can name a connector queue.

    Messages enter it on their way to foreign queues.
    """
    name = f"CONNECTOR={foreign_site(h).identifier}"
    h.open(name)
    for destination in (name, rf"{name},DIRECT=OS:BETA\q"):
        assert status_of(h, destination, QueueAccessType.SEND) == UnsupportedFormatnameOperation.status
    assert status_of(h, name, QueueAccessType.PEEK_ADMIN) == QueueNotFound.status
