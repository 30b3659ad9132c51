"""MSMQQueue: open, read and purge queues (MC-MQAC 3.11).

Reads are from the head, at the cursor and by lookup identifier.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from lanner.activex.message import MSMQMessage
from lanner.activex.queue import MSMQQueue
from lanner.activex.queue_info import MSMQQueueInfo
from lanner.activex.tables import IMSMQ_QUEUE, IMSMQ_QUEUE2, IMSMQ_QUEUE3, IMSMQ_QUEUE4, MSMQ_QUEUE
from lanner.activex.transaction import MSMQTransaction
from lanner.activex.transaction_dispensers import MSMQTransactionDispenser
from lanner.com.automation.values import EMPTY, MISSING, Variant
from lanner.com.constants import E_INVALIDARG, E_NOTIMPL
from lanner.com.objects import ComObject
from lanner.model.directory_objects import Queue
from lanner.model.enums import Acknowledgements, CursorState, MessageSeekAction
from lanner.model.live import START
from lanner.wire.format_name import parse
from lanner.wire.vartypes import VT
from tests.activex.world import World, status_of
from tests.statuses import (
    MQ_ERROR_ACCESS_DENIED,
    MQ_ERROR_ILLEGAL_CURSOR_ACTION,
    MQ_ERROR_INVALID_HANDLE,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_MESSAGE_ALREADY_RECEIVED,
    MQ_ERROR_MESSAGE_NOT_FOUND,
    MQ_ERROR_OPERATION_CANCELLED,
    MQ_ERROR_QUEUE_NOT_AVAILABLE,
    MQ_ERROR_SHARING_VIOLATION,
    MQ_ERROR_TRANSACTION_SEQUENCE,
    OLE_E_BLANK,
)

TRUE, FALSE = Variant(VT.BOOL, value=True), Variant(VT.BOOL, value=False)
RECEIVE, SEND, PEEK = 1, 2, 0x20


def i4(value: int) -> Variant:
    return Variant(VT.I4, value)


def ui8(value: int) -> Variant:
    return Variant(VT.UI8, value)


NOW = i4(0)
NO_TRANSACTION = i4(0)
# Arguments before ReceiveTimeout.
RECEIVE_NOW = (MISSING, MISSING, MISSING, NOW)
PEEK_NOW = (MISSING, MISSING, NOW)

RECEIVES = ("receive", "receive_current", "receive_v1", "receive_current_v1")
PEEKS = ("peek", "peek_current", "peek_next", "peek_v1", "peek_current_v1", "peek_next_v1")
RECEIVES_BY_ID = (
    "receive_by_lookup_id",
    "receive_next_by_lookup_id",
    "receive_previous_by_lookup_id",
    "receive_by_lookup_id_allow_peek",
)
RECEIVES_AT_ENDS = ("receive_first_by_lookup_id", "receive_last_by_lookup_id")
PEEKS_BY_ID = ("peek_by_lookup_id", "peek_next_by_lookup_id", "peek_previous_by_lookup_id")
PEEKS_AT_ENDS = ("peek_first_by_lookup_id", "peek_last_by_lookup_id")


def arguments(member: str) -> tuple[Variant, ...]:
    """Arguments with which a member does not wait."""
    if member in RECEIVES:
        return RECEIVE_NOW
    if member in PEEKS:
        return PEEK_NOW
    return (ui8(1),) if member in RECEIVES_BY_ID + PEEKS_BY_ID else ()


ALL_READS = RECEIVES + PEEKS + RECEIVES_BY_ID + RECEIVES_AT_ENDS + PEEKS_BY_ID + PEEKS_AT_ENDS


@pytest.fixture(params=["null", "error"])
def either(request: pytest.FixtureRequest, new_world: Callable[..., World]) -> World:
    """A queue manager with either setting of `activex.timeout`."""
    world = new_world(timeout=request.param)
    with world.held() as h:
        h.create("q")
    return world


@pytest.fixture
def strict(new_world: Callable[..., World]) -> World:
    """One that answers with the document's codes."""
    world = new_world(timeout="error")
    with world.held() as h:
        h.create("q")
    return world


@pytest.fixture
def q(world: World) -> Queue:
    with world.held() as h:
        return h.create("q")


def opened(world: World, access: int = RECEIVE, share: int = 0, name: str = "q") -> MSMQQueue:
    made = MSMQQueueInfo(world.environment)
    made.format_name = name if "=" in name else rf"DIRECT=OS:.\private$\{name}"
    queue = world.call(made, "open", access, share)
    assert isinstance(queue, MSMQQueue)
    world.objects.append(queue)
    return queue


def send(world: World, *bodies: bytes, name: str = "q", **properties: Any) -> None:  # noqa: ANN401 (of a message)
    with world.held() as h:
        for body in bodies:
            h.send(name, body, **properties)


def bodies(world: World, name: str = "q") -> list[bytes]:
    with world.held() as h:
        return h.bodies(name)


def ids(world: World) -> dict[bytes, int]:
    with world.held() as h:
        return h.lookup_ids()


def body(message: object) -> bytes | None:
    assert isinstance(message, MSMQMessage)
    return message.state.body


def begin(world: World) -> MSMQTransaction:
    transaction = world.call(MSMQTransactionDispenser(world.environment), "begin_transaction")
    assert isinstance(transaction, MSMQTransaction)
    world.objects.append(transaction)
    return transaction


def within(transaction: ComObject) -> Variant:
    return Variant(VT.DISPATCH, transaction)


