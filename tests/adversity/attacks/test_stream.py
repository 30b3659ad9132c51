"""Attacks on the stream of Lanner's own interface by a user with an account.

The attacker's frames must not stop other callers.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

import lanner
from lanner.model.errors import MQ_OK
from lanner.rpc.async_client import BoundInterface, RpcClient, connect_tcp
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthLevel
from lanner.services import stream_entries as entries
from lanner.services.interfaces.lanner import (
    LANNER,
    LANNER_BEGIN_STREAM,
    LANNER_CALL,
    LANNER_CLOSE_SESSION,
    LANNER_OPEN_SESSION,
    pack_frame,
)
from tests.adversity.attacks.victim import USER, Victim, victim

MIB: Final = 1 << 20
_TAKEN: Final = r"DIRECT=OS:VICTIM\private$\taken"


class _Enemy:
    """A user's session and its stream."""

    def __init__(self, client: RpcClient, bound: BoundInterface, session: bytes) -> None:
        self.client = client
        self.bound = bound
        self.session = session

    async def call(self, request: dict[str, Any]) -> int:
        frame = pack_frame(request, b"")
        answer: Any = await self.bound.call(LANNER_CALL, session=self.session, size=len(frame), request=frame)
        status: int = answer[RETURNS]
        return status


def _attack(place: Victim, attack: Callable[[_Enemy], Awaitable[None]]) -> None:
    async def main() -> None:
        async with await connect_tcp(
            place.address, place.port(), credentials=USER, level=AuthLevel.PKT_PRIVACY
        ) as client:
            bound = await client.bind(LANNER)
            session = (await bound.call(LANNER_OPEN_SESSION))["session"]
            begun: Any = await bound.call(LANNER_BEGIN_STREAM, session=session, version=1)
            client.begin_frames(bytes(begun["keys"]))
            await attack(_Enemy(client, bound, session))

    asyncio.run(main())


def _peak(place: Victim) -> int:
    """Return the most memory that the service has had, in octets."""
    status = Path(f"/proc/{int((place.data / 'lock').read_text())}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def _use(place: Victim) -> None:
    """Be another client of the service, and get an answer."""
    with lanner.connect(data=place.data) as manager:
        manager.open("taken").count()


def test_answers_that_one_frame_asks_for_do_not_fill_the_memory(tmp_path: Path) -> None:
    with victim(tmp_path) as place:
        with lanner.connect(data=place.data) as manager:
            manager.create_queue("taken", access={USER.user: ["receive"]}).send(bytes(3 * MIB))

        async def attack(enemy: _Enemy) -> None:
            assert await enemy.call({"request": "open", "queue": 1, "name": _TAKEN, "access": "receive"}) == MQ_OK
            receive = entries.pack_receive(entries.ReceiveRequest(1, 0, 1, 1, 0))
            before = _peak(place)
            # The same message a hundred times, in answers that the enemy does not read.
            for _ in range(100):
                enemy.client.post(entries.RECEIVE, receive)
                enemy.client.post(entries.GIVE_BACK, entries.pack_reads([1]))
            assert enemy.client._transport is not None
            enemy.client._transport.pause_reading()
            # The frames have come before the connection of this client.
            await asyncio.sleep(0)
            for _ in range(5):
                await asyncio.to_thread(_use, place)
            assert _peak(place) - before < 64 * MIB

        _attack(place, attack)


@pytest.mark.parametrize("kind", [entries.CONFIRM, entries.GIVE_BACK])
def test_ranges_of_reads_do_not_keep_the_service_from_others(tmp_path: Path, kind: int) -> None:
    with victim(tmp_path) as place:
        with lanner.connect(data=place.data) as manager:
            manager.create_queue("taken")

        async def attack(enemy: _Enemy) -> None:
            body = entries.pack_reads(range(1, entries.MAX_READS + 1))
            for _ in range(2000):
                enemy.client.post(kind, body)
            last = asyncio.ensure_future(enemy.client.answer(enemy.client.post(entries.PING)))
            await asyncio.sleep(0)
            await asyncio.to_thread(_use, place)
            assert not last.done()
            last.cancel()

        _attack(place, attack)


def test_the_stream_of_a_closed_session_begins_nothing(tmp_path: Path) -> None:
    with victim(tmp_path) as place:

        async def attack(enemy: _Enemy) -> None:
            client = enemy.client
            await enemy.bound.call(LANNER_CLOSE_SESSION, session=enemy.session)
            client.tell(entries.BEGIN, entries.pack_begin(1, uuid.uuid4()))
            answer = await client.answer(client.post(entries.COMMIT, entries.pack_transaction(1)))
            assert answer.kind == entries.FAILED

        _attack(place, attack)
