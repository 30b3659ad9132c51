"""Requests of Lanner's own interface, as each caller makes them."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, Final
from uuid import uuid4

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from lanner.model.errors import MQ_OK, InvalidParameter, UnsupportedOperation
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.interface import RETURNS, Method
from lanner.security.certificates import generate_certificate
from lanner.services.interfaces.lanner import (
    LANNER,
    LANNER_ASK,
    LANNER_BEGIN_STREAM,
    LANNER_CALL,
    LANNER_CLOSE_SESSION,
    LANNER_LOG_ON,
    LANNER_OPEN_SESSION,
    LANNER_WHO,
)
from tests.adversity.matrix.callers import ACCOUNTS, Caller, Probe, Probes, World, outcome
from tests.adversity.matrix.rpc_probes import plainly
from tests.adversity.served import PASSWORD
from tests.statuses import MQ_ERROR_ACCESS_DENIED


def name_of(queue: str) -> str:
    return rf"DIRECT=OS:.\private$\{queue}"


async def ask(caller: Caller, **request: object) -> int:
    return await caller.status(LANNER, LANNER_ASK, request=json.dumps(request))


async def close_session(caller: Caller) -> str:
    whose = caller.owner if caller.takes_anothers else caller
    opened = await whose.results(LANNER, LANNER_OPEN_SESSION)
    return outcome(await caller.status(LANNER, LANNER_CLOSE_SESSION, session=opened["session"]))


async def anothers_session(caller: Caller) -> str:
    """A request on a session: its own, or the owner's."""
    status, _ = await caller.request(await caller.session(), {"request": "exists", "name": name_of("payroll")})
    return outcome(status)


async def anothers_stream(caller: Caller) -> str:
    """Begin a stream on a session: its own, or the owner's."""
    session = await caller.session()
    return outcome(await caller.status(LANNER, LANNER_BEGIN_STREAM, session=session, version=1))


async def log_on(caller: Caller) -> str:
    """Log on with the password of an account, on a connection of its own."""
    return await _logged_on(caller, PASSWORD)


async def log_on_as_another(caller: Caller) -> str:
    """Log on as the owner without the owner's password."""
    return await _logged_on(caller, "not the password")


async def _logged_on(caller: Caller, password: str) -> str:
    served = caller.world.served
    async with await connect_tcp(served.address, served.port("rpc"), credentials=caller.credentials) as client:
        bound = await client.bind(LANNER)
        request = {"user": ACCOUNTS["owner"], "password": password}
        results: dict[str, Any] = await bound.call(LANNER_LOG_ON, request=json.dumps(request))
        return outcome(results[RETURNS])


async def session_of(caller: Caller) -> bytes:
    """Return the session that a caller makes its requests on: its own, if it gets one."""
    return await caller.own_session() or await caller.owner.session()


def on_name(request: str, **arguments: object) -> Probe:
    """A request that names a queue of the owner's."""

    async def probe(caller: Caller) -> str:
        name = name_of(await caller.world.queue())
        status, _ = await caller.request(await session_of(caller), {"request": request, "name": name, **arguments})
        return outcome(status)

    return probe


def opening(access: str) -> Probe:
    async def probe(caller: Caller) -> str:
        name = name_of(await caller.world.queue())
        document = {"request": "open", "name": name, "queue": caller.world.number(), "access": access}
        return outcome((await caller.request(await session_of(caller), document))[0])

    return probe


async def create(caller: Caller) -> str:
    path = rf".\private$\{caller.world.new_name()}"
    document = {"request": "create queue", "path": path, "attributes": {}}
    return outcome((await caller.request(await session_of(caller), document))[0])


async def opened(caller: Caller, access: str) -> int:
    """Open a queue with the requested access, or else to send.

    Anonymous callers and other users use the number of a queue that the owner has open.
    """
    whose = caller.owner if caller.takes_anothers else caller
    session, number, name = await session_of(whose), caller.world.number(), name_of(await caller.world.queue())
    for mode in (access, "send"):
        document = {"request": "open", "name": name, "queue": number, "access": mode}
        status, answer = await whose.request(session, document)
        if status != MQ_ERROR_ACCESS_DENIED:
            break
    assert status == MQ_OK, (hex(status), answer)
    return number