class TestRevisions:
    @pytest.mark.spec("MQAC-3.11.4-1")
    def test_each_revision_has_its_own_slots(self) -> None:
        slots = [[member.opnum for member in table.members] for table in MSMQ_QUEUE.interfaces]
        assert slots == [list(range(7, last + 1)) for last in (19, 25, 38, 39)]
        assert MSMQQueue.interfaces == (IMSMQ_QUEUE, IMSMQ_QUEUE2, IMSMQ_QUEUE3, IMSMQ_QUEUE4)

    @pytest.mark.spec("MQAC-3.11.4-2", "MQAC-3.11.4-3")
    def test_names_and_messages_shift_by_revision(self) -> None:
        names = ("Receive", "Peek", "ReceiveCurrent", "PeekNext", "PeekCurrent")
        old, new = (13, 14, 17, 18, 19), (20, 21, 22, 23, 24)
        assert [IMSMQ_QUEUE.by_opnum[slot].name for slot in old] == list(names)
        for number, table in ((2, IMSMQ_QUEUE2), (3, IMSMQ_QUEUE3), (4, IMSMQ_QUEUE4)):
            assert [table.by_opnum[slot].name for slot in old] == [f"{name}_v1" for name in names]
            assert [table.by_opnum[slot].name for slot in new] == list(names)
            assert {table.by_opnum[slot].parameters[-1].type for slot in old} == {"IMSMQMessage**"}
            later = [slot for slot in table.by_opnum if slot in new or 27 <= slot <= 36 or slot == 39]
            assert {table.by_opnum[slot].parameters[-1].type for slot in later} == {f"IMSMQMessage{number}**"}
        assert {IMSMQ_QUEUE.by_opnum[slot].parameters[-1].type for slot in old} == {"IMSMQMessage**"}

    @pytest.mark.spec("MQAC-3.11.4-4")
    def test_events_and_infos_of_each_revision(self) -> None:
        events = [table.by_opnum[15].parameters[0].type for table in MSMQ_QUEUE.interfaces]
        assert events == ["IMSMQEvent*", "IMSMQEvent2*", "IMSMQEvent3*", "IMSMQEvent3*"]
        infos = [table.by_opnum[9].parameters[0].type for table in MSMQ_QUEUE.interfaces]
        assert infos == ["IMSMQQueueInfo**", "IMSMQQueueInfo2**", "IMSMQQueueInfo3**", "IMSMQQueueInfo4**"]

    @pytest.mark.spec("MQAC-3.11.4-2")
    def test_revision_one_serves_the_same_reads(self, world: World, q: Queue) -> None:
        queue = opened(world)
        send(world, b"1", b"2")
        assert body(world.call(queue, "receive", revision=1)) == b"1"
        assert body(world.call(queue, "receive_v1", revision=4)) == b"2"


class TestState:
    @pytest.mark.spec("MQAC-3.11.3-1")
    def test_an_object_that_a_client_made_is_blank(self, world: World) -> None:
        queue = MSMQQueue(world.environment)
        for member in (*ALL_READS, "get_access", "get_share_mode", "get_queue_info", "get_handle", "get_handle2"):
            assert world.status(queue, member, *arguments(member)) == OLE_E_BLANK, member
        for member in ("get_is_open", "get_is_open2", "close", "reset", "purge"):
            assert world.status(queue, member) == OLE_E_BLANK, member
        assert world.status(queue, "enable_notification", None) == OLE_E_BLANK
        assert world.status(queue, "get_properties") == E_NOTIMPL
        for member in RECEIVES_BY_ID + PEEKS_BY_ID:
            assert world.status(queue, member, ui8(0)) == E_INVALIDARG
        assert world.status(queue, "enable_notification", None, i4(3)) == E_INVALIDARG

    @pytest.mark.spec("MQAC-3.11.1.1-1", "MQAC-3.11.4.1.5-1", "MQAC-3.2.4.2.7-1")
    def test_closed_is_closed_for_everything(self, world: World, q: Queue) -> None:
        queue = opened(world)
        assert world.call(queue, "get_is_open") == 1
        assert world.call(queue, "get_is_open2") is True
        assert world.call(queue, "close") is None
        for member in (*ALL_READS, "get_access", "get_share_mode", "get_queue_info", "get_handle", "get_handle2"):
            assert world.status(queue, member, *arguments(member)) == MQ_ERROR_INVALID_HANDLE, member
        for member in ("close", "reset", "purge"):
            assert world.status(queue, member) == MQ_ERROR_INVALID_HANDLE, member
        assert world.status(queue, "enable_notification", None) == MQ_ERROR_INVALID_HANDLE
        assert world.call(queue, "get_is_open") == 0
        assert world.call(queue, "get_is_open2") is False
        assert world.status(queue, "get_properties") == E_NOTIMPL

    @pytest.mark.spec("MQAC-3.11.3-2")
    def test_an_opened_queue_has_its_cursor_before_the_first_message(self, world: World, q: Queue) -> None:
        send(world, b"1")
        queue = opened(world)
        assert world.call(queue, "get_is_open2") is True
        cursor = queue._own_cursor()
        assert (cursor.position, cursor.state) == (START, CursorState.UNREAD)
        assert world.status(queue, "peek_next", *PEEK_NOW) == MQ_ERROR_ILLEGAL_CURSOR_ACTION
        assert body(world.call(queue, "peek_current", *PEEK_NOW)) == b"1"

    @pytest.mark.spec("MQAC-3.11.4.1.1-1", "MQAC-2.2.2.3-1")
    @pytest.mark.parametrize("access", [RECEIVE, SEND, PEEK])
    def test_access(self, world: World, q: Queue, access: int) -> None:
        assert world.call(opened(world, access), "get_access") == access

    @pytest.mark.spec("MQAC-2.2.2.3-1")
    def test_what_each_access_is_for(self, world: World, q: Queue) -> None:
        """2.2.2.3: receive reads and deletes, send inserts, peek reads only."""
        send(world, b"1")
        receiver, sender, peeker = opened(world, RECEIVE), opened(world, SEND), opened(world, PEEK)
        assert body(world.call(peeker, "peek", *PEEK_NOW)) == b"1"
        assert world.status(peeker, "receive", *RECEIVE_NOW) == MQ_ERROR_ACCESS_DENIED
        assert world.status(sender, "peek", *PEEK_NOW) == MQ_ERROR_ACCESS_DENIED
        assert sender.descriptor is not None
        assert receiver.descriptor is not None
        with world.held() as h:
            h.engine.enqueue_message_to_an_open_queue(sender.descriptor, h.properties(b"2"))
            for closed in (receiver.descriptor, peeker.descriptor):
                assert closed is not None
                with pytest.raises(Exception, match="access"):
                    h.engine.enqueue_message_to_an_open_queue(closed, h.properties(b"3"))
        assert body(world.call(receiver, "receive", *RECEIVE_NOW)) == b"1"
        assert bodies(world) == [b"2"]

    @pytest.mark.spec("MQAC-3.11.4.1.1-1", "MQAC-2.2.2.2-1", "MQAC-2.2.2.2-2")
    def test_share_modes(self, world: World, q: Queue) -> None:
        """2.2.2.2: a reader that denies receiving is alone with the queue until it closes."""
        first = opened(world, RECEIVE, 1)
        assert world.call(first, "get_share_mode") == 1
        made = MSMQQueueInfo(world.environment)
        made.format_name = r"DIRECT=OS:.\private$\q"
        assert world.status(made, "open", RECEIVE, 0) == MQ_ERROR_SHARING_VIOLATION
        assert world.status(made, "open", RECEIVE, 1) == MQ_ERROR_SHARING_VIOLATION
        assert world.call(opened(world, PEEK), "get_share_mode") == 0
        world.call(first, "close")
        shared = opened(world, RECEIVE, 0)
        assert world.call(shared, "get_share_mode") == 0
        assert world.status(made, "open", RECEIVE, 1) == MQ_ERROR_SHARING_VIOLATION
        world.call(shared, "close")
        assert world.call(opened(world, RECEIVE, 1), "get_share_mode") == 1

    @pytest.mark.spec("MQAC-3.11.4.1.3-1")
    def test_queue_info_is_the_very_object(self, world: World, q: Queue) -> None:
        made = MSMQQueueInfo(world.environment)
        world.call(made, "put_path_name", r".\private$\q")
        queue = world.call(made, "open", RECEIVE, 0)
        world.objects.append(queue)
        assert world.call(queue, "get_queue_info") is made
        assert world.call(queue, "get_queue_info", revision=1) is made
        world.call(queue, "close")
        assert world.status(queue, "get_queue_info") == MQ_ERROR_INVALID_HANDLE

    @pytest.mark.spec("MQAC-3.11.4.1.4-1")
    def test_handle(self, world: World, q: Queue) -> None:
        queue = opened(world)
        assert queue.descriptor is not None
        assert world.call(queue, "get_handle") == queue.descriptor.handle
        assert world.call(queue, "get_handle2") == Variant(VT.I8, queue.descriptor.handle)

    @pytest.mark.spec("MQAC-3.11.4.1.6-1")
    def test_close_frees_the_queue(self, world: World, q: Queue) -> None:
        queue = opened(world, RECEIVE, 1)
        assert q.active
        world.call(queue, "close")
        assert not q.open_queue_descriptors
        assert not find(world).active
        assert world.call(queue, "get_is_open") == 0

    def test_release_frees_the_queue(self, world: World, q: Queue) -> None:
        queue = opened(world, RECEIVE, 1)
        task = world.start(queue, "receive")
        queue.released()
        world.run_ready()
        assert status_of(task.exception()) == MQ_ERROR_OPERATION_CANCELLED
        assert not q.open_queue_descriptors
        queue.released()

    def test_a_deleted_queue(self, world: World, q: Queue) -> None:
        queue = opened(world)
        with world.held() as h:
            h.engine.delete_queue(q)
        for member in ("receive", "peek", "receive_current", "peek_current"):
            assert world.status(queue, member, *arguments(member)) == MQ_ERROR_QUEUE_NOT_AVAILABLE, member


