"""How messages that expire are stored.

One row serves all messages that arrive together and expire in the same second.
"""

from __future__ import annotations

from lanner.engine.tables import EXPIRY, EXPIRY_BLOCK, EXPIRY_KEY
from tests.engine.harness import Harness

LIFE = 10
MANY = 200


def rows(h: Harness) -> list[tuple[int, int, int]]:
    return [EXPIRY_KEY.unpack(key) for key, _ in h.store.table(EXPIRY).items()]


def send(h: Harness, count: int, life: int = LIFE, body: bytes = b"x") -> None:
    for _ in range(count):
        h.send(body=body, time_to_be_received=life)


def test_messages_that_come_together_share_rows_that_go_with_them(h: Harness) -> None:
    h.create()
    send(h, MANY)
    assert MANY // EXPIRY_BLOCK <= len(rows(h)) <= MANY // EXPIRY_BLOCK + 2
    for _ in range(MANY):
        assert h.receive() == b"x"
    assert rows(h) == []
    assert h.engine.expiry.blocks == {}


def test_all_expire_at_their_time_and_their_rows_with_them(h: Harness) -> None:
    h.create()
    send(h, MANY)
    send(h, 3, LIFE + 5, b"later")
    h.tick(LIFE - 1)
    assert h.queue().message_count == MANY + 3
    h.tick(1)
    assert h.bodies() == [b"later"] * 3
    assert {deadline for deadline, _, _ in rows(h)} == {int(h.engine.clock()) + 5}
    h.tick(5)
    assert (h.bodies(), rows(h), h.engine.expiry.blocks) == ([], [], {})


def test_times_that_are_mixed_within_a_block(h: Harness) -> None:
    """Rows of removed messages are deleted, although the same block has rows of others."""
    h.create()
    for life in (5, 7, 5, 7, 9):
        send(h, 1, life, b"%d" % life)
    h.tick(5)
    assert h.bodies() == [b"7", b"7", b"9"]
    assert len({row[0] for row in rows(h)}) == 2
    assert h.receive() == b"7"
    assert len({row[0] for row in rows(h)}) == 2
    assert h.receive() == b"7"
    assert len({row[0] for row in rows(h)}) == 1
    h.tick(4)
    assert (h.bodies(), rows(h)) == ([], [])


def test_a_row_from_before_the_start_stays_for_what_was_there(h: Harness) -> None:
    """New messages come into the same block, and go: the old one still expires."""
    h.create()
    send(h, 1, body=b"old")
    h.sync()
    h.restart()
    send(h, 2, body=b"new")
    assert h.bodies() == [b"old", b"new", b"new"]
    ids = h.lookup_ids()
    assert ids[b"old"] // EXPIRY_BLOCK == ids[b"new"] // EXPIRY_BLOCK, "or it shows nothing"
    queue = h.queue()
    for position in list(h.engine.positions.all_positions(queue))[1:]:
        h.engine.positions.remove(queue, position)
    assert h.bodies() == [b"old"]
    h.tick(LIFE)
    assert (h.bodies(), rows(h)) == ([], [])


def test_a_batch_that_is_lost_takes_its_rows_and_the_next_has_them_again(h: Harness) -> None:
    h.create()
    h.sync()
    send(h, 1, body=b"lost")
    assert len(rows(h)) == 1
    h.store._commits._fail(OSError("no space"))
    assert rows(h) == []
    send(h, 1, body=b"kept")
    assert len(rows(h)) == 1
    h.tick(LIFE)
    assert (h.bodies(), rows(h)) == ([], [])


def test_a_deleted_queue_leaves_rows_that_end_when_they_are_due(h: Harness) -> None:
    h.create()
    send(h, 3)
    h.engine.delete_queue(h.queue())
    h.tick(LIFE)
    assert (rows(h), h.engine.expiry.blocks) == ([], {})
    assert h.engine.next_delay() is None
