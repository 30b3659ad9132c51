"""The cursor as a state machine (MS-MQDMPR 3.2), and opening one (3.1.7.1.1)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest

from lanner.engine.cursors import ANSWERS, MESSAGE_AVAILABLE, Answer, CursorEvent
from lanner.engine.reading import ReadStart
from lanner.model.enums import CursorState, QueueAccessType
from lanner.model.errors import IllegalCursorAction, MessageAlreadyReceived
from lanner.model.live import END, START, Cursor, MessagePosition, OpenQueueDescriptor
from tests.engine.harness import Harness, Reader, at_once, body_of, is_waiting, status_of
from tests.statuses import (
    MQ_ERROR_ILLEGAL_CURSOR_ACTION,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_MESSAGE_ALREADY_RECEIVED,
    MQ_ERROR_MESSAGE_NOT_FOUND,
)

UNREAD, READ = CursorState.UNREAD, CursorState.READ
WAIT_PEEK, WAIT_RECEIVE = CursorState.WAIT_PEEK, CursorState.WAIT_RECEIVE
PEEK, PEEK_NEXT = CursorEvent.GET_MESSAGE_FOR_PEEK, CursorEvent.GET_NEXT_MESSAGE_FOR_PEEK
DEQUEUE = CursorEvent.GET_NEXT_MESSAGE_FOR_DEQUEUE


@dataclass
class Walk:
    """A queue a, b, c and a cursor whose place and state a test has chosen."""

    h: Harness
    descriptor: OpenQueueDescriptor
    cursor: Cursor
    ids: dict[bytes, int]
    reader: Reader

    def do(self, event: CursorEvent, *, timeout: int = 0) -> ReadStart:
        engine, on_end = self.h.engine, self.reader
        if event is PEEK:
            return engine.peek_message(self.descriptor, cursor=self.cursor, timeout=timeout, on_end=on_end)
        if event is PEEK_NEXT:
            return engine.peek_next_message(self.descriptor, self.cursor, timeout=timeout, on_end=on_end)
        return engine.dequeue_message(
            self.descriptor, cursor=self.cursor, timeout=timeout, two_phase_read=True, on_end=on_end
        )

    def raise_event(self, event: CursorEvent, *, no_wait: bool = False) -> bytes | None:
        """The cursor's own event, without what a read makes of its answer."""
        found = self.h.engine.cursors.get_message(self.cursor, event, no_wait=no_wait)
        return None if found is None else body_of(found)

    @property
    def place(self) -> tuple[int, CursorState]:
        return self.cursor.position, self.cursor.state


@pytest.fixture
def walk(h: Harness) -> Walk:
    h.create()
    for body in (b"a", b"b", b"c"):
        h.send(body=body)
    descriptor = h.open()
    return Walk(h, descriptor, opened(h, descriptor), h.lookup_ids(), Reader())


def opened(h: Harness, descriptor: OpenQueueDescriptor) -> Cursor:
    cursor = h.engine.open_cursor(descriptor)
    assert cursor is not None
    return cursor


# Opening
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.1-1", "DMPR-3.2.7.1-1")
def test_no_cursor_is_opened_where_there_is_no_queue(h: Harness) -> None:
    """3.1.7.1.1: QueueReference NULL (deleted queue, several destinations) gives a NULL cursor."""
    h.create()
    h.create("r")
    deleted = h.open()
    several = h.open(r"DIRECT=OS:.\private$\q,DIRECT=OS:.\private$\r", QueueAccessType.SEND)
    h.engine.delete_queue(h.queue())
    for descriptor in (deleted, several):
        assert h.engine.open_cursor(descriptor) is None
        assert descriptor.cursors == []