def find(world: World) -> Queue:
    with world.held() as h:
        return h.queue()


class TestChecks:
    @pytest.mark.spec("MQAC-3.11.4.1.14-2", "MQAC-3.11.4.1.14-1", "MQAC-3.11.4.1.15-1")
    @pytest.mark.parametrize(
        ("access", "reads"), [(RECEIVE, True), (PEEK, False), (SEND, False), (0x81, True), (0xA0, False)]
    )
    def test_receiving_needs_receive_access(self, world: World, q: Queue, access: int, reads: bool) -> None:
        """Plain or of an administrator; the check comes before that of the Transaction argument."""
        name = r"DIRECT=OS:BETA\private$\q" if access & 0x80 else "q"
        send(world, b"x", name=name)
        queue = opened(world, access, name=name)
        bad = Variant(VT.BSTR, "x")
        for member in RECEIVES + RECEIVES_BY_ID + RECEIVES_AT_ENDS:
            first = (ui8(1),) if member in RECEIVES_BY_ID else ()
            assert world.status(queue, member, *first, bad) == (E_INVALIDARG if reads else MQ_ERROR_ACCESS_DENIED), (
                member
            )
        assert world.status(queue, "purge") == (0 if reads else MQ_ERROR_ACCESS_DENIED)

    @pytest.mark.spec("MQAC-3.11.4.1.15-1")
    @pytest.mark.parametrize("access", [RECEIVE, PEEK, 0x81, 0xA0])
    def test_peeking_needs_peek_or_receive_access(self, world: World, q: Queue, access: int) -> None:
        name = r"DIRECT=OS:BETA\private$\q" if access & 0x80 else "q"
        send(world, b"x", name=name)
        queue = opened(world, access, name=name)
        assert body(world.call(queue, "peek", *PEEK_NOW)) == b"x"
        assert body(world.call(queue, "peek_current", *PEEK_NOW)) == b"x"
        assert body(world.call(queue, "peek_first_by_lookup_id")) == b"x"

    @pytest.mark.spec("MQAC-3.11.4.1.15-1")
    def test_send_access_peeks_at_nothing(self, world: World, q: Queue) -> None:
        """The check comes before those of other arguments than a LookupId."""
        queue = opened(world, SEND)
        bad = Variant(VT.BSTR, "x")
        for member in PEEKS + PEEKS_BY_ID + PEEKS_AT_ENDS:
            assert world.status(queue, member, *arguments(member)) == MQ_ERROR_ACCESS_DENIED, member
            first = (ui8(1),) if member in PEEKS_BY_ID else ()
            assert world.status(queue, member, *first, bad) == MQ_ERROR_ACCESS_DENIED, member

    @pytest.mark.spec("MQAC-3.11.4.1.14-4", "MQAC-3.11.4.1.14-18")
    @pytest.mark.parametrize(
        "make",
        [
            lambda _: Variant(VT.BSTR, "1"),
            lambda _: EMPTY,
            lambda _: i4(4),
            lambda _: Variant(VT.DISPATCH, None),
            lambda world: Variant(VT.DISPATCH, MSMQTransactionDispenser(world.environment)),
            lambda world: Variant(VT.DISPATCH, MSMQTransaction(world.environment)),
        ],
    )
    @pytest.mark.parametrize("member", RECEIVES + RECEIVES_AT_ENDS)
    def test_a_transaction_that_is_none_receives_nothing(
        self, world: World, q: Queue, member: str, make: Callable[[World], Variant]
    ) -> None:
        send(world, b"1")
        assert world.status(opened(world), member, make(world)) == E_INVALIDARG
        assert bodies(world) == [b"1"]

    @pytest.mark.parametrize(
        "wrong",
        [
            (MISSING, Variant(VT.BSTR, "x")),
            (MISSING, MISSING, EMPTY),
            (MISSING, MISSING, MISSING, Variant(VT.R8, 1e30)),
        ],
    )
    def test_arguments_of_wrong_types(self, world: World, q: Queue, wrong: tuple[Variant, ...]) -> None:
        send(world, b"1")
        assert world.status(opened(world), "receive", *wrong) == E_INVALIDARG
        assert bodies(world) == [b"1"]

    @pytest.mark.parametrize(
        "number",
        [
            Variant(VT.R8, 0.4),
            Variant(VT.R4, 0.0),
            Variant(VT.CY, 0),
            Variant(VT.I2, 0),
            Variant(VT.DECIMAL, Decimal(0)),
        ],
    )
    def test_a_number_that_was_worked_out(self, world: World, q: Queue, number: Variant) -> None:
        """`[TimeSpan]::FromSeconds(0).TotalMilliseconds`, say: no integer to COM, but a number."""
        assert world.call(opened(world), "receive", MISSING, MISSING, MISSING, number) is None


