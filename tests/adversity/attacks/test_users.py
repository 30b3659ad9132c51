"""Users with an account and no rights.

Their requests must neither delay other callers nor evict other users' state.
"""

from __future__ import annotations

import asyncio
import fnmatch
import json
import threading
import uuid
from pathlib import Path
from typing import Any, Final

import pytest

from lanner.host.addresses import local_settings
from lanner.host.distributed import DistributedRequests
from lanner.host.fair_threads import FairThreads
from lanner.host.name_patterns import name_pattern
from lanner.host.runtime import Runtime
from lanner.model.enums import QueueAccessType
from lanner.model.errors import MQ_OK, AccessDenied, InvalidParameter
from lanner.model.live import Transaction
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.security import Credentials
from lanner.security.identity import ANONYMOUS, SYSTEM, Identity
from lanner.security.roles import Role
from lanner.security.scopes import READ, SEND
from lanner.security.tokens import MAX_NEW, TokenFile
from lanner.security.users import USER_FILE, UserFile
from lanner.services.interfaces.lanner import LANNER, LANNER_ASK
from lanner.services.log_on import MAX_TICKETS, Tickets
from lanner.services.sending import check_sender
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import parse
from lanner.wire.sid import Sid
from tests.adversity.attacks.victim import ADMINISTRATOR, USER, victim

ALICE: Final = Identity("alice", Sid.parse("S-1-5-21-1-2-3-1000"))
BOB: Final = Identity("bob", Sid.parse("S-1-5-21-1-2-3-1001"))


def test_requests_that_take_long_take_no_threads_of_others() -> None:
    go_on = threading.Event()

    async def main() -> None:
        slow = FairThreads()
        # More than there are threads.
        his = [asyncio.ensure_future(slow.run(BOB.sid, go_on.wait)) for _ in range(200)]
        await asyncio.sleep(0)
        assert await slow.run(ALICE.sid, lambda: "hers") == "hers"
        assert not any(one.done() for one in his)
        his[0].cancel()
        go_on.set()
        assert all(await asyncio.gather(*his[1:]))

    try:
        asyncio.run(main())
    finally:
        go_on.set()


def test_tickets_of_one_user_push_out_none_of_another() -> None:
    tickets = Tickets()
    hers = tickets.issue(ALICE)
    his = [tickets.issue(BOB) for _ in range(MAX_TICKETS + 1)]
    assert tickets.redeem(hers) is ALICE
    assert tickets.redeem(his[0]) is None
    assert tickets.redeem(his[-1]) is BOB


def test_tokens_that_are_made_and_revoked_do_not_fill_the_audit_log(tmp_path: Path) -> None:
    now = [1000.0]
    tokens = TokenFile(tmp_path / "tokens.json", lambda: now[0])
    for _ in range(MAX_NEW):
        tokens.revoke(tokens.create(BOB.sid, ["read"])[0].id)
        now[0] += 1
    with pytest.raises(InvalidParameter, match="in an hour"):
        tokens.create(BOB.sid, ["read"])
    tokens.create(ALICE.sid, ["read"])
    now[0] += 3600.5 - MAX_NEW
    tokens.create(BOB.sid, ["read"])
    with pytest.raises(InvalidParameter, match="in an hour"):
        tokens.create(BOB.sid, ["read"])


def test_the_audit_log_of_a_service_is_not_pushed_out_by_tokens(tmp_path: Path) -> None:
    with victim(tmp_path) as place:

        async def main() -> int:
            async with await connect_tcp(
                place.address, place.port(), credentials=USER, level=AuthLevel.PKT_PRIVACY
            ) as client:
                bound = await client.bind(LANNER)

                async def ask(**request: object) -> tuple[int, Any]:
                    answer: Any = await bound.call(LANNER_ASK, request=json.dumps(request))
                    return answer[RETURNS], answer["answer"]

                for made in range(2 * MAX_NEW):
                    status, answer = await ask(request="create token", scope=["read"])
                    if status != MQ_OK:
                        assert "in an hour" in answer
                        return made
                    assert (await ask(request="revoke token", id=json.loads(answer)["id"]))[0] == MQ_OK
            return 2 * MAX_NEW

        assert asyncio.run(main()) == MAX_NEW


def test_monitors_do_not_read_reports_which_have_messages(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "today.html").write_text("<p>a message</p>")
    with victim(tmp_path, f'[http]\nreports = "{folder}"') as place:

        async def asked(who: Credentials, request: str) -> int:
            async with await connect_tcp(
                place.address, place.port(), credentials=who, level=AuthLevel.PKT_PRIVACY
            ) as client:
                bound = await client.bind(LANNER)
                answer: Any = await bound.call(
                    LANNER_ASK, request=json.dumps({"request": request, "name": "today.html"})
                )
                status: int = answer[RETURNS]
                return status

        UserFile(place.data / USER_FILE).set_role(USER.user, Role.MONITOR)
        for request in ("reports", "report"):
            assert asyncio.run(asked(ADMINISTRATOR, request)) == MQ_OK
            assert asyncio.run(asked(USER, request)) == AccessDenied.status
        assert asyncio.run(asked(USER, "status")) == MQ_OK