@pytest.mark.spec("DMPR-3.1.7.1.1-2")
def test_cursors_of_one_handle_are_independent(walk: Walk) -> None:
    """3.1.7.1.1: each is added to CursorCollection and goes its own way."""
    h, first = walk.h, walk.cursor
    second = opened(h, walk.descriptor)
    assert walk.descriptor.cursors == [first, second]
    h.engine.peek_message(walk.descriptor, cursor=first, timeout=0)
    h.engine.peek_next_message(walk.descriptor, first, timeout=0)
    assert (second.position, second.state) == (START, UNREAD)
    position = at_once(h.engine.peek_message(walk.descriptor, cursor=second, timeout=0))
    assert (body_of(position), first.position) == (b"a", walk.ids[b"b"])


@pytest.mark.spec("DMPR-3.2.7.1-1", "DMPR-3.2.1.2-1")
def test_a_new_cursor_stands_before_the_queue(h: Harness) -> None:
    """3.2.7.1: a new cursor is at Start, Unread and refers to its descriptor.

    3.2.1.2: Handle is unique on the queue manager.
    """
    h.create("q")
    h.create("r")
    descriptors = [h.open("q"), h.open("q"), h.open("r")]
    cursors = [opened(h, descriptor) for descriptor in descriptors for _ in range(3)]
    assert all((c.position, c.state) == (START, UNREAD) for c in cursors)
    assert [c.descriptor for c in cursors] == [d for d in descriptors for _ in range(3)]
    closed = {c.handle for c in cursors}
    assert len(closed) == 9
    for cursor in cursors:
        h.engine.close_cursor(cursor)
    assert opened(h, descriptors[0]).handle not in closed


@pytest.mark.spec("DMPR-3.2.1.2-1")
def test_a_cursor_has_four_states() -> None:
    """3.2.1.2 CursorState."""
    assert {state.value for state in CursorState} == {"Unread", "WaitReceive", "WaitPeek", "Read"}


# The table
# --------------------------------------------------------------------------------------------------

# MS-MQDMPR 3.2.7.2 to 3.2.7.4, and DECISIONS for a cursor that waits already.
SPECIFIED = {
    (UNREAD, PEEK): Answer.SEEK,
    (UNREAD, PEEK_NEXT): Answer.ILLEGAL,
    (UNREAD, DEQUEUE): Answer.SEEK,
    (READ, PEEK): Answer.CURRENT,
    (READ, PEEK_NEXT): Answer.SEEK,
    (READ, DEQUEUE): Answer.CURRENT,
    (WAIT_PEEK, PEEK): Answer.ILLEGAL,
    (WAIT_PEEK, PEEK_NEXT): Answer.ILLEGAL,
    (WAIT_PEEK, DEQUEUE): Answer.ILLEGAL,
    (WAIT_RECEIVE, PEEK): Answer.ILLEGAL,
    (WAIT_RECEIVE, PEEK_NEXT): Answer.ILLEGAL,
    (WAIT_RECEIVE, DEQUEUE): Answer.ILLEGAL,
}
# Where the cursor is left by a message found, and by none found.
AFTER_FOUND = {PEEK: READ, PEEK_NEXT: READ, DEQUEUE: UNREAD}
AFTER_NONE = {PEEK: WAIT_PEEK, PEEK_NEXT: WAIT_PEEK, DEQUEUE: WAIT_RECEIVE}


def test_every_pair_of_state_and_event_has_an_answer() -> None:
    assert set(ANSWERS) == set(itertools.product(CursorState, CursorEvent))
    assert ANSWERS == SPECIFIED