class TestReceive:
    @pytest.mark.spec("MQAC-3.11.4.1.14-17", "MQAC-3.11.4.1.14-9", "MQAC-2.2.2.1-1", "MQAC-3.1.4.3-1")
    @pytest.mark.parametrize("kind", [0, 3])
    def test_the_head_is_removed_at_once(self, world: World, kind: int) -> None:
        """0 and 3: outside any transaction. The journal has a copy; the removal is on disk."""
        with world.held() as h:
            h.create("q", journaling=True)
        queue = opened(world)
        send(world, b"1", b"2")
        assert body(world.call(queue, "receive", i4(kind))) == b"1"
        assert bodies(world) == [b"2"]
        assert bodies(world, r"DIRECT=OS:.\private$\q;journal") == [b"1"]
        with world.held() as h:
            assert h.store.pending_batch() <= h.store.synced

    @pytest.mark.spec("MQAC-3.11.4.1.14-9")
    def test_system_queues_keep_no_journal(self, world: World, q: Queue) -> None:
        with world.held() as h:
            q.journaling = True
            h.send(body=b"1")
        assert body(world.call(opened(world), "receive")) == b"1"
        journal = opened(world, name=r"DIRECT=OS:.\private$\q;journal")
        assert body(world.call(journal, "receive")) == b"1"
        assert bodies(world, r"DIRECT=OS:.\private$\q;journal") == []

    @pytest.mark.spec("MQAC-2.2.2.1-4")
    def test_a_single_message_leaves_a_transactional_queue(self, world: World) -> None:
        with world.held() as h:
            h.create("q", transactional=True)
            first = h.begin()
            h.send(body=b"1", transaction=first)
            h.commit(first)
        assert body(world.call(opened(world), "receive", i4(3))) == b"1"
        assert bodies(world) == []

    @pytest.mark.spec("MQAC-3.11.4.1.14-17")
    def test_locked_messages_are_passed_over(self, world: World, q: Queue) -> None:
        send(world, b"1", b"2")
        with world.held() as h:
            h.receive(transaction=h.begin())
        queue = opened(world)
        assert body(world.call(queue, "peek", *PEEK_NOW)) == b"2"
        assert body(world.call(queue, "receive", *RECEIVE_NOW)) == b"2"
        assert world.call(queue, "receive", *RECEIVE_NOW) is None

    @pytest.mark.spec("MQAC-3.11.4.1.14-17")
    def test_the_cursor_stays_where_it_is(self, world: World, q: Queue) -> None:
        send(world, b"1", b"2", b"3")
        queue = opened(world)
        assert body(world.call(queue, "peek_current", *PEEK_NOW)) == b"1"
        assert body(world.call(queue, "peek_next", *PEEK_NOW)) == b"2"
        assert body(world.call(queue, "receive", *RECEIVE_NOW)) == b"1"
        assert body(world.call(queue, "peek_current", *PEEK_NOW)) == b"2"

    @pytest.mark.spec("MQAC-3.11.4.1.14-3", "MQAC-3.11.4.1.14-8", "MQAC-3.11.4.1.16-1")
    @pytest.mark.parametrize("vt", [VT.DISPATCH, VT.BYREF | VT.DISPATCH])
    @pytest.mark.parametrize("member", RECEIVES + RECEIVES_AT_ENDS[:1])
    def test_in_a_transaction_the_message_is_locked(self, world: World, q: Queue, member: str, vt: int) -> None:
        """No other reader sees the message.

        It is removed by a commit, and returned by an abort.
        """
        send(world, b"1")
        queue, other = opened(world), opened(world)
        for end, left in (("abort", [b"1"]), ("commit", [])):
            transaction = begin(world)
            assert body(world.call(queue, member, Variant(vt, transaction))) == b"1"
            assert transaction.transaction is not None
            unit = world.engine.queue_manager.transaction_collection[transaction.transaction.identifier]
            (operation,) = unit.transactional_operations
            assert operation.operation_type.name == "DEQUEUE"
            assert world.call(other, "receive", *RECEIVE_NOW) is None
            assert world.call(other, "peek", *PEEK_NOW) is None
            assert q.message_count == 1
            world.call(transaction, end)
            world.call(queue, "reset")
            assert bodies(world) == left

    @pytest.mark.spec("MQAC-3.11.4.1.14-5", "MQAC-3.11.4.1.14-6", "MQAC-3.1.4.2-1")
    @pytest.mark.parametrize("arguments", [(), (MISSING,), (i4(1),), (i4(2),)])
    def test_without_a_context_transaction_there_is_none(
        self, world: World, q: Queue, arguments: tuple[Variant, ...]
    ) -> None:
        send(world, b"1")
        assert body(world.call(opened(world), "receive", *arguments)) == b"1"
        assert bodies(world) == []

    @pytest.mark.spec("MQAC-3.11.4.1.14-10", "MQAC-3.11.4.1.14-11", "MQAC-3.11.4.1.14-12", "MQAC-3.1.4.2-1")
    @pytest.mark.parametrize(
        "member",
        ["receive", "peek", "receive_current", "peek_current", "receive_first_by_lookup_id", "peek_last_by_lookup_id"],
    )
    def test_what_is_wanted_of_a_message(self, world: World, q: Queue, member: str) -> None:
        """By default the body, and neither destination nor connector type."""
        connector = uuid.uuid4()
        queue = opened(world)
        timed = () if "lookup" in member else (NOW,)
        before = (NO_TRANSACTION,) if "receive" in member else ()
        for destination, wanted, kind in ((MISSING, MISSING, MISSING), (TRUE, FALSE, TRUE), (FALSE, TRUE, FALSE)):
            send(world, b"1", label="label", connector_type_identifier=connector)
            world.call(queue, "reset")
            message = world.call(queue, member, *before, destination, wanted, *timed, kind)
            state = message.state
            assert (state.destination_queue_format_name is not None) is (destination is TRUE)
            assert (state.body == b"1") is (wanted is not FALSE)
            assert (state.body is None) is (wanted is FALSE)
            assert (state.connector_type_identifier == connector) is (kind is TRUE)
            assert state.label == "label"
            with world.held() as h:
                h.messages()

    @pytest.mark.spec("MQAC-3.11.4.1.7-1")
    @pytest.mark.parametrize("member", ["receive_v1", "peek_v1", "receive_current_v1", "peek_current_v1"])
    def test_version_one_wants_no_connector_type(self, world: World, q: Queue, member: str) -> None:
        send(world, b"1", connector_type_identifier=uuid.uuid4())
        message = world.call(opened(world), member, *arguments(member))
        assert body(message) == b"1"
        assert message.state.connector_type_identifier.int == 0

    @pytest.mark.spec("MQAC-3.11.4.1.7-1")
    def test_version_one_of_peek_next(self, world: World, q: Queue) -> None:
        send(world, b"1", b"2")
        queue = opened(world)
        assert world.status(queue, "peek_next_v1", *PEEK_NOW) == MQ_ERROR_ILLEGAL_CURSOR_ACTION
        assert body(world.call(queue, "peek_current_v1", *PEEK_NOW)) == b"1"
        assert body(world.call(queue, "peek_next_v1", *PEEK_NOW)) == b"2"


