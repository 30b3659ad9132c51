"""Calls of Lanner's own interface that cost more than their size suggests.

The caller has an account and no rights.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

import lanner
from lanner.host.addresses import local_settings
from lanner.host.runtime import Runtime
from lanner.model.enums import QueueAccessType
from lanner.model.errors import MQ_OK, InsufficientResources, InvalidParameter
from lanner.model.live import OpenQueueDescriptor
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthLevel
from lanner.security.identity import SYSTEM, Identity
from lanner.services import open_objects
from lanner.services.interfaces.lanner import LANNER, LANNER_CALL, LANNER_OPEN_SESSION, pack_frame
from lanner.services.open_objects import OpenObjects
from lanner.wire.format_name import parse
from lanner.wire.sid import Sid
from tests.adversity.attacks.victim import USER, Victim, victim

_Call = Callable[..., Awaitable[int]]
_TAKEN: Final = r"DIRECT=OS:VICTIM\private$\taken"
# As long as they may be, and as many as a transaction may have.
_NAMES: Final = [f"{number:02}".ljust(64, "x") for number in range(64)]


def _attack(place: Victim, attack: Callable[[_Call], Awaitable[None]]) -> None:
    async def main() -> None:
        async with await connect_tcp(
            place.address, place.port(), credentials=USER, level=AuthLevel.PKT_PRIVACY
        ) as client:
            bound = await client.bind(LANNER)
            session = (await bound.call(LANNER_OPEN_SESSION))["session"]

            async def call(request: str, **more: object) -> int:
                frame = pack_frame({"request": request, **more})
                answer: Any = await bound.call(LANNER_CALL, session=session, size=len(frame), request=frame)
                status: int = answer[RETURNS]
                return status

            await attack(call)

    asyncio.run(main())


def test_calls_of_one_client_take_turns_with_those_of_others(tmp_path: Path) -> None:
    """A user's list of decisions, as long as it may be, asked for as often as calls may wait."""
    with victim(tmp_path) as place:

        async def attack(call: _Call) -> None:
            names = [str(uuid.uuid4()) for _ in range(1000)]
            for some in (names[start : start + 100] for start in range(0, len(names), 100)):
                begun = await asyncio.gather(*(call("begin distributed", identifier=one) for one in some))
                assert set(begun) == {MQ_OK}
                decided = await asyncio.gather(*(call("decide", identifier=one, resources=_NAMES) for one in some))
                assert set(decided) == {MQ_OK}
            worst = 0.0
            with await asyncio.to_thread(lanner.connect, data=place.data) as other:
                queue = await asyncio.to_thread(other.create_queue, "orders")
                began = time.monotonic()
                asked = asyncio.gather(*(call("coordinator", resource="y") for _ in range(250)))
                while not asked.done():
                    before = time.monotonic()
                    await asyncio.to_thread(queue.count)
                    worst = max(worst, time.monotonic() - before)
                assert set(await asked) == {MQ_OK}
                assert worst < (time.monotonic() - began) / 2

        _attack(place, attack)


def test_a_request_names_so_many_transactions(tmp_path: Path) -> None:
    with victim(tmp_path) as place:

        async def attack(call: _Call) -> None:
            names = [str(uuid.uuid4()) for _ in range(1001)]
            assert await call("outcomes", transactions=names[1:]) == MQ_OK
            assert await call("outcomes", transactions=names) == InvalidParameter.status
            assert await call("end distributed", transactions=names, resources=["y"]) == InvalidParameter.status

        _attack(place, attack)


def test_a_document_of_nothing_but_lists_is_not_read(tmp_path: Path) -> None:
    with victim(tmp_path) as place:

        async def attack(call: _Call) -> None:
            with pytest.raises(RpcFault):
                await call("exists", name="orders", more=[[]] * 300_000)

        _attack(place, attack)


def test_a_message_for_many_waiting_peeks_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    """Each waiting peek is answered with the whole message.

    The answers are made one after the other, and only as the caller reads them.
    """
    with victim(tmp_path) as place, lanner.connect(data=place.data) as other:
        taken = other.create_queue("taken", access={USER.user: ["peek"], "Everyone": "send"})

        async def attack() -> None:
            async with await connect_tcp(
                place.address, place.port(), credentials=USER, level=AuthLevel.PKT_PRIVACY
            ) as client:
                bound = await client.bind(LANNER)
                session = (await bound.call(LANNER_OPEN_SESSION))["session"]

                async def call(**request: object) -> None:
                    frame = pack_frame(request, b"")
                    await bound.call(LANNER_CALL, session=session, size=len(frame), request=frame)

                await call(request="open", queue=1, name=_TAKEN, access="peek")
                peeks = [asyncio.ensure_future(call(request="peek", queue=1, timeout=600_000)) for _ in range(240)]
                # The last one was read behind all of them.
                await call(request="exists", name=_TAKEN)
                assert client._transport is not None
                client._transport.pause_reading()
                before = memory(place)
                await asyncio.to_thread(taken.send, bytes(3 << 20))
                for _ in range(20):
                    await asyncio.to_thread(taken.count)
                # All answers together would be 720 MiB. A connection with that much waiting data is
                # closed.
                assert memory(place) - before < 600 << 20
                for peek in peeks:
                    peek.cancel()
                await asyncio.gather(*peeks, return_exceptions=True)

        asyncio.run(attack())


def memory(place: Victim) -> int:
    """Return the most memory that the service has had, in octets."""
    status = Path(f"/proc/{int((place.data / 'lock').read_text())}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def test_all_connections_of_a_user_together_have_so_much_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with many connections could otherwise open as much as the memory has room for."""

    class Opened:
        opened = 0

    monkeypatch.setattr(open_objects, "MAX_OPEN_OF_USER", 10)
    objects, bob = OpenObjects(), Identity("bob", Sid.parse("S-1-5-21-1-2-3-1001"))
    first, second = Opened(), Opened()
    objects.require_room(bob, first)
    first.opened = 7
    objects.require_room(bob, first)
    objects.require_room(bob, second)
    second.opened = 1
    with pytest.raises(InsufficientResources, match="on all connections together"):
        objects.require_room(bob, second)
    # Others have room, and so has an administrator whatever is open.
    objects.require_room(Identity("carl", Sid.parse("S-1-5-21-1-2-3-1002")), Opened())
    second.opened = 100
    objects.require_room(SYSTEM, second)
    second.opened = 1
    # What was closed since it was counted makes room, and so does the end of a session.
    first.opened = 6
    objects.require_room(bob, second)
    second.opened = 2
    with pytest.raises(InsufficientResources):
        objects.require_room(bob, second)
    objects.closed(bob, first)
    objects.require_room(bob, second)


def test_handles_to_send_are_many_and_cost_others_nothing(tmp_path: Path) -> None:
    """Every user may open the queue to send. No code path iterates over all of its handles."""

    class Untouched(dict[int, OpenQueueDescriptor]):
        def values(self) -> Any:  # noqa: ANN401
            raise AssertionError("somebody looks at all handles")

        __iter__ = values

    runtime = Runtime(tmp_path, local_settings("ALPHA"))
    with runtime.lock:
        engine = runtime.engine
        queue = engine.create_queue(engine.set_queue_defaults(r".\private$\taken"))
        queue.open_queue_descriptors = Untouched()
        name = parse(r"DIRECT=OS:.\private$\taken")
        handles = [engine.open_queue(name, QueueAccessType.SEND) for _ in range(3)]
        assert len(queue.open_queue_descriptors) == 3
        for handle in handles:
            engine.close_queue(handle)
        assert not len(queue.open_queue_descriptors)
    runtime.close()
