"""Routes of the HTTP API, as each caller asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import httpx

from tests.adversity.matrix.callers import ACCOUNTS, Caller, Probe, Probes, World
from tests.adversity.matrix.table import Outcome
from tests.adversity.served import PASSWORD

_CLIENTS: Final[dict[tuple[int, str], httpx.Client]] = {}
_REFUSED: Final = {401, 403}


def client_of(caller: Caller) -> httpx.Client:
    """Return the connection of a caller; anonymous ones do not log on."""
    key = caller.world.served.process.pid, caller.column
    if key not in _CLIENTS:
        account = ACCOUNTS.get(caller.column)
        _CLIENTS[key] = httpx.Client(
            base_url=f"{caller.world.served.listeners['http']}/api/v1",
            auth=None if account is None else (account, PASSWORD),
            timeout=60.0,
            trust_env=False,
        )
    return _CLIENTS[key]


def close_clients() -> None:
    while _CLIENTS:
        _CLIENTS.popitem()[1].close()


def methods(world: World) -> list[str]:
    """Return the routes that the service says it has."""
    document = (
        client_of(world.callers["administrator"]).get(f"{world.served.listeners['http']}/api/openapi.json").json()
    )
    return [
        f"{method.upper()} {path.removeprefix('/api/v1')}"
        for path, found in document["paths"].items()
        for method in found
    ]


def _outcome(answer: httpx.Response, *done: int) -> str:
    if answer.status_code in _REFUSED:
        return Outcome.NO
    if answer.is_success or answer.status_code in done:
        return Outcome.YES
    return f"{answer.status_code} {answer.text[:200]}"


async def request(caller: Caller, method: str, path: str, **arguments: Any) -> httpx.Response:  # noqa: ANN401 (of httpx)
    return await asyncio.to_thread(client_of(caller).request, method, path, **arguments)


def plainly(method: str, path: str, *done: int, **arguments: Any) -> Probe:  # noqa: ANN401 (of httpx)
    async def probe(caller: Caller) -> str:
        return _outcome(await request(caller, method, path, **arguments), *done)

    return probe


def on_queue(method: str, suffix: str = "", *done: int, **arguments: Any) -> Probe:  # noqa: ANN401 (of httpx)
    """About a queue of the owner's, or one of its messages."""

    async def probe(caller: Caller) -> str:
        queue = await caller.world.queue()
        path = f"/queues/private$%5C{queue}"
        if "{lookup_id}" in suffix:
            found = await request(caller.owner, "GET", f"{path}/messages")
            path += suffix.format(lookup_id=found.json()["messages"][0]["lookup_id"])
        else:
            path += suffix
        if arguments.get("json", {}).get("target") == "":
            to = rf".\private$\{await caller.world.queue(has_messages=False)}"
            return _outcome(await request(caller, method, path, json={**arguments["json"], "target": to}), *done)
        return _outcome(await request(caller, method, path, **arguments), *done)

    return probe


def on_outgoing(verb: str) -> Probe:
    async def probe(caller: Caller) -> str:
        path = f"/outgoing/{quote(await caller.world.outgoing(), safe='')}"
        if verb == "resume":
            await request(caller.world.callers["administrator"], "POST", f"{path}/pause")
        answer = _outcome(await request(caller, "POST", f"{path}/{verb}"))
        if verb == "pause":
            await request(caller.world.callers["administrator"], "POST", f"{path}/resume")
        return answer

    return probe


def on_new_user(act: Callable[[Caller, str], Awaitable[httpx.Response]]) -> Probe:
    async def probe(caller: Caller) -> str:
        name = f"new{caller.world.number()}"
        administrator = caller.world.callers["administrator"]
        await request(administrator, "POST", "/users", json={"name": name, "password": PASSWORD})
        return _outcome(await act(caller, name))

    return probe


async def revoke(caller: Caller) -> str:
    """End a token: the caller's own, or the owner's."""
    whose = caller.owner if caller.takes_anothers else caller
    made = (await request(whose, "POST", "/tokens", json={"scope": ["read"]})).json()
    return _outcome(await request(caller, "DELETE", f"/tokens/{made['id']}"))


async def log_on(caller: Caller) -> str:
    """Begin a session with the caller's own password; the anonymous has none."""
    account = ACCOUNTS.get(caller.column)
    secret = {"user": account or ACCOUNTS["owner"], "password": "" if account is None else PASSWORD}
    answer = await request(caller, "POST", "/session", json=secret)
    client_of(caller).cookies.clear()
    return _outcome(answer)


async def define(caller: Caller) -> str:
    queue = {"name": rf".\private$\{caller.world.new_name()}"}
    answer = await request(caller, "POST", "/definitions", json={"queues": [queue]})
    assert not answer.is_success or answer.json()["refused"] == [], answer.text
    return _outcome(answer)