class TestTimeouts:
    @pytest.mark.spec("MQAC-3.11.4.1.14-14")
    @pytest.mark.parametrize("member", [*RECEIVES, "peek", "peek_current", "peek_v1", "peek_current_v1"])
    def test_at_once(self, either: World, member: str) -> None:
        queue = opened(either)
        if either.environment.settings.timeout == "error":
            assert either.status(queue, member, *arguments(member)) == MQ_ERROR_MESSAGE_NOT_FOUND
        else:
            assert either.call(queue, member, *arguments(member)) is None

    @pytest.mark.spec("MQAC-3.11.4.1.14-15", "MQAC-3.11.4.1.14-13", "MQAC-3.11.2-1")
    @pytest.mark.parametrize("member", [*RECEIVES, "peek", "peek_current", "peek_v1", "peek_current_v1"])
    def test_after_the_interval_and_not_before(self, either: World, member: str) -> None:
        """Milliseconds; each wait has its own timer."""
        queue, other = opened(either), opened(either)
        before = (MISSING,) * (3 if member in RECEIVES else 2)
        task = either.start(queue, member, *before, i4(1500))
        later = either.start(other, member, *before, i4(2500))
        either.tick(1.49)
        assert not task.done()
        either.tick(0.02)
        assert task.done()
        assert not later.done()
        if either.environment.settings.timeout == "error":
            assert status_of(task.exception()) == MQ_ERROR_IO_TIMEOUT
        else:
            assert task.result() is None
        either.tick(1)
        assert later.done()
        later.exception()
        with either.held() as h:
            assert h.queue().waiting_reads == {}

    @pytest.mark.spec("MQAC-3.11.4.1.14-13", "MQAC-3.11.4.1.14-16", "MQAC-3.1.4.2-1")
    @pytest.mark.parametrize("timeout", [(), (MISSING,), (i4(-1),), (Variant(VT.UI4, 0xFFFFFFFF),)])
    def test_an_infinite_wait_ends_with_a_message(self, world: World, q: Queue, timeout: tuple[Variant, ...]) -> None:
        """It blocks only itself: neither the object nor other objects."""
        queue, other = opened(world), opened(world)
        before = (MISSING,) * 3 if timeout else ()
        task = world.start(queue, "receive", *before, *timeout)
        world.tick(10_000_000)
        assert not task.done()
        assert world.call(queue, "get_is_open") == 1
        assert world.call(queue, "peek", *PEEK_NOW) is None
        assert world.call(other, "receive", *RECEIVE_NOW) is None
        send(world, b"1")
        assert body(world.run(task)) == b"1"
        assert bodies(world) == []

    def test_a_wait_in_a_transaction(self, world: World, q: Queue) -> None:
        queue, transaction = opened(world), begin(world)
        task = world.start(queue, "receive", within(transaction))
        send(world, b"1")
        assert body(world.run(task)) == b"1"
        assert bodies(world) == []
        world.call(transaction, "abort")
        assert bodies(world) == [b"1"]
        waiting = world.start(queue, "receive_current", within(begin(world)))
        assert body(world.run(waiting)) == b"1"

    def test_a_wait_ends_with_its_transaction(self, world: World, q: Queue) -> None:
        queue, transaction = opened(world), begin(world)
        task = world.start(queue, "receive", within(transaction))
        world.call(transaction, "abort")
        world.run_ready()
        assert status_of(task.exception()) == MQ_ERROR_TRANSACTION_SEQUENCE

    @pytest.mark.spec("MQAC-3.11.4.1.15-2")
    def test_a_peek_that_waited_leaves_the_message(self, world: World, q: Queue) -> None:
        queue = opened(world, PEEK)
        task = world.start(queue, "peek")
        send(world, b"1")
        assert body(world.run(task)) == b"1"
        assert bodies(world) == [b"1"]