@pytest.mark.parametrize(("state", "event"), list(itertools.product(CursorState, CursorEvent)))
@pytest.mark.parametrize("at", [b"a", b"c"])
@pytest.mark.parametrize("taken", [False, True])
def test_the_cursor_does_what_its_table_says(
    walk: Walk, state: CursorState, event: CursorEvent, at: bytes, taken: bool
) -> None:
    """Every event in every state.

    The message is followed by another or is the last; it is present or already received.
    """
    walk.cursor.position, walk.cursor.state = walk.ids[at], state
    if taken:
        h = walk.h
        position = h.engine.positions.seek_current(h.queue(), walk.ids[at], peek=False)
        h.engine.reading.take(walk.cursor.descriptor, position, None, two_phase_read=False)
    before = walk.place
    answer = SPECIFIED[state, event]
    if answer is Answer.ILLEGAL:
        with pytest.raises(IllegalCursorAction):
            walk.raise_event(event)
        assert walk.place == before
    elif answer is Answer.CURRENT and taken:
        with pytest.raises(MessageAlreadyReceived):
            walk.raise_event(event)
        assert walk.place == before
    elif answer is Answer.CURRENT:
        assert walk.raise_event(event) == at
        assert walk.place == (walk.ids[at], AFTER_FOUND[event])
    elif at == b"a":
        assert walk.raise_event(event) == b"b"
        assert walk.place == (walk.ids[b"b"], AFTER_FOUND[event])
    else:
        assert walk.raise_event(event) is None
        assert walk.place == (walk.ids[at], AFTER_NONE[event])


# Get Message For Peek
# -------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.2.7.2-1")
def test_an_unread_cursor_peeks_forward(walk: Walk) -> None:
    """3.2.7.2: a message found moves the cursor and sets Read; none sets WaitPeek."""
    assert walk.raise_event(PEEK) == b"a"
    assert walk.place == (walk.ids[b"a"], READ)
    walk.cursor.state = UNREAD
    assert walk.raise_event(PEEK) == b"b"
    walk.cursor.position, walk.cursor.state = walk.ids[b"c"], UNREAD
    assert is_waiting(walk.do(PEEK, timeout=1000))
    assert walk.place == (walk.ids[b"c"], WAIT_PEEK)
    assert len(walk.descriptor.waiting_reads) == 1


@pytest.mark.spec("DMPR-3.2.7.2-2")
def test_a_read_cursor_peeks_at_the_same_message(walk: Walk) -> None:
    """3.2.7.2: while it is Available; else AlreadyReceived; the cursor does not move."""
    walk.do(PEEK)
    assert [walk.raise_event(PEEK), walk.raise_event(PEEK)] == [b"a", b"a"]
    lock = at_once(walk.h.engine.dequeue_message_begin(walk.descriptor, timeout=0))
    assert status_of(lambda: walk.do(PEEK)) == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    walk.h.engine.dequeue_message_end(walk.descriptor, lock, delete_message=True)
    assert status_of(lambda: walk.do(PEEK)) == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert walk.place == (walk.ids[b"a"], READ)


# Get Next Message For Peek
# --------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.2.7.3-1")
def test_an_unread_cursor_cannot_peek_on(walk: Walk) -> None:
    """3.2.7.3: IllegalCursorAction, the cursor unchanged."""
    assert status_of(lambda: walk.do(PEEK_NEXT)) == MQ_ERROR_ILLEGAL_CURSOR_ACTION
    assert walk.place == (START, UNREAD)
    walk.do(DEQUEUE)
    assert status_of(lambda: walk.do(PEEK_NEXT)) == MQ_ERROR_ILLEGAL_CURSOR_ACTION
    assert walk.place == (walk.ids[b"a"], UNREAD)


@pytest.mark.spec("DMPR-3.2.7.3-2", "DMPR-3.1.1.11-4")
def test_a_read_cursor_peeks_on_also_from_a_message_that_is_gone(walk: Walk) -> None:
    """3.2.7.3: to the next eligible position; at the end WaitPeek."""
    walk.do(PEEK)
    assert walk.h.receive() == b"a"
    assert walk.raise_event(PEEK_NEXT) == b"b"
    assert walk.place == (walk.ids[b"b"], READ)
    assert [walk.h.receive(), walk.raise_event(PEEK_NEXT)] == [b"b", b"c"]
    assert is_waiting(walk.do(PEEK_NEXT, timeout=1000))
    assert walk.place == (walk.ids[b"c"], WAIT_PEEK)