def test_a_token_to_send_names_no_other_sender(tmp_path: Path) -> None:
    """Queues believe who a local program is. An administrator's token to send is not for that."""
    runtime = Runtime(tmp_path, local_settings("ALPHA"))
    root = Identity("root", Sid.parse("S-1-5-21-1-2-3-500"), is_administrator=True)
    with runtime.lock:
        engine = runtime.engine
        engine.create_queue(engine.set_queue_defaults(r".\private$\taken"))
        descriptor = engine.open_queue(parse(r"DIRECT=OS:.\private$\taken"), QueueAccessType.SEND)
        forged = MessageProperties(sender_identifier=BOB.sid.pack())
        check_sender(forged, descriptor, root)
        with pytest.raises(AccessDenied, match="another account"):
            check_sender(forged, descriptor, root.limited_to(frozenset({SEND})))
    runtime.close()


def test_a_token_to_read_decides_no_transaction(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, local_settings("ALPHA"))
    names: dict[str, Any] = {"identifier": str(uuid.uuid4()), "resource": "bank"}

    def ask(who: Identity, request: str, transaction: Transaction | None = None, **more: object) -> Any:  # noqa: ANN401
        with runtime.change() as change:
            answer = DistributedRequests(runtime.engine, who).answer({"request": request, **names, **more}, transaction)
        change.wait()
        return answer()

    names["coordinator"] = ask(BOB, "coordinator")["identifier"]
    ask(BOB, "begin distributed")
    with runtime.lock:
        branch = runtime.engine.create_transaction(uuid.uuid4())
    ask(BOB, "prepare", branch)
    reader, sender = (BOB.limited_to(frozenset({scope})) for scope in (READ, SEND))
    changes: list[tuple[str, dict[str, Any]]] = [
        ("decide", {"resources": ["bank"]}),
        ("end branch", {"commit": False}),
        ("end distributed", {"transactions": [names["identifier"]], "resources": []}),
        ("begin distributed", {"identifier": str(uuid.uuid4())}),
    ]
    for request, more in changes:
        with pytest.raises(AccessDenied, match="not for transactions"):
            ask(reader, request, **more)
    assert ask(reader, "branches")["transactions"] == [names["identifier"]]
    ask(sender, "decide", resources=["bank"])
    ask(sender, "end branch", commit=True)
    assert ask(reader, "branches")["transactions"] == []
    runtime.close()


def test_patterns_for_names_are_short_and_not_kept() -> None:
    """A pattern of a megabyte took 65 MiB, for as long as the service ran."""
    kept = fnmatch._compile_pattern.cache_info()  # type: ignore[attr-defined]
    fits = name_pattern("*ord[ae]rs?" + "x*" * 120)
    assert fits("my orders1" + "x" * 120)
    assert not fits("my orders" + "x" * 120)
    assert fnmatch._compile_pattern.cache_info() == kept  # type: ignore[attr-defined]
    for text in ("a" * 257, "[ab]" * 65):
        with pytest.raises(InvalidParameter, match="at most 256"):
            name_pattern(text)


def test_who_has_lost_a_group_or_a_role_is_noticed(tmp_path: Path) -> None:
    users = UserFile(tmp_path / USER_FILE)
    users.add("bob", "battery staple")
    users.add_group("clerks", ["bob"])
    bob = users.identity("bob")
    assert bob is not None
    group, carl = Sid.parse("S-1-5-21-9-9-9-513"), Sid.parse("S-1-5-21-9-9-9-1104")
    users.set_role(str(carl), Role.MONITOR)
    users.add_group("guests of the domain", [str(group)])
    foreign = users.domain_identity("MQ\\carl", carl, [group])
    assert foreign is not None
    everybody = bob, foreign, bob.limited_to(frozenset({READ})), SYSTEM, ANONYMOUS
    assert not any(map(users.has_lost_groups, everybody))
    # To gain something is no reason.
    users.set_role("bob", Role.OPERATOR)
    assert not any(map(users.has_lost_groups, everybody))
    users.remove_group("guests of the domain")
    assert [users.has_lost_groups(one) for one in everybody] == [False, True, False, False, False]
    users.remove_group("clerks")
    assert [users.has_lost_groups(one) for one in everybody] == [True, True, True, False, False]
    operator = users.identity("bob")
    assert operator is not None
    users.set_role("bob", Role.USER)
    users.set_role(str(carl), Role.USER)
    assert users.has_lost_groups(operator)
    assert users.has_lost_groups(foreign)