class TestAbandoned:
    """A client that goes, or cancels its call, loses no message."""

    def cancel(self, world: World, task: asyncio.Task[object]) -> None:
        task.cancel()
        world.run_ready()
        assert task.cancelled()

    @pytest.mark.parametrize("member", ["receive", "receive_current", "peek", "peek_current"])
    def test_a_wait_that_is_cancelled_takes_nothing(self, world: World, q: Queue, member: str) -> None:
        queue = opened(world)
        self.cancel(world, world.start(queue, member))
        assert q.waiting_reads == {}
        send(world, b"1")
        assert body(world.call(queue, "receive", *RECEIVE_NOW)) == b"1"

    @pytest.mark.parametrize("transactional", [False, True])
    def test_a_message_that_came_in_the_same_moment_goes_back(
        self, world: World, q: Queue, transactional: bool
    ) -> None:
        queue = opened(world)
        transaction = begin(world)
        task = world.start(queue, "receive", within(transaction) if transactional else NO_TRANSACTION)
        send(world, b"1")
        assert q.held_positions
        self.cancel(world, task)
        assert not q.held_positions
        assert bodies(world) == [b"1"]
        world.call(transaction, "commit")
        assert bodies(world) == [b"1"]

    def test_one_that_was_taken_and_is_not_on_disk_goes_back(self, world: World, q: Queue) -> None:
        send(world, b"1", b"2")
        queue = opened(world)
        # No batch becomes durable while the test has the commit lock.
        with world.engine.store._commits._commit_lock:
            task = world.start(queue, "receive")
            assert bodies(world) == [b"2"]
            self.cancel(world, task)
        assert bodies(world) == [b"1", b"2"]

    def test_the_cursor_stays_before_a_message_that_went_back(self, world: World, q: Queue) -> None:
        queue = opened(world)
        task = world.start(queue, "receive_current")
        send(world, b"1")
        self.cancel(world, task)
        assert body(world.call(queue, "receive_current", *RECEIVE_NOW)) == b"1"


class TestCursor:
    @pytest.mark.spec("MQAC-3.11.4.1.16-1")
    def test_receive_current_removes_and_advances(self, world: World, q: Queue) -> None:
        send(world, b"1", b"2", b"3")
        queue = opened(world)
        world.call(queue, "peek_current", *PEEK_NOW)
        assert body(world.call(queue, "peek_next", *PEEK_NOW)) == b"2"
        assert body(world.call(queue, "receive_current", *RECEIVE_NOW)) == b"2"
        assert bodies(world) == [b"1", b"3"]
        assert body(world.call(queue, "peek_current", *PEEK_NOW)) == b"3"

    @pytest.mark.spec("MQAC-3.11.4.1.16-2")
    @pytest.mark.parametrize("member", ["receive_current", "peek_current", "receive_current_v1", "peek_current_v1"])
    def test_a_message_that_somebody_else_took(self, world: World, q: Queue, member: str) -> None:
        send(world, b"1", b"2")
        queue = opened(world)
        world.call(queue, "peek_current", *PEEK_NOW)
        assert body(world.call(opened(world), "receive", *RECEIVE_NOW)) == b"1"
        assert world.status(queue, member, *arguments(member)) == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
        assert bodies(world) == [b"2"]

    @pytest.mark.spec("MQAC-3.11.4.1.16-3")
    def test_each_open_queue_has_its_own(self, world: World, q: Queue) -> None:
        send(world, b"1", b"2", b"3")
        one, other = opened(world), opened(world)
        world.call(one, "peek_current", *PEEK_NOW)
        assert body(world.call(one, "peek_next", *PEEK_NOW)) == b"2"
        assert body(world.call(other, "peek_current", *PEEK_NOW)) == b"1"
        assert body(world.call(one, "peek_next", *PEEK_NOW)) == b"3"
        assert body(world.call(other, "peek_next", *PEEK_NOW)) == b"2"

    @pytest.mark.spec("MQAC-3.11.4.1.17-1", "MQAC-3.11.4.1.10-1")
    def test_peek_next_needs_a_place_to_continue_from(self, strict: World) -> None:
        """Not on a fresh or reset cursor, nor past the end."""
        send(strict, b"1")
        queue = opened(strict)
        assert strict.status(queue, "peek_next", *PEEK_NOW) == MQ_ERROR_ILLEGAL_CURSOR_ACTION
        assert body(strict.call(queue, "peek_current", *PEEK_NOW)) == b"1"
        assert strict.status(queue, "peek_next", *PEEK_NOW) == MQ_ERROR_MESSAGE_NOT_FOUND
        assert strict.status(queue, "peek_next", *PEEK_NOW) == MQ_ERROR_ILLEGAL_CURSOR_ACTION
        strict.call(queue, "reset")
        assert strict.status(queue, "peek_next", *PEEK_NOW) == MQ_ERROR_ILLEGAL_CURSOR_ACTION

    @pytest.mark.spec("MQAC-3.11.4.1.17-2")
    def test_peek_next_advances_and_waits_at_the_end(self, strict: World) -> None:
        send(strict, b"1", b"2", b"3")
        with strict.held() as h:
            locked = h.begin()
            lookup_id = h.lookup_ids()[b"2"]
            descriptor = h.open()
            h.engine.read_message_by_lookup_identifier(
                descriptor,
                lookup_id,
                peek_operation=False,
                lookup_operation=MessageSeekAction.CURRENT,
                transaction=locked,
            )
        queue = opened(strict)
        assert body(strict.call(queue, "peek_current", *PEEK_NOW)) == b"1"
        assert body(strict.call(queue, "peek_next", *PEEK_NOW)) == b"3"
        task = strict.start(queue, "peek_next", MISSING, MISSING, i4(1000))
        strict.tick(0.5)
        send(strict, b"4")
        assert body(strict.run(task)) == b"4"
        late = strict.start(queue, "peek_next", MISSING, MISSING, i4(1000))
        strict.tick(1.1)
        assert status_of(late.exception()) == MQ_ERROR_IO_TIMEOUT

    @pytest.mark.spec("MQAC-3.11.4.1.18-1", "MQAC-3.11.4.1.10-1")
    def test_peek_current_stays(self, world: World, q: Queue) -> None:
        """It sees the head, also after a reset."""
        send(world, b"1", b"2")
        queue = opened(world)
        for _ in range(3):
            assert body(world.call(queue, "peek_current", *PEEK_NOW)) == b"1"
        assert body(world.call(queue, "peek_next", *PEEK_NOW)) == b"2"
        assert body(world.call(queue, "peek_current", *PEEK_NOW)) == b"2"
        assert world.call(queue, "reset") is None
        assert body(world.call(queue, "peek_current", *PEEK_NOW)) == b"1"


