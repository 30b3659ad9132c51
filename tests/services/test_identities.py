"""Handles and numbers serve only the caller that got them.

They do not serve another user of the association, a caller without a signature, or a guesser.
"""

from __future__ import annotations

import pytest

from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import NULL_HANDLE
from lanner.services import guesses
from lanner.services.guesses import Guesses
from lanner.services.interfaces import mqmp, mqqp
from lanner.services.remote_read import MQ_ACTION_PEEK_CURRENT
from tests.services import queue_client_peer, remote_read_peer
from tests.services.queue_client_peer import RECEIVE, SEND, Open, Site
from tests.statuses import MQ_ERROR_INVALID_HANDLE, MQ_ERROR_TRANSACTION_SEQUENCE, NCA_FAULT_CONTEXT_MISMATCH


@queue_client_peer.served
async def test_a_queue_and_a_transaction_of_another_user_of_the_association(site: Site) -> None:
    """Handles belong to the user, not to the connection.

    A caller that shares the connection of a user is another caller. So is one that comes from the
    same address with the number of its association.
    """
    alice_sid = site.add_user("alice")
    bob_sid = site.add_user("bob", is_administrator=True)
    site.create("hers", sid=alice_sid, transactional=True)
    site.create("his", sid=bob_sid)
    alice = await site.peer("alice")
    group = alice.client.assoc_group_id
    name = r"DIRECT=OS:.\private$\hers"
    sending, reading = await alice.open(name, SEND), await alice.open(name, RECEIVE)
    begun = await alice.begin()
    for other, own in ((await site.peer(None, group), "q"), (await site.peer("bob", group), "his")):
        assert await other.fault(mqmp.RPC_AC_PURGE_QUEUE, h_queue=reading.handle) == NCA_FAULT_CONTEXT_MISMATCH
        assert await other.fault(mqmp.RPC_AC_CLOSE_HANDLE, ph_queue=reading.handle) == NCA_FAULT_CONTEXT_MISMATCH
        assert (await reading.read(peer=other)).status == MQ_ERROR_INVALID_HANDLE
        assert await other.fault(mqmp.R_QM_COMMIT_TRANSACTION, ph_int_xact=begun.handle) == NCA_FAULT_CONTEXT_MISMATCH
        theirs = await other.open(rf"DIRECT=OS:.\private$\{own}", SEND)
        assert (await theirs.send(b"x", begun))[RETURNS] == MQ_ERROR_TRANSACTION_SEQUENCE
    # Herself on another connection.
    again = await site.peer("alice", group)
    assert (await Open(again, sending.handle, sending.context).send(b"hers", begun))[RETURNS] == 0
    committed = await again.call(mqmp.R_QM_COMMIT_TRANSACTION, ph_int_xact=begun.handle)
    assert committed == {"ph_int_xact": NULL_HANDLE, RETURNS: 0}
    assert (await reading.read(peer=again)).body == b"hers"
    assert (await again.call(mqmp.RPC_AC_CLOSE_HANDLE, ph_queue=reading.handle))[RETURNS] == 0


@queue_client_peer.served
async def test_what_nobody_opened_is_everybodys_in_the_association(site: Site) -> None:
    """An anonymous handle stays usable for a caller of the association that logs on."""
    site.add_user("alice")
    nobody = await site.peer()
    opened = await nobody.open()
    alice = await site.peer("alice", nobody.client.assoc_group_id)
    assert await Open(alice, opened.handle, opened.context).purge() == 0


@remote_read_peer.served
async def test_a_caller_that_guesses_numbers_of_open_queues_is_ignored(
    site: remote_read_peer.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In MS-MQQP the number alone opens a queue, for any caller that knows it."""
    monkeypatch.setattr(guesses, "MAX_WRONG", 4)
    site.send(b"secret")
    opened = await site.opened()
    local = "127.0.0.77"
    thief = await site.peer(local_address=local)
    right = opened.handle

    async def try_one(number: int) -> int:
        results = await thief.call(mqqp.QM2QM, mqqp.REMOTE_QM_PURGE_QUEUE, h_queue=number)
        status: int = results[RETURNS]
        return status

    for number in range(4):
        assert await try_one(right ^ 1 + number) == MQ_ERROR_INVALID_HANDLE
    assert await try_one(right) == MQ_ERROR_INVALID_HANDLE
    assert site.count() == 1
    # Others continue, and so does a caller that has been right once.
    assert (await opened.read(MQ_ACTION_PEEK_CURRENT)).body == b"secret"
    site.now += 1.5
    assert await try_one(right) == 0
    for number in range(4):
        assert await try_one(right ^ 1 + number) == MQ_ERROR_INVALID_HANDLE
    assert await try_one(right) == 0


def test_wrong_numbers_are_forgotten_in_time_and_so_are_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesses, "MAX_PEERS", 3)
    now = [100.0]
    known = Guesses(lambda: now[0])
    for _ in range(guesses.MAX_WRONG - 1):
        known.was_wrong("192.0.2.1")
    assert known.may_guess("192.0.2.1")
    known.was_wrong("192.0.2.1")
    assert not known.may_guess("192.0.2.1")
    assert known.may_guess("192.0.2.2")
    now[0] += guesses.FORGET_AFTER
    assert known.may_guess("192.0.2.1")
    for number in range(10):
        known.was_wrong(f"192.0.2.{10 + number}")
    assert len(known._wrong) == 3


def test_a_network_of_ipv6_guesses_as_one() -> None:
    known = Guesses(lambda: 100.0)
    for number in range(guesses.MAX_WRONG):
        known.was_wrong(f"2001:db8::{number:x}")
    assert not known.may_guess("2001:db8::ffff")
    assert known.may_guess("2001:db8:0:1::1")