def on_queue(request: str, access: str = "receive", **arguments: object) -> Probe:
    """A request that is about an open queue."""

    async def probe(caller: Caller) -> str:
        number = await opened(caller, access)
        document: dict[str, Any] = {"request": request, "queue": number}
        for key, value in arguments.items():
            # A number that the client chooses.
            document[key] = caller.world.number() if value is int else value
        return outcome((await caller.request(await session_of(caller), document, b"hi"))[0])

    return probe


async def close_cursor(caller: Caller) -> str:
    whose = caller.owner if caller.takes_anothers else caller
    number, cursor = await opened(caller, "receive"), caller.world.number()
    made, _ = await whose.request(
        await session_of(whose), {"request": "open cursor", "queue": number, "cursor": cursor}
    )
    assert made == MQ_OK, hex(made)
    document = {"request": "close cursor", "cursor": cursor}
    return outcome((await caller.request(await session_of(caller), document))[0])


async def end(caller: Caller) -> str:
    """Remove what was received; those who can receive nothing name the owner's read."""
    whose = caller if caller.column in ("owner", "administrator") else caller.owner
    number, read = await opened(whose, "receive"), caller.world.number()
    document = {"request": "receive", "queue": number, "read": read, "timeout": 0, "count": 1}
    status, _ = await whose.request(await session_of(whose), document)
    assert status == MQ_OK, hex(status)
    document = {"request": "end", "reads": [read], "remove": True}
    return outcome((await caller.request(await session_of(caller), document))[0])


async def move(caller: Caller) -> str:
    """Move a message to a subqueue.

    Callers that cannot open the queues for that have them open to send.
    """
    whose = caller.owner if caller.takes_anothers else caller
    session, name = await session_of(whose), name_of(await caller.world.queue())
    numbers = []
    for queue, access in ((name, "move"), (f"{name};later", "move"), (name, "peek")):
        numbers.append(caller.world.number())
        document = {"request": "open", "name": queue, "queue": numbers[-1], "access": access}
        if (await whose.request(session, document))[0] != MQ_OK:
            await whose.request(session, document | {"name": name, "access": "send"})
    _, answer = await whose.request(session, {"request": "peek", "queue": numbers[2], "timeout": 0})
    lookup_ids = [one["lookup_id"] for one in answer.get("messages", [])] or [1]
    document = {"request": "move", "queue": numbers[0], "target": numbers[1], "lookup_ids": lookup_ids}
    return outcome((await caller.request(await session_of(caller), document))[0])


async def pass_on(caller: Caller) -> str:
    """Send a message to the queue that it is in.

    Callers that cannot open the queue to receive have it open to send.
    """
    whose = caller.owner if caller.takes_anothers else caller
    session, source, target = await session_of(whose), await opened(caller, "receive"), await opened(caller, "send")
    _, answer = await whose.request(session, {"request": "peek", "queue": source, "timeout": 0})
    lookup_ids = [one["lookup_id"] for one in answer.get("messages", [])] or [1]
    document = {"request": "pass on", "queue": source, "target": target, "lookup_ids": lookup_ids}
    return outcome((await caller.request(await session_of(caller), document))[0])


async def begin(caller: Caller) -> str:
    document = {"request": "begin", "identifier": str(uuid4())}
    return outcome((await caller.request(await session_of(caller), document))[0])


def ending(request: str) -> Probe:
    async def probe(caller: Caller) -> str:
        whose = caller.owner if caller.takes_anothers else caller
        begun = {"request": "begin", "identifier": str(uuid4())}
        _, answer = await whose.request(await session_of(whose), begun)
        document = {"request": request, "transaction": answer["transaction"]}
        return outcome((await caller.request(await session_of(caller), document))[0])

    return probe