class TestPeek:
    @pytest.mark.spec("MQAC-3.11.4.1.15-2", "MQAC-3.11.4.1.26-1", "MQAC-3.11.4.1.33-1")
    def test_locks_that_allow_it_are_seen_through(self, world: World, q: Queue) -> None:
        """ReceiveByLookupIdAllowPeek: receivers do not get it, peekers see it until the commit."""
        send(world, b"1", b"2")
        lookup_id = ids(world)[b"1"]
        queue, other = opened(world), opened(world)
        transaction = begin(world)
        message = world.call(queue, "receive_by_lookup_id_allow_peek", ui8(lookup_id), within(transaction))
        assert body(message) == b"1"
        assert body(world.call(other, "peek", *PEEK_NOW)) == b"1"
        assert body(world.call(other, "peek_by_lookup_id", ui8(lookup_id))) == b"1"
        assert body(world.call(other, "peek_first_by_lookup_id")) == b"1"
        assert world.status(other, "receive_by_lookup_id", ui8(lookup_id)) == MQ_ERROR_MESSAGE_NOT_FOUND
        assert body(world.call(other, "receive", *RECEIVE_NOW)) == b"2"
        world.call(transaction, "commit")
        assert world.call(other, "peek", *PEEK_NOW) is None

    @pytest.mark.spec("MQAC-3.11.4.1.33-1")
    def test_an_abort_makes_it_receivable_again(self, world: World, q: Queue) -> None:
        """A later lock hides the message again."""
        send(world, b"1")
        lookup_id = ids(world)[b"1"]
        queue, transaction = opened(world), begin(world)
        world.call(queue, "receive_by_lookup_id_allow_peek", ui8(lookup_id), within(transaction))
        world.call(transaction, "abort")
        again = begin(world)
        assert body(world.call(queue, "receive", within(again))) == b"1"
        assert world.call(queue, "peek", *PEEK_NOW) is None

    @pytest.mark.spec("MQAC-3.11.4.1.33-2")
    @pytest.mark.parametrize("kind", [MISSING, i4(0), i4(3)])
    def test_outside_a_transaction_it_just_receives(self, world: World, q: Queue, kind: Variant) -> None:
        send(world, b"1", b"2")
        lookup_id = ids(world)[b"2"]
        queue = opened(world)
        assert body(world.call(queue, "receive_by_lookup_id_allow_peek", ui8(lookup_id), kind)) == b"2"
        assert bodies(world) == [b"1"]
        transaction = begin(world)
        world.call(queue, "receive", within(transaction))
        first = next(iter(q.held_positions))
        assert world.status(queue, "receive_by_lookup_id_allow_peek", ui8(first), kind) == MQ_ERROR_MESSAGE_NOT_FOUND

    @pytest.mark.spec("MQAC-3.11.4.1.15-2")
    def test_the_message_stays(self, world: World, q: Queue) -> None:
        send(world, b"1")
        queue = opened(world, PEEK)
        assert body(world.call(queue, "peek", *PEEK_NOW)) == b"1"
        assert body(world.call(queue, "peek", *PEEK_NOW)) == b"1"
        assert bodies(world) == [b"1"]


