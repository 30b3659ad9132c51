"""Requests to Lanner's own interface that would block the queue manager for other callers.

The caller has an account.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from typing import Any, Final

import pytest

import lanner
from lanner.host import finding
from lanner.host.addresses import local_settings
from lanner.host.message_filters import MAX_BODY_CONDITIONS, MAX_CONDITIONS, MessageFilter
from lanner.host.operations import Operations
from lanner.host.runtime import Runtime
from lanner.model.enums import QueueAccessType
from lanner.model.errors import MQ_OK, InvalidParameter
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthLevel
from lanner.security.accounts import Accounts
from lanner.security.identity import SYSTEM
from lanner.services.interfaces.lanner import (
    LANNER,
    LANNER_ASK,
    LANNER_CALL,
    LANNER_OPEN_SESSION,
    MAX_COMMAS,
    pack_frame,
)
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import parse
from tests.adversity.attacks.victim import USER, Victim, victim

_TAKEN: Final = r"DIRECT=OS:VICTIM\private$\taken"


def test_a_page_of_queues_is_asked_for_in_few_words(tmp_path: Path) -> None:
    with victim(tmp_path) as place:
        with lanner.connect(data=place.data) as manager:
            manager.create_queue("taken", access={USER.user: "full"})
        with lanner.connect(place.address, user=USER.user, password=USER.password) as manager:
            assert manager.queue_page(name="*taken*")["total"] == 1
            # Each makes an expression that takes seconds to compile, and is kept.
            with pytest.raises(InvalidParameter, match="a pattern of 1000000 characters"):
                manager.queue_page(name="?" * 1_000_000)
            with pytest.raises(InvalidParameter, match="100000 columns"):
                manager.queue_page(columns=["name"] * 100_000)
            wrong: Any
            for wrong in ({}, None, "unknown"):
                columns = [wrong]
                with pytest.raises(InvalidParameter, match="unknown column"):
                    manager.queue_page(columns=columns)
        # None of it is a fault of ours.
        assert "Traceback" not in "\n".join(place.log)


def test_a_document_of_a_request_is_not_read_before_it_is_counted(tmp_path: Path) -> None:
    async def status(place: Victim, request: str) -> int:
        async with await connect_tcp(
            place.address, place.port(), credentials=USER, level=AuthLevel.PKT_PRIVACY
        ) as client:
            bound = await client.bind(LANNER)
            answer: Any = await bound.call(LANNER_ASK, request=request)
            return int(answer[RETURNS])

    with victim(tmp_path) as place:
        many = "[" + "0," * (MAX_COMMAS + 1) + "0]"
        assert asyncio.run(status(place, many)) == InvalidParameter.status


def test_copies_of_large_messages_take_turns_with_others(tmp_path: Path) -> None:
    with victim(tmp_path) as place:
        with lanner.connect(data=place.data) as manager:
            manager.create_queue("taken", access={USER.user: ["peek", "send"]}).send(bytes(3 << 20))
            (message,) = manager.open("taken").find().messages

        async def attack() -> None:
            async with await connect_tcp(
                place.address, place.port(), credentials=USER, level=AuthLevel.PKT_PRIVACY
            ) as client:
                bound = await client.bind(LANNER)
                session = (await bound.call(LANNER_OPEN_SESSION))["session"]

                async def call(**request: object) -> int:
                    frame = pack_frame(request, b"")
                    answer: Any = await bound.call(LANNER_CALL, session=session, size=len(frame), request=frame)
                    return int(answer[RETURNS])

                assert await call(request="open", queue=1, name=_TAKEN, access="peek") == MQ_OK
                assert await call(request="open", queue=2, name=_TAKEN, access="send") == MQ_OK
                copied = [message.lookup_id] * 150
                last = asyncio.ensure_future(call(request="pass on", queue=1, target=2, lookup_ids=copied, copy=True))
                await asyncio.sleep(0.01)
                await asyncio.to_thread(_use, place)
                assert not last.done()
                assert await last == MQ_OK

        asyncio.run(attack())


def _use(place: Victim) -> None:
    """Be another client of the service, and get an answer."""
    with lanner.connect(data=place.data) as manager:
        manager.open("taken").count()


def test_a_search_goes_through_a_body_a_few_times() -> None:
    """Each of 32 conditions took 20 milliseconds of everybody's time, for each message."""
    accounts = Accounts()
    several = [f"body~{number}" for number in range(MAX_BODY_CONDITIONS)]
    others = [f"label~{number}" for number in range(MAX_CONDITIONS - MAX_BODY_CONDITIONS)]
    MessageFilter([*several, *others], accounts, 0.0)
    with pytest.raises(InvalidParameter, match="more than 4 conditions on the body"):
        MessageFilter([*several, "body!=x"], accounts, 0.0)


def test_a_search_gives_way_after_each_message_that_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many conditions a search has, it reads a body once.

    A body that is not text costs no more than text.
    """
    runtime = Runtime(tmp_path / "data", local_settings("ALPHA"))
    try:
        operations = Operations(runtime.engine, runtime, SYSTEM)
        with runtime.change() as change:
            queue = operations.create_queue(r".\private$\q", {})
            name = parse(r"DIRECT=OS:.\private$\q")
            sending = operations.open(name, QueueAccessType.SEND)
            for _ in range(5):
                operations.send(sending, MessageProperties(body=b"\x00\xd8" * 1_000_000 + b"needle"), None)
            peeking = operations.open(name, QueueAccessType.PEEK)
        change.wait()
        assert queue.message_count == 5
        seconds = itertools.count()
        monkeypatch.setattr(time, "perf_counter", lambda: next(seconds))
        conditions = ["body~needle", *(f"body~{number}" for number in range(MAX_BODY_CONDITIONS - 1))]
        search = finding.Search(runtime.engine, peeking, conditions, None, 100, 100)
        assert len(list(search.slices())) == 5
        assert search.scanned == 5
        found = finding.Search(runtime.engine, peeking, conditions[:1], None, 100, 100)
        # What is found has a limit of its own, MAX_FOUND_SIZE.
        assert len(list(found.slices())) == 2
        assert len(found.found) == 3
        # One for the field, and none for each condition.
        wanted = MessageFilter(conditions, runtime.engine.settings.accounts, 0.0)
        assert len(wanted._tests) == 1
    finally:
        runtime.close()