async def end_connection(caller: Caller) -> str:
    """End a connection that does not exist; only users who may end connections learn that."""
    status = await ask(caller, request="close session", kind="client", number=0)
    return outcome(status, InvalidParameter.status)


def asking(request: str, **arguments: object) -> Probe:
    async def probe(caller: Caller) -> str:
        return outcome(await ask(caller, request=request, **arguments))

    return probe


def asking_in_vain(request: str, **arguments: object) -> Probe:
    """Ask for what is not there; only permitted users learn that."""

    async def probe(caller: Caller) -> str:
        done = InvalidParameter.status, UnsupportedOperation.status
        return outcome(await ask(caller, request=request, **arguments), *done)

    return probe


def about_outgoing(request: str) -> Probe:
    """About messages that wait for a computer that is off."""

    async def probe(caller: Caller) -> str:
        queue = await caller.world.outgoing()
        if request == "resume":
            assert await ask(caller.world.callers["root"], request="pause", queue=queue) == MQ_OK
        return outcome(await ask(caller, request=request, queue=queue))

    return probe


def about_peer(request: str) -> Probe:
    """About a queue manager that is bound to an address."""

    async def probe(caller: Caller) -> str:
        bound = {"guid": str(uuid4()), "addresses": ["127.255.255.3"]}
        if request == "forget peer":
            assert await ask(caller.world.callers["root"], request="trust peer", **bound) == MQ_OK
        return outcome(await ask(caller, request=request, **bound))

    return probe


async def left_behind(whose: Caller) -> dict[str, object]:
    """Leave a branch of a coordinator elsewhere behind, prepared by a caller; return its name."""
    session = await session_of(whose)
    _, answer = await whose.request(session, {"request": "begin", "identifier": str(uuid4())})
    branch: dict[str, object] = {"coordinator": str(uuid4()), "identifier": str(uuid4()), "resource": "here"}
    document = {"request": "prepare", "transaction": answer["transaction"], **branch}
    status, _ = await whose.request(session, document)
    assert status == MQ_OK, hex(status)
    return branch


async def prepare(caller: Caller) -> str:
    """Prepare a transaction: its own, or one of the owner's session."""
    whose = caller.owner if caller.takes_anothers else caller
    _, answer = await whose.request(await session_of(whose), {"request": "begin", "identifier": str(uuid4())})
    branch = {"coordinator": str(uuid4()), "identifier": str(uuid4()), "resource": "here"}
    document = {"request": "prepare", "transaction": answer["transaction"], **branch}
    return outcome((await caller.request(await session_of(caller), document))[0])


def on_branch(*, is_commit: bool) -> Probe:
    async def probe(caller: Caller) -> str:
        whose = caller.owner if caller.takes_anothers or caller.column == "administrator" else caller
        document = {"request": "end branch", "commit": is_commit, **await left_behind(whose)}
        return outcome((await caller.request(await session_of(caller), document))[0])

    return probe


def on_distributed(request: str, **arguments: object) -> Probe:
    """A request about a distributed transaction that its coordinator here knows."""

    async def probe(caller: Caller) -> str:
        whose = caller.owner if caller.takes_anothers else caller
        identifier = str(uuid4())
        begun = {"request": "begin distributed", "identifier": identifier}
        status, _ = await whose.request(await session_of(whose), begun)
        assert status == MQ_OK, hex(status)
        document = {"request": request, "identifier": identifier, "transactions": [identifier], **arguments}
        return outcome((await caller.request(await session_of(caller), document))[0])

    return probe


async def begin_distributed(caller: Caller) -> str:
    document = {"request": "begin distributed", "identifier": str(uuid4())}
    return outcome((await caller.request(await session_of(caller), document))[0])


def about_coordinator(request: str, **arguments: object) -> Probe:
    async def probe(caller: Caller) -> str:
        return outcome((await caller.request(await session_of(caller), {"request": request, **arguments}))[0])

    return probe