@pytest.mark.spec("DMPR-3.2.7.3-2")
def test_peeking_on_passes_what_is_locked(walk: Walk) -> None:
    """3.2.7.3: eligible are Available positions."""
    walk.do(PEEK)
    cursor = opened(walk.h, walk.descriptor)
    walk.h.engine.peek_message(walk.descriptor, cursor=cursor, timeout=0)
    walk.h.engine.peek_next_message(walk.descriptor, cursor, timeout=0)
    at_once(walk.h.engine.dequeue_message_begin(walk.descriptor, cursor=cursor, timeout=0))
    assert walk.raise_event(PEEK_NEXT) == b"c"


# Get Next Message For Dequeue
# -----------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.2.7.4-1")
def test_an_unread_cursor_receives_what_is_after_it(walk: Walk) -> None:
    """3.2.7.4: the next Available position; the cursor moves there and remains Unread."""
    for body in (b"a", b"b", b"c"):
        found = at_once(walk.do(DEQUEUE))
        assert (body_of(found), walk.place) == (body, (walk.ids[body], UNREAD))


@pytest.mark.spec("DMPR-3.2.7.4-2")
def test_an_unread_cursor_with_nothing_ahead_waits_or_finds_nothing(walk: Walk) -> None:
    """3.2.7.4: iNoWait True is NotFound with the state unchanged, else WaitReceive."""
    walk.cursor.position = walk.ids[b"c"]
    assert status_of(lambda: walk.do(DEQUEUE)) == MQ_ERROR_MESSAGE_NOT_FOUND
    assert walk.place == (walk.ids[b"c"], UNREAD)
    assert is_waiting(walk.do(DEQUEUE, timeout=1000))
    assert walk.place == (walk.ids[b"c"], WAIT_RECEIVE)


@pytest.mark.spec("DMPR-3.2.7.4-3")
def test_a_read_cursor_receives_the_message_under_it(walk: Walk) -> None:
    """3.2.7.4: Available: taken, and the cursor is Unread; else AlreadyReceived and still Read."""
    walk.do(PEEK)
    walk.do(PEEK_NEXT)
    found = at_once(walk.do(DEQUEUE))
    assert (body_of(found), walk.place) == (b"b", (walk.ids[b"b"], UNREAD))
    walk.do(PEEK)
    assert [walk.h.receive(), walk.h.receive()] == [b"a", b"c"]
    assert status_of(lambda: walk.do(DEQUEUE)) == MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert walk.place == (walk.ids[b"c"], READ)


# Message Available and Wait Time Expired
# ------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.2.7.5-1")
@pytest.mark.parametrize(("event", "after"), [(PEEK_NEXT, READ), (PEEK, READ), (DEQUEUE, UNREAD)])
def test_an_arrival_moves_the_waiting_cursor(walk: Walk, event: CursorEvent, after: CursorState) -> None:
    """3.2.7.5: to the position that came; WaitPeek becomes Read, WaitReceive becomes Unread."""
    walk.cursor.position, walk.cursor.state = walk.ids[b"c"], READ if event is PEEK_NEXT else UNREAD
    assert is_waiting(walk.do(event, timeout=1000))
    walk.h.send(body=b"d")
    [end] = walk.reader.ends
    assert isinstance(end, MessagePosition)
    assert (walk.reader.body, walk.place) == (b"d", (end.lookup_id, after))
    assert MESSAGE_AVAILABLE == {WAIT_PEEK: READ, WAIT_RECEIVE: UNREAD}


@pytest.mark.spec("DMPR-3.2.7.6-1")
def test_an_expired_receive_parks_the_cursor_at_the_end(walk: Walk) -> None:
    """3.2.7.6: from WaitReceive to End, Unread."""
    walk.cursor.position = walk.ids[b"c"]
    walk.do(DEQUEUE, timeout=1000)
    walk.h.tick(1)
    assert (walk.reader.status, walk.place) == (MQ_ERROR_IO_TIMEOUT, (END, UNREAD))