_QUEUE: Final = "/queues/{name}"
_MESSAGE: Final = "/messages/{lookup_id}"
HTTP_PROBES: Final[Probes] = {
    **{
        (f"GET {path}", ""): plainly("GET", path)
        for path in (
            *(
                "/overview",
                "/whoami",
                "/status",
                "/settings",
                "/metrics",
                "/history",
                "/queues",
                "/outgoing",
                "/sessions",
            ),
            *("/deadletters", "/peers", "/transactions", "/users", "/certificates", "/tokens", "/definitions"),
            *("/health/live", "/health/ready"),
        )
    },
    # There is no log of events by default; only permitted users learn that.
    ("GET /events", ""): plainly("GET", "/events", 501),
    ("GET /events/trace", ""): plainly("GET", "/events/trace", 501, params={"message": f"{uuid4()}\\1"}),
    ("POST /queues", ""): plainly("POST", "/queues", 409, json={"name": "private$\\by_http"}),
    (f"GET {_QUEUE}", ""): on_queue("GET"),
    (f"PATCH {_QUEUE}", ""): on_queue("PATCH", json={"label": "new"}),
    (f"DELETE {_QUEUE}", ""): on_queue("DELETE"),
    (f"GET {_QUEUE}/access", ""): on_queue("GET", "/access"),
    (f"POST {_QUEUE}/access", ""): on_queue(
        "POST", "/access", json={"verb": "grant", "who": "Everyone", "rights": ["full"]}
    ),
    (f"GET {_QUEUE}/messages", ""): on_queue("GET", "/messages"),
    (f"POST {_QUEUE}/messages", ""): on_queue("POST", "/messages", json={"body": "hi"}),
    (f"DELETE {_QUEUE}/messages", ""): on_queue("DELETE", "/messages"),
    (f"POST {_QUEUE}/messages/move", ""): on_queue("POST", "/messages/move", json={"target": "", "filter": []}),
    (f"POST {_QUEUE}/messages/copy", ""): on_queue("POST", "/messages/copy", json={"target": "", "filter": []}),
    (f"GET {_QUEUE}{_MESSAGE}", ""): on_queue("GET", _MESSAGE),
    (f"DELETE {_QUEUE}{_MESSAGE}", ""): on_queue("DELETE", _MESSAGE),
    (f"POST {_QUEUE}{_MESSAGE}/move", ""): on_queue("POST", f"{_MESSAGE}/move", json={"target": ""}),
    (f"POST {_QUEUE}{_MESSAGE}/copy", ""): on_queue("POST", f"{_MESSAGE}/copy", json={"target": ""}),
    (f"POST {_QUEUE}{_MESSAGE}/resend", ""): on_queue("POST", f"{_MESSAGE}/resend", json={"target": ""}),
    ("POST /outgoing/{name}/pause", ""): on_outgoing("pause"),
    ("POST /outgoing/{name}/resume", ""): on_outgoing("resume"),
    ("POST /outgoing/{name}/resend", ""): on_outgoing("resend"),
    ("DELETE /sessions/{kind}/{number}", ""): plainly("DELETE", "/sessions/client/0", 400),
    ("POST /deadletters/{lookup_id}/return", ""): plainly("POST", "/deadletters/1/return", 404),
    ("POST /peers/{guid}/trust", ""): plainly("POST", f"/peers/{uuid4()}/trust", json={"addresses": ["127.255.255.3"]}),
    ("DELETE /peers/{guid}", ""): plainly("DELETE", f"/peers/{uuid4()}", 400),
    ("POST /transactions/{transaction}/commit", ""): plainly("POST", f"/transactions/{uuid4()}/commit", 400),
    ("POST /transactions/{transaction}/abort", ""): plainly("POST", f"/transactions/{uuid4()}/abort", 400),
    ("POST /users", ""): on_new_user(
        lambda caller, name: request(caller, "POST", "/users", json={"name": f"{name}x", "password": PASSWORD})
    ),
    ("PATCH /users/{name}", ""): on_new_user(
        lambda caller, name: request(caller, "PATCH", f"/users/{name}", json={"role": "administrator"})
    ),
    ("DELETE /users/{name}", ""): on_new_user(lambda caller, name: request(caller, "DELETE", f"/users/{name}")),
    ("POST /certificates", ""): plainly("POST", "/certificates", 400, json={"certificate": "none"}),
    ("DELETE /certificates/{sha256}", ""): plainly("DELETE", f"/certificates/{'00' * 32}", 400),
    ("POST /tokens", ""): plainly("POST", "/tokens", json={"scope": ["read"]}),
    ("DELETE /tokens/{identifier}", ""): revoke,
    ("POST /definitions", ""): define,
    ("POST /session", ""): log_on,
    ("DELETE /session", ""): plainly("DELETE", "/session"),
}