class TestLookup:
    @pytest.fixture
    def queue(self, world: World, q: Queue) -> MSMQQueue:
        send(world, b"1", b"2", b"3", b"4", b"5")
        return opened(world)

    @pytest.mark.spec("MQAC-3.11.4.1.21-1")
    @pytest.mark.parametrize("member", RECEIVES_BY_ID + PEEKS_BY_ID)
    def test_zero_is_no_position(self, world: World, q: Queue, member: str) -> None:
        """Before every other check, of access for example."""
        queue = opened(world, SEND)
        for zero in (ui8(0), Variant(VT.BSTR, "0"), i4(0)):
            assert world.status(queue, member, zero) == E_INVALIDARG
        assert world.status(queue, member, ui8(1)) == MQ_ERROR_ACCESS_DENIED

    @pytest.mark.spec("MQAC-3.11.4.1.21-1", "MQAC-3.17.4.1.83-2")
    def test_numbers_and_digits(self, world: World, queue: MSMQQueue) -> None:
        lookup_id = ids(world)[b"3"]
        for variant in (ui8(lookup_id), Variant(VT.BSTR, str(lookup_id)), Variant(VT.BYREF | VT.UI8, lookup_id)):
            assert body(world.call(queue, "peek_by_lookup_id", variant)) == b"3"
        told = world.call(world.call(queue, "peek_by_lookup_id", ui8(lookup_id)), "get_lookup_id")
        assert body(world.call(queue, "peek_by_lookup_id", told)) == b"3"
        for wrong in (
            EMPTY,
            Variant(VT.BSTR, "x"),
            Variant(VT.BSTR, "-1"),
            Variant(VT.BSTR, None),
            Variant(VT.R8, 1.0),
        ):
            assert world.status(queue, "peek_by_lookup_id", wrong) == E_INVALIDARG
        for wrong in (Variant(VT.I8, -1), Variant(VT.BSTR, str(1 << 64)), Variant(VT.BSTR, "9" * 10_000)):
            assert world.status(queue, "peek_by_lookup_id", wrong) == E_INVALIDARG

    @pytest.mark.spec("MQAC-3.11.4.1.21-2", "MQAC-3.11.4.1.21-3")
    @pytest.mark.parametrize("member", ["receive_by_lookup_id", "peek_by_lookup_id"])
    def test_no_neighbour_will_do(self, either: World, member: str) -> None:
        """A code, whatever the setting for time-outs; and at once."""
        queue = opened(either)
        send(either, b"1", b"2", b"3")
        place = ids(either)[b"2"]
        with either.held() as h:
            h.engine.read_message_by_lookup_identifier(
                h.open(), place, peek_operation=False, lookup_operation=MessageSeekAction.CURRENT
            )
        assert either.status(queue, member, ui8(place)) == MQ_ERROR_MESSAGE_NOT_FOUND
        assert bodies(either) == [b"1", b"3"]

    @pytest.mark.spec("MQAC-3.11.4.1.21-2")
    def test_off_the_ends_there_is_nothing(self, world: World, queue: MSMQQueue) -> None:
        place = ids(world)
        assert world.status(queue, "peek_next_by_lookup_id", ui8(place[b"5"])) == MQ_ERROR_MESSAGE_NOT_FOUND
        assert world.status(queue, "receive_previous_by_lookup_id", ui8(place[b"1"])) == MQ_ERROR_MESSAGE_NOT_FOUND
        with world.held() as h:
            h.messages()
        for member in RECEIVES_AT_ENDS + PEEKS_AT_ENDS:
            assert world.status(queue, member) == MQ_ERROR_MESSAGE_NOT_FOUND

    @pytest.mark.spec("MQAC-3.11.4.1.21-3")
    def test_a_locked_message_counts_as_absent(self, world: World, queue: MSMQQueue) -> None:
        place = ids(world)
        world.call(queue, "receive_by_lookup_id", ui8(place[b"3"]), within(begin(world)))
        assert world.status(queue, "receive_by_lookup_id", ui8(place[b"3"])) == MQ_ERROR_MESSAGE_NOT_FOUND
        assert world.status(queue, "peek_by_lookup_id", ui8(place[b"3"])) == MQ_ERROR_MESSAGE_NOT_FOUND
        # A message that was taken under another cursor is the same case.
        cursor = opened(world)
        world.call(cursor, "peek_current", *PEEK_NOW)
        world.call(queue, "receive", *RECEIVE_NOW)
        for member in ("receive_by_lookup_id", "peek_by_lookup_id"):
            assert world.status(queue, member, ui8(place[b"1"])) == MQ_ERROR_MESSAGE_NOT_FOUND
        assert body(world.call(queue, "peek_next_by_lookup_id", ui8(place[b"2"]))) == b"4"

    @pytest.mark.spec("MQAC-3.11.4.1.21-4")
    @pytest.mark.parametrize(
        ("member", "at", "taken"),
        [
            ("receive_by_lookup_id", b"3", b"3"),
            ("receive_next_by_lookup_id", b"3", b"4"),
            ("receive_previous_by_lookup_id", b"3", b"2"),
            ("receive_first_by_lookup_id", None, b"1"),
            ("receive_last_by_lookup_id", None, b"5"),
            ("receive_by_lookup_id_allow_peek", b"3", b"3"),
        ],
    )
    def test_exactly_what_is_returned_is_removed(
        self, world: World, queue: MSMQQueue, member: str, at: bytes | None, taken: bytes
    ) -> None:
        """It is locked in a transaction, otherwise removed, and copied to the journal."""
        find(world).journaling = True
        everything = bodies(world)
        left = [one for one in everything if one != taken]
        where = () if at is None else (ui8(ids(world)[at]),)
        transaction = begin(world)
        assert body(world.call(queue, member, *where, within(transaction))) == taken
        world.call(transaction, "abort")
        assert bodies(world) == everything
        assert body(world.call(queue, member, *where)) == taken
        assert bodies(world) == left
        assert bodies(world, r"DIRECT=OS:.\private$\q;journal") == [taken]

    @pytest.mark.spec("MQAC-3.11.4.1.22-1", "MQAC-3.11.4.1.23-1")
    def test_neighbours(self, world: World, queue: MSMQQueue) -> None:
        place = ids(world)
        assert body(world.call(queue, "peek_next_by_lookup_id", ui8(place[b"2"]))) == b"3"
        assert body(world.call(queue, "peek_previous_by_lookup_id", ui8(place[b"2"]))) == b"1"
        world.call(queue, "receive_by_lookup_id", ui8(place[b"4"]), within(begin(world)))
        assert body(world.call(queue, "receive_next_by_lookup_id", ui8(place[b"3"]))) == b"5"
        assert body(world.call(queue, "receive_previous_by_lookup_id", ui8(place[b"3"]))) == b"2"
        assert bodies(world) == [b"1", b"3"]

    @pytest.mark.spec("MQAC-3.11.4.1.24-1", "MQAC-3.11.4.1.25-1", "MQAC-3.11.4.1.26-1")
    def test_the_ends(self, world: World, queue: MSMQQueue) -> None:
        assert body(world.call(queue, "peek_first_by_lookup_id")) == b"1"
        assert body(world.call(queue, "peek_last_by_lookup_id")) == b"5"
        assert len(bodies(world)) == 5
        world.call(queue, "receive_first_by_lookup_id", within(begin(world)))
        world.call(queue, "receive_last_by_lookup_id", within(begin(world)))
        assert body(world.call(queue, "receive_first_by_lookup_id")) == b"2"
        assert body(world.call(queue, "receive_last_by_lookup_id")) == b"4"
        for table in (IMSMQ_QUEUE3, IMSMQ_QUEUE4):
            for slot in (30, 31, 35, 36):
                assert "LookupId" not in [parameter.name for parameter in table.by_opnum[slot].parameters]

    @pytest.mark.spec("MQAC-3.11.4.1.26-1")
    @pytest.mark.parametrize("member", PEEKS_BY_ID + PEEKS_AT_ENDS)
    def test_peeks_remove_nothing(self, world: World, queue: MSMQQueue, member: str) -> None:
        where = (ui8(ids(world)[b"3"]),) if member in PEEKS_BY_ID else ()
        world.call(queue, member, *where)
        assert bodies(world) == [b"1", b"2", b"3", b"4", b"5"]


class TestPurge:
    @pytest.mark.spec("MQAC-3.11.4.1.31-1")
    def test_purged_messages_are_reported(self, world: World, q: Queue) -> None:
        """Locked messages stay as long as their lock: commit removes them, abort purges them."""
        admin = parse(r"DIRECT=OS:.\private$\admin")
        with world.held() as h:
            h.create("admin")
        wanted: dict[str, Any] = {
            "acknowledgements_requested": Acknowledgements.NEG_RECEIVE,
            "administration_queue_format_name": admin,
        }
        send(world, b"1", b"2", b"3", b"4", **wanted)
        queue = opened(world)
        kept, given_back = begin(world), begin(world)
        assert body(world.call(queue, "receive", within(kept))) == b"1"
        assert body(world.call(queue, "receive", within(given_back))) == b"2"
        assert world.call(queue, "purge") is None
        assert bodies(world) == []
        world.call(kept, "commit")
        world.call(given_back, "abort")
        assert bodies(world) == []
        assert q.message_count == 0
        with world.held() as h:
            reports = h.messages("admin")
        assert [int(report.message_class) for report in reports] == [0xC001] * 3