@pytest.mark.spec("DMPR-3.2.7.6-1")
@pytest.mark.parametrize("timeout", [0, 1000])
def test_an_expired_peek_keeps_the_place_of_the_cursor(walk: Walk, timeout: int) -> None:
    """3.2.7.6: from WaitPeek to Unread, so that a following peek-next is illegal."""
    walk.cursor.position, walk.cursor.state = walk.ids[b"c"], READ
    if timeout:
        walk.do(PEEK_NEXT, timeout=timeout)
        walk.h.tick(1)
        assert walk.reader.status == MQ_ERROR_IO_TIMEOUT
    else:
        assert status_of(lambda: walk.do(PEEK_NEXT)) == MQ_ERROR_IO_TIMEOUT
    assert walk.place == (walk.ids[b"c"], UNREAD)
    assert status_of(lambda: walk.do(PEEK_NEXT)) == MQ_ERROR_ILLEGAL_CURSOR_ACTION
    walk.h.send(body=b"d")
    found = at_once(walk.do(PEEK))
    assert body_of(found) == b"d"


@pytest.mark.spec("DMPR-3.2.7.6-2")
@pytest.mark.parametrize("event", [PEEK, DEQUEUE])
@pytest.mark.parametrize("emptied", [False, True])
def test_a_parked_cursor_finds_what_comes_behind_the_old_tail(walk: Walk, event: CursorEvent, emptied: bool) -> None:
    """DECISIONS: the text leaves End.Next undefined.

    Lanner's cursor continues behind the tail as of the time when it was parked.
    """
    walk.cursor.position = walk.ids[b"c"]
    walk.do(DEQUEUE, timeout=1000)
    walk.h.tick(1)
    assert walk.cursor.position == END
    if emptied:
        while walk.h.receive() is not None:
            pass
    walk.h.send(body=b"d")
    walk.h.send(body=b"e")
    found = at_once(walk.do(event))
    assert (body_of(found), walk.place) == (b"d", (found.lookup_id, READ if event is PEEK else UNREAD))
    following = at_once(walk.do(PEEK_NEXT if event is PEEK else DEQUEUE))
    assert body_of(following) == b"e"


@pytest.mark.spec("DMPR-3.2.7.6-2")
def test_a_cursor_parked_on_an_empty_queue_finds_the_first_message(h: Harness) -> None:
    """DECISIONS: with no tail at the time, everything that comes is behind it."""
    h.create()
    descriptor = h.open()
    cursor = opened(h, descriptor)
    h.engine.dequeue_message(descriptor, cursor=cursor, timeout=1000)
    h.tick(1)
    assert cursor.position == END
    h.send(body=b"a")
    found = at_once(h.engine.peek_message(descriptor, cursor=cursor, timeout=0))
    assert body_of(found) == b"a"


@pytest.mark.spec("DMPR-3.2.1.2-2")
@pytest.mark.parametrize("waiting", [PEEK, DEQUEUE])
@pytest.mark.parametrize("second", list(CursorEvent))
def test_a_waiting_cursor_takes_no_second_operation(walk: Walk, waiting: CursorEvent, second: CursorEvent) -> None:
    """DECISIONS: MQ_ERROR_ILLEGAL_CURSOR_ACTION, and the first wait continues."""
    walk.cursor.position = walk.ids[b"c"]
    walk.do(waiting, timeout=1000)
    first, walk.reader = walk.reader, Reader()
    before = walk.place
    for timeout in (0, 1000):
        assert status_of(lambda t=timeout: walk.do(second, timeout=t)) == MQ_ERROR_ILLEGAL_CURSOR_ACTION  # type: ignore[misc]
    assert (walk.place, len(walk.descriptor.waiting_reads)) == (before, 1)
    walk.h.send(body=b"d")
    assert (first.body, walk.reader.ends) == (b"d", [])
