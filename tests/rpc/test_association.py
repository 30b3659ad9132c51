"""Association groups and context handles."""

from __future__ import annotations

import logging
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.rpc import association
from lanner.rpc.association import MAX_HANDLES, AssociationGroups, ContextHandles
from lanner.rpc.faults import FaultStatus, RpcFault
from lanner.rpc.ndr import NULL_HANDLE
from lanner.wire.sid import ANONYMOUS_LOGON, Sid

MISMATCH = FaultStatus.NCA_FAULT_CONTEXT_MISMATCH


def refused(handles: ContextHandles, handle: bytes, kind: str = "queue") -> int:
    with pytest.raises(RpcFault) as caught:
        handles.get(handle, kind)
    return caught.value.status


def test_a_handle_stands_for_its_value() -> None:
    handles = ContextHandles()
    handle = handles.add("orders", "queue")
    assert len(handle) == len(NULL_HANDLE)
    assert handle[:4] == bytes(4)
    assert handle != NULL_HANDLE
    assert handles.get(handle, "queue") == "orders"


def test_unknown_closed_null_and_of_another_kind() -> None:
    handles = ContextHandles()
    handle = handles.add("orders", "queue")
    assert refused(handles, handle, "cursor") == MISMATCH
    assert refused(handles, NULL_HANDLE) == MISMATCH
    assert refused(handles, b"x" * 20) == MISMATCH
    assert handles.remove(handle, "queue") == "orders"
    assert refused(handles, handle) == MISMATCH
    with pytest.raises(RpcFault, match="CONTEXT_MISMATCH"):
        handles.remove(handle, "queue")


def test_a_handle_of_another_association() -> None:
    """MS-RPCE 3.3.1.4.1: "the server SHOULD reject the request"."""
    groups = AssociationGroups()
    ours, theirs = groups.join(None, "192.0.2.1"), groups.join(None, "192.0.2.1")
    assert refused(theirs.handles, ours.handles.add("orders", "queue")) == MISMATCH


def test_a_handle_of_another_user() -> None:
    """Authenticated users own their handles.

    Handles of anonymous callers serve the whole association.
    """
    alice, bob = Sid.parse("S-1-5-21-1-2-3-1000"), Sid.parse("S-1-5-21-1-2-3-1001")
    handles = ContextHandles()
    hers, anybodys = handles.add("hers", "queue", owner=alice), handles.add("anybody's", "queue")
    for other in (bob, ANONYMOUS_LOGON):
        for use in (handles.get, handles.remove):
            with pytest.raises(RpcFault) as caught:
                use(hers, "queue", other)
            assert caught.value.status == MISMATCH
    assert handles.get(hers, "queue", alice) == handles.remove(hers, "queue", alice) == "hers"
    assert handles.get(anybodys, "queue", alice) == handles.get(anybodys, "queue", bob) == "anybody's"


def test_the_last_connection_runs_handles_down_newest_first() -> None:
    groups = AssociationGroups()
    group = groups.join(None, "192.0.2.1")
    assert groups.find(group.id, "192.0.2.1") is group
    groups.join(group, "192.0.2.1")
    gone: list[str] = []
    for name in ("queue", "cursor"):
        group.handles.add(name, name, partial(gone.append, name))
    closed = group.handles.add("closed", "queue", lambda: gone.append("closed"))
    group.handles.remove(closed, "queue")
    groups.leave(group)
    assert gone == []
    groups.leave(group)
    assert gone == ["cursor", "queue"]
    assert groups.find(group.id, "192.0.2.1") is None


def test_a_rundown_that_fails_does_not_keep_the_others(caplog: pytest.LogCaptureFixture) -> None:
    handles = ContextHandles()
    gone: list[str] = []
    handles.add("first", "queue", lambda: gone.append("first"))
    handles.add("second", "queue", lambda: 1 / 0)
    with caplog.at_level(logging.CRITICAL):
        handles.run_down()
    assert gone == ["first"]
    assert len(handles) == 0


def test_a_handle_that_comes_too_late_is_run_down_at_once() -> None:
    handles = ContextHandles()
    handles.run_down()
    gone: list[str] = []
    with pytest.raises(RpcFault):
        handles.add("queue", "queue", lambda: gone.append("queue"))
    assert gone == ["queue"]


def test_handles_have_a_limit() -> None:
    handles = ContextHandles()
    for number in range(MAX_HANDLES):
        handles.add(number, "queue")
    with pytest.raises(RpcFault, match="REMOTE_NO_MEMORY"):
        handles.add("one more", "queue")


@pytest.mark.parametrize("addresses", [("192.0.2.1",) * 3, ("2001:db8::1", "2001:db8::2", "2001:db8::3:4")])
def test_all_handles_of_an_address_have_a_limit(monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...]) -> None:
    """Many associations do not help, nor the addresses of one network; others have theirs."""
    monkeypatch.setattr(association, "MAX_HANDLES_OF_PEER", 4)
    groups = AssociationGroups()
    one, two, three = (groups.join(None, address) for address in addresses)
    held = [group.handles.add("x", "queue") for group in (one, two) for _ in range(2)]
    for group in (one, two, three):
        with pytest.raises(RpcFault, match="NO_MEMORY"):
            group.handles.add("x", "queue")
    groups.join(None, "192.0.2.2").handles.add("x", "queue")
    one.handles.remove(held[0], "queue")
    held[0] = two.handles.add("x", "queue")
    groups.leave(two)
    for _ in range(3):
        one.handles.add("x", "queue")
    with pytest.raises(RpcFault, match="NO_MEMORY"):
        one.handles.add("x", "queue")


def test_nothing_is_kept_of_addresses_that_have_left() -> None:
    groups = AssociationGroups()
    for number in range(3):
        group = groups.join(None, f"192.0.2.{number}")
        group.handles.add("x", "queue")
        groups.leave(group)
    assert groups._tallies == {}


def test_who_comes_from_elsewhere_does_not_find_a_group() -> None:
    groups = AssociationGroups()
    group = groups.join(None, "192.0.2.1")
    assert groups.find(group.id, "192.0.2.2") is None
    assert group.id != 0


@given(st.lists(st.sampled_from(["add", "remove", "twice"]), max_size=40))
def test_everything_is_closed_or_run_down_once(steps: list[str]) -> None:
    handles = ContextHandles()
    ends: dict[int, int] = {}
    held: list[tuple[int, bytes]] = []
    removed: list[bytes] = []

    def end(number: int) -> None:
        ends[number] += 1

    for number, step in enumerate(steps):
        if step == "add":
            ends[number] = 0
            held.append((number, handles.add(number, "queue", partial(end, number))))
        elif step == "remove" and held:
            which, handle = held.pop(number % len(held))
            assert handles.remove(handle, "queue") == which
            end(which)
            removed.append(handle)
        elif step == "twice" and removed:
            assert refused(handles, removed[-1]) == MISMATCH
    handles.run_down()
    assert set(ends.values()) <= {1}