def about_transaction(request: str) -> Probe:
    """About a transaction that is in doubt."""

    async def probe(caller: Caller) -> str:
        branch = await left_behind(caller.owner)
        return outcome(await ask(caller, request=request, transaction=branch["identifier"]))

    return probe


async def about_events(caller: Caller) -> str:
    """Ask for events. There is no log by default; only permitted users learn that."""
    return outcome(await ask(caller, request="events"), UnsupportedOperation.status)


def about_user(request: str, **arguments: object) -> Probe:
    """Ask about an account that does not exist."""

    async def probe(caller: Caller) -> str:
        name = f"probe{caller.world.number()}"
        if request != "add user":
            await ask(caller.world.callers["root"], request="add user", name=name, password=PASSWORD)
        return outcome(await ask(caller, request=request, name=name, **arguments))

    return probe


async def history_of_queue(caller: Caller) -> str:
    """How full a queue of the owner's was."""
    name = rf".\private$\{await caller.world.queue()}"
    return outcome(await ask(caller, request="history", queue=name))


async def revoke_token(caller: Caller) -> str:
    """End a token: its own, or the owner's."""
    whose = caller.owner if caller.takes_anothers else caller
    request = json.dumps({"request": "create token", "scope": ["read"]})
    made = json.loads((await whose.results(LANNER, LANNER_ASK, request=request))["answer"])
    return outcome(await ask(caller, request="revoke token", id=made["id"]))


async def requests(world: World, method: Method) -> list[str]:
    """Return the requests of a method, from its error for an unknown request."""
    root, unknown = world.callers["root"], {"request": "what is there"}
    if method is LANNER_ASK:
        text = (await root.results(LANNER, LANNER_ASK, request=json.dumps(unknown)))["answer"]
    else:
        _, answer = await root.request(await root.session(), unknown)
        text = answer["error"]
    return str(text).partition(": one of ")[2].split(", ")


def _certificate() -> str:
    made = generate_certificate("olga", dt.datetime.now(dt.UTC))
    return x509.load_der_x509_certificate(made.certificate).public_bytes(Encoding.PEM).decode()


async def take_over(caller: Caller) -> str:
    """Make itself the owner of a queue."""
    name, who = name_of(await caller.world.queue()), ACCOUNTS.get(caller.column, ACCOUNTS["user"])
    document = {"request": "change access", "name": name, "change": {"verb": "owner", "who": who}}
    return outcome((await caller.request(await session_of(caller), document))[0])


LANNER_PROBES: Final[Probes] = {
    (LANNER_WHO.name, ""): plainly(LANNER, LANNER_WHO),
    (LANNER_ASK.name, ""): asking("status"),
    (LANNER_OPEN_SESSION.name, ""): plainly(LANNER, LANNER_OPEN_SESSION),
    (LANNER_CLOSE_SESSION.name, ""): close_session,
    (LANNER_CALL.name, ""): anothers_session,
    (LANNER_BEGIN_STREAM.name, ""): anothers_stream,
    (LANNER_LOG_ON.name, ""): log_on,
    (LANNER_LOG_ON.name, "as another"): log_on_as_another,
}
ASK_PROBES: Final[Probes] = {
    ("status", ""): asking("status"),
    ("queues", ""): asking("queues"),
    ("outgoing", ""): asking("outgoing"),
    ("peer", ""): asking("peer", name="OMEGA", addresses=["127.255.255.2"]),
    ("peers", ""): asking("peers"),
    ("sessions", ""): asking("sessions"),
    ("close session", ""): end_connection,
    ("take offline", ""): asking("take offline"),
    ("bring online", ""): asking("bring online"),
    ("trust peer", ""): about_peer("trust peer"),
    ("forget peer", ""): about_peer("forget peer"),
    ("directory", ""): asking("directory"),
    ("provision", ""): asking("provision", enterprise={"sites": ["HQ"]}),
    ("remove from directory", ""): asking("remove from directory", kind="site", names=["HQ"]),
    ("register certificate", ""): asking("register certificate", certificate=_certificate()),
    ("pause", ""): about_outgoing("pause"),
    ("resume", ""): about_outgoing("resume"),
    ("resend", ""): about_outgoing("resend"),
    ("checkpoint", ""): asking("checkpoint"),
    ("examine", ""): asking("examine", where="--data data", files=True),
    ("transactions", ""): asking("transactions"),
    ("commit transaction", ""): about_transaction("commit transaction"),
    ("abort transaction", ""): about_transaction("abort transaction"),
    ("events", ""): about_events,
    ("metrics", ""): asking("metrics"),
    ("settings", ""): asking("settings"),
    ("oldest message", ""): asking("oldest message"),
    ("history", ""): asking("history"),
    ("history", "of a queue"): history_of_queue,
    ("certificates", ""): asking("certificates"),
    # Permitted users are told that there is none.
    ("remove certificate", ""): asking_in_vain("remove certificate", sha256="00" * 32),
    ("reports", ""): asking_in_vain("reports"),
    ("report", ""): asking_in_vain("report", name="none.html"),
    ("users", ""): asking("users"),
    ("add user", ""): about_user("add user", password=PASSWORD),
    ("set user", ""): about_user("set user", role="administrator"),
    ("remove user", ""): about_user("remove user"),
    ("who am i", ""): asking("who am i"),
    ("overview", ""): asking("overview"),
    ("queue page", ""): asking("queue page"),
    ("ticket", ""): asking("ticket"),
    ("create token", ""): asking("create token", scope=["read"]),
    ("create token", "of another"): asking("create token", scope=["read"], user=ACCOUNTS["administrator"]),
    ("tokens", ""): asking("tokens"),
    ("revoke token", ""): revoke_token,
}
SESSION_PROBES: Final[Probes] = {
    ("create queue", ""): create,
    ("delete queue", ""): on_name("delete queue"),
    ("attributes", ""): on_name("attributes"),
    ("set attributes", ""): on_name("set attributes", attributes={"label": "new"}),
    ("access", ""): on_name("access"),
    ("change access", ""): on_name("change access", change={"verb": "grant", "who": "Everyone", "rights": ["full"]}),
    ("change access", "to own it"): take_over,
    ("exists", ""): on_name("exists"),
    ("is transactional", ""): on_name("is transactional"),
    ("count", ""): on_name("count"),
    ("subqueues", ""): on_name("subqueues"),
    ("open", "to send"): opening("send"),
    ("open", "to receive"): opening("receive"),
    ("open", "to peek"): opening("peek"),
    ("open", "to move"): opening("move"),
    ("close", ""): on_queue("close"),
    ("purge", ""): on_queue("purge"),
    ("open cursor", ""): on_queue("open cursor", cursor=int),
    ("close cursor", ""): close_cursor,
    ("send", ""): on_queue("send", "send", messages=[{"size": 2}]),
    ("receive", ""): on_queue("receive", read=int, timeout=0, count=1),
    ("look up", ""): on_queue("look up", read=int, lookup_id=0, where="first"),
    ("peek", ""): on_queue("peek", timeout=0),
    ("end", ""): end,
    ("move", ""): move,
    ("find", ""): on_queue("find", "peek", conditions=[], limit=1, scan=1),
    ("pass on", ""): pass_on,
    ("delete", ""): on_queue("delete", lookup_ids=[]),
    ("begin", ""): begin,
    ("commit", ""): ending("commit"),
    ("abort", ""): ending("abort"),
    ("coordinator", ""): about_coordinator("coordinator", resource="ledger"),
    ("outcomes", ""): about_coordinator("outcomes", transactions=[str(uuid4())]),
    ("begin distributed", ""): begin_distributed,
    ("decide", ""): on_distributed("decide", resources=["ledger"]),
    ("end distributed", ""): on_distributed("end distributed", resources=[]),
    ("prepare", ""): prepare,
    ("branches", ""): about_coordinator("branches", coordinator=str(uuid4()), resource="ledger"),
    ("end branch", "to commit"): on_branch(is_commit=True),
    ("end branch", "to abort"): on_branch(is_commit=False),
}
