"""Attacks on the HTTP API and the console.

The attackers are strangers, users, and messages that an administrator looks at.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import Final

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from starlette.responses import Response, StreamingResponse

import lanner
from lanner.http import api
from lanner.http.bodies import MAX_BODY, MAX_OF_STRANGER
from lanner.http.console import message_bodies
from lanner.http.routes import AT_ONCE, MAX_VALUES, Gates, SessionRoute
from lanner.http.sessions import COOKIE, MAX_SESSIONS_OF_USER
from lanner.security.roles import Role
from lanner.security.users import USER_FILE, UserFile
from tests.adversity.attacks.victim import ADMINISTRATOR, USER, Victim, victim

# More than a busy machine needs for an answer, and less than a request may take to come.
PATIENCE: Final = 50.0  # seconds
_ALICE: Final = (ADMINISTRATOR.user, ADMINISTRATOR.password)
_JSON: Final = "Content-Type: application/json\r\n"
_EMPTY: Final = b"[" + b"{}," * ((MAX_BODY - 100) // 3) + b"{}]"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with victim(tmp_path_factory.mktemp("http")) as place:
        yield place


def _client(place: Victim, user: tuple[str, str] | None = None) -> httpx.Client:
    return httpx.Client(base_url=place.listeners["http"], auth=user, timeout=PATIENCE, trust_env=False)


def _status(place: Victim, said: bytes) -> int:
    """Say a part of a request; return the status of what is answered to it."""
    with socket.create_connection((place.address, place.port("http")), PATIENCE) as connection:
        connection.sendall(said)
        answer = connection.recv(1 << 16)
    return int(answer.split(b" ")[1])


def _head(place: Victim, path: str, headers: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: {place.address}\r\n{headers}\r\n".encode()


# Memory
# --------------------------------------------------------------------------------------------------


def test_strangers_are_not_listened_to_for_long(place: Victim) -> None:
    """A large body is rejected before it has arrived, because its sender has not logged on."""
    announced = _head(place, "/api/v1/queues", f"{_JSON}Content-Length: {MAX_OF_STRANGER + 1}\r\n")
    assert _status(place, announced) == HTTPStatus.UNAUTHORIZED
    begun = _head(place, "/api/v1/session", f"{_JSON}Transfer-Encoding: chunked\r\n")
    chunk = b"x" * (MAX_OF_STRANGER + 1)
    assert _status(place, begun + b"%x\r\n%b\r\n" % (len(chunk), chunk)) == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def test_wrong_passwords_make_no_room_for_bodies(place: Victim) -> None:
    with _client(place, ("nobody", "wrong")) as client:
        assert client.post("/api/v1/queues", content=_EMPTY).status_code == HTTPStatus.UNAUTHORIZED


def test_a_document_of_many_small_things_is_not_read(place: Victim) -> None:
    """Three octets of it become seventy of memory."""
    with _client(place, (USER.user, USER.password)) as client:
        answer = client.post("/api/v1/queues", content=_EMPTY, headers={"Content-Type": "application/json"})
        assert answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE, answer.text
        # A large message has its place.
        large = json.dumps({"body": "1," * 1_500_000})
        headers = {"Content-Type": "application/json"}
        sent = client.post("/api/v1/queues/private$%5Cnone/messages", content=large, headers=headers)
        assert sent.status_code == HTTPStatus.NOT_FOUND, sent.text


def test_a_document_of_many_wrong_values_is_not_described(place: Victim) -> None:
    """Two megabytes became an answer of 130, and more than a gigabyte of memory on the way."""
    wrong: list[dict[str, object]] = [
        {"target": "x", "lookup_ids": [1] * (MAX_VALUES + 1)},
        {"target": "x", **{f"{number:x}": 1 for number in range(MAX_VALUES)}},
        {"target": "x", "filter": [[[1] * (MAX_VALUES // 2)], [[1] * (MAX_VALUES // 2)]]},
    ]
    with _client(place, (USER.user, USER.password)) as client:
        for document in wrong:
            answer = client.post("/api/v1/queues/private$%5Cnone/messages/move", json=document)
            assert answer.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE, answer.text[:500]
        few = client.post("/api/v1/queues/private$%5Cnone/messages/move", json={"target": "x", "lookup_ids": [1]})
        assert few.json()["errors"] == [{"where": "body.lookup_ids.0", "what": "Input should be a valid string"}]


def test_all_documents_have_a_limited_number_of_values() -> None:
    """Except the definitions, which are for administrators."""
    modules = [one for one in vars(api).values() if isinstance(one, ModuleType) and hasattr(one, "router")]
    found = [one for module in modules for one in module.router.routes if isinstance(one, APIRoute)]
    routes = [one for one in found if one.body_field is not None]
    assert len(routes) > 10
    unlimited = {one.path for one in routes if getattr(one, "max_values", None) != MAX_VALUES}
    assert unlimited == {"/definitions"}


def test_a_body_is_taken_apart_as_far_as_a_page_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be one line of a million words."""
    taken = 0
    tokens = message_bodies._json_tokens

    def counted(text: str) -> Iterator[tuple[str, str, str]]:
        nonlocal taken
        for token in tokens(text):
            taken += 1
            yield token

    monkeypatch.setattr(message_bodies, "_json_tokens", counted)
    shown = message_bodies.view_body(b"[" + b"1 " * 500_000, 0, "json", whole=True)
    assert "longer than a page can show" in shown.lines[-1][0][1]
    assert taken <= message_bodies._MAX_PIECES + 1
    shown = message_bodies.view_body(b"<x " + b"a='' " * 200_000 + b">", 0, "xml", whole=True)
    assert "longer than a page can show" in shown.lines[-1][0][1]
    assert len(message_bodies._tag("<x " + "a='' " * 200_000)) <= 4 * message_bodies._MAX_PIECES + 1


def test_answers_that_are_not_read_do_not_fill_the_memory(place: Victim) -> None:
    """Of 40 pages of 18 MB all were kept for as long as their user did not read them."""
    with lanner.connect(data=place.data) as manager:
        manager.create_queue("long", access={USER.user: ["send", "peek"]})
    body = {"body": base64.b64encode(b'""' * 1_500_000).decode(), "body_encoding": "base64"}
    with _client(place, (USER.user, USER.password)) as bob, ExitStack() as stack:
        known = bob.post("/api/v1/session", json={"user": USER.user, "password": USER.password}).json()
        csrf = {"X-CSRF-Token": known["csrf_token"]}
        sent = bob.post("/api/v1/queues/private$%5Clong/messages", json=body, headers=csrf)
        assert sent.status_code == HTTPStatus.CREATED, sent.text
        [found] = bob.get("/api/v1/queues/private$%5Clong/messages").json()["messages"]
        path = f"/queue?name=private$%5Clong&message={found['lookup_id']}&whole=1&form=text"
        head = f"GET {path} HTTP/1.1\r\nHost: {place.address}\r\nCookie: {COOKIE}={bob.cookies[COOKIE]}\r\n\r\n"
        waiting = []
        for _ in range(12):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((place.address, place.port("http")))
            connection.sendall(head.encode())
            waiting.append(connection)
        for connection in waiting:
            connection.settimeout(PATIENCE)
            assert connection.recv(1, socket.MSG_PEEK) == b"H"
        # Now all have been answered, and those that are read first have waited for longest.
        complete = [_is_complete(connection) for connection in waiting]
        assert 1 <= complete.count(True) < 6


def _is_complete(connection: socket.socket) -> bool:
    answer = b""
    with suppress(ConnectionError):
        while more := connection.recv(1 << 20):
            answer += more
            if answer.endswith((b"</html>\n", b"</html>")):
                return True
    return False


# Connections and sessions
# --------------------------------------------------------------------------------------------------

_FEW: Final = "[http]\nmax_connections = 16\nmax_connections_per_peer = 8\n"


@pytest.mark.parametrize("origins", [1, 4])
@pytest.mark.parametrize("headers", ["", f"{_JSON}Content-Length: 100\r\n\r\n{{"])
def test_strangers_do_not_hold_all_connections(tmp_path: Path, origins: int, headers: str) -> None:
    """Neither with the beginnings of requests nor with bodies that do not come to their end."""
    with victim(tmp_path, _FEW) as place, ExitStack() as stack:
        head = f"POST /api/v1/session HTTP/1.1\r\nHost: {place.address}\r\n{headers}".encode()
        for number in range(20):
            source = (f"127.0.55.{number % origins}", 0)
            connection = socket.create_connection((place.address, place.port("http")), PATIENCE, source)
            stack.enter_context(connection).sendall(head)
        for origin in range(origins + 1):
            transport = httpx.HTTPTransport(local_address=f"127.0.55.{origin}")
            base = place.listeners["http"]
            with httpx.Client(base_url=base, transport=transport, auth=_ALICE, timeout=PATIENCE) as alice:
                for _ in range(3):
                    assert alice.get("/api/v1/whoami").json()["user"] == ADMINISTRATOR.user


def test_one_account_does_not_hold_all_connections(tmp_path: Path) -> None:
    """All users of a computer have the address of this one."""
    with victim(tmp_path, _FEW) as place, ExitStack() as stack:
        bob = stack.enter_context(_client(place))
        assert bob.post("/api/v1/session", json={"user": USER.user, "password": USER.password}).is_success
        head = f"GET /live HTTP/1.1\r\nHost: {place.address}\r\nCookie: {COOKIE}={bob.cookies[COOKIE]}\r\n\r\n"
        answers = []
        for _ in range(8):
            connection = socket.create_connection((place.address, place.port("http")), PATIENCE)
            stack.enter_context(connection).sendall(head.encode())
            answers.append(connection.recv(1 << 16).split(b" ")[1])
        assert answers.count(b"200") == 6
        assert set(answers) == {b"200", b"503"}
        for _ in range(3):
            with _client(place, _ALICE) as alice:
                assert alice.get("/api/v1/whoami").json()["user"] == ADMINISTRATOR.user


def test_many_requests_of_one_user_wait_for_each_other() -> None:
    """Ninety pages at once kept the console from all other users for minutes."""
    gates, go_on, begun = Gates(), asyncio.Event(), list[str]()
    app = FastAPI()
    app.router.route_class = SessionRoute

    @app.get("/{user}/{how}")
    async def answer(request: Request, user: str, how: str) -> Response:
        await gates.enter(request, user)
        begun.append(user)
        if how == "stream":
            return StreamingResponse(_endless(go_on))
        await go_on.wait()
        return Response(status_code=int(how))

    async def main() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            # Streams do not count while they last.
            streams = [asyncio.create_task(client.get("/mallory/stream")) for _ in range(2 * AT_ONCE)]
            while len(begun) < len(streams):  # noqa: ASYNC110 (of the tasks)
                await asyncio.sleep(0)
            begun.clear()
            pages = [asyncio.create_task(client.get(f"/mallory/{200 + place % 2 * 300}")) for place in range(40)]
            for _ in range(1000):
                await asyncio.sleep(0)
            assert len(begun) == AT_ONCE
            another = asyncio.create_task(client.get("/alice/200"))
            while "alice" not in begun:  # noqa: ASYNC110
                await asyncio.sleep(0)
            pages[-1].cancel()
            go_on.set()
            assert (await another).status_code == HTTPStatus.OK
            assert len(await asyncio.gather(*pages[:-1], *streams)) == 39 + len(streams)
        assert not gates._users

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


async def _endless(end: asyncio.Event) -> AsyncIterator[bytes]:
    await end.wait()
    yield b"x"


def test_one_account_does_not_hold_all_sessions(place: Victim) -> None:
    with lanner.connect(place.address, user=USER.user, password=USER.password) as manager, _client(place) as bob:
        first = None
        for _ in range(MAX_SESSIONS_OF_USER + 1):
            bob.cookies.clear()
            assert bob.get(f"/login?ticket={manager.log_on_ticket()}").is_success
            first = first or bob.cookies[COOKIE]
        assert bob.get("/api/v1/whoami").json()["user"] == USER.user
        bob.cookies.clear()
        assert bob.get("/api/v1/whoami", headers={"Cookie": f"{COOKIE}={first}"}).status_code == HTTPStatus.UNAUTHORIZED
    with _client(place, _ALICE) as alice:
        assert alice.get("/api/v1/whoami").json()["user"] == ADMINISTRATOR.user


def test_a_removed_user_and_a_stolen_password_are_logged_off(tmp_path: Path) -> None:
    """Both by HTTP and by RPC, however the account was changed."""
    with victim(tmp_path) as place, _client(place, _ALICE) as alice:
        users = UserFile(place.data / USER_FILE)
        changes: list[Callable[[], object]] = [
            lambda: users.set_password(USER.user, "another word"),
            lambda: users.remove(USER.user),
        ]
        for password, change in zip((USER.password, "another word"), changes, strict=True):
            with _client(place) as bob, lanner.connect(place.address, user=USER.user, password=password) as manager:
                assert bob.post("/api/v1/session", json={"user": USER.user, "password": password}).is_success
                assert bob.get("/api/v1/whoami").is_success
                assert manager.who_am_i()["user"] == USER.user
                change()
                _until(lambda bob=bob: bob.get("/api/v1/whoami").status_code == HTTPStatus.UNAUTHORIZED)  # type: ignore[misc]
                with pytest.raises(lanner.errors.LannerError):
                    manager.who_am_i()
        assert alice.get("/api/v1/whoami").json()["user"] == ADMINISTRATOR.user


def test_definitions_of_others_than_administrators_are_not_checked(place: Victim) -> None:
    """A document of 600,000 users took two seconds to check, for a user who may import none."""
    with _client(place, (USER.user, USER.password)) as bob, _client(place, _ALICE) as alice:
        wrong = {"queues": [{"what": "is this"}]}
        assert bob.post("/api/v1/definitions", json=wrong).status_code == HTTPStatus.FORBIDDEN
        assert alice.post("/api/v1/definitions", json=wrong).status_code == HTTPStatus.BAD_REQUEST
        assert alice.post("/api/v1/definitions", json={}).json()["refused"] == []


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMINISTRATOR])
def test_a_user_who_has_lost_a_role_is_logged_off(tmp_path: Path, role: Role) -> None:
    """A connection had the rights of the role for as long as it lasted."""
    with victim(tmp_path) as place, lanner.connect(data=place.data) as root:
        root.create_queue("secret").send("x")
        root.set_user(USER.user, role=role)

        def can_peek(manager: lanner.QueueManager) -> bool | None:
            try:
                return bool(manager.open("secret").peek(timeout=0))
            except lanner.errors.AccessDenied:
                return False
            except lanner.errors.LannerError:
                return None

        his = USER.user, USER.password
        with _client(place, his) as bob, lanner.connect(place.address, user=his[0], password=his[1]) as manager:
            assert bob.get("/api/v1/queues/private$%5Csecret/messages").is_success
            assert can_peek(manager)
            root.set_user(USER.user, role=Role.USER)
            _until(lambda: can_peek(manager) is False)
            _until(lambda: bob.get("/api/v1/queues/private$%5Csecret/messages").status_code == HTTPStatus.FORBIDDEN)


# The log
# --------------------------------------------------------------------------------------------------


def test_nonsense_does_not_fill_the_log(place: Victim) -> None:
    before = len(place.log)
    with _client(place) as client:
        for _ in range(100):
            assert client.get("/login?next=http://%5b").status_code == HTTPStatus.OK
            refused = client.post(
                "/api/v1/session", json={"user": "a", "password": "b"}, headers={"Origin": "http://["}
            )
            assert refused.status_code == HTTPStatus.FORBIDDEN
    for _ in range(100):
        assert _status(place, b"\x16\x03\x01 no request\r\n\r\n") == HTTPStatus.BAD_REQUEST
    assert len(place.log) - before < 20


# Silence
# --------------------------------------------------------------------------------------------------


def test_wrong_links_and_tokens_keep_nobody_out(tmp_path: Path) -> None:
    with victim(tmp_path) as place, ExitStack() as stack:
        with lanner.connect(data=place.data) as manager:
            made = manager.create_token(["read"], user=ADMINISTRATOR.user)
        for number in range(12):
            # The fourth waits for a second, the fifth for two ..., and who would have to wait for
            # long is not looked at.
            connection = stack.enter_context(socket.create_connection((place.address, place.port("http")), PATIENCE))
            connection.sendall(f"GET /login?ticket=wrong{number} HTTP/1.1\r\nHost: {place.address}\r\n\r\n".encode())
        _until(lambda: any("refused without checking" in line for line in place.log))
        with lanner.connect(data=place.data) as manager:
            ticket = manager.log_on_ticket()
        with _client(place) as stranger:
            assert stranger.get(f"/login?ticket={ticket}").status_code == HTTPStatus.OK
            assert COOKIE in stranger.cookies
            right = {"Authorization": f"Bearer {made['token']}"}
            assert stranger.get("/api/v1/whoami", headers=right).json()["user"] == ADMINISTRATOR.user


def _until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


# What a stranger can put into a label: half of a surrogate pair, an override of the direction, and
# a control character for terminals.
_EVIL: Final = "a\ud800b\u202egnp.exe\x1b[2J"


def test_no_label_and_no_name_spoils_what_an_administrator_looks_at(place: Victim) -> None:
    # In ASCII, as `json.dumps` writes it.
    typed = {"Content-Type": "application/json"}
    there = "DIRECT=OS:evil\u202egnp.exe\\private$\\x"
    with lanner.connect(data=place.data) as manager, _client(place, (USER.user, USER.password)) as bob:
        manager.create_queue("spoilt", access={USER.user: "full"})
        messages = "/api/v1/queues/private$%5Cspoilt/messages"
        sent = bob.post(messages, content=json.dumps({"body": "x", "label": _EVIL}), headers=typed)
        assert sent.is_success, sent.text
        (message,) = bob.get(messages).json()["messages"]
        assert message["label"] == _EVIL
        assert "\u202e" not in bob.get(messages).text
        copied = bob.post(
            f"{messages}/{message['lookup_id']}/copy", content=json.dumps({"target": there}), headers=typed
        )
        assert copied.is_success, copied.text
        refused = bob.post(f"{messages}/1/copy", content=json.dumps({"target": _EVIL}), headers=typed)
        assert refused.status_code == HTTPStatus.BAD_REQUEST
        noted = bob.post("/api/v1/tokens", content=json.dumps({"scope": ["read"], "description": _EVIL}), headers=typed)
        assert noted.is_success, noted.text
    with _client(place, _ALICE) as alice:
        for path in (messages, "/api/v1/tokens", "/api/v1/outgoing", "/api/v1/status", "/api/v1/metrics"):
            assert alice.get(path).is_success, path
    with _client(place) as alice:
        assert alice.post("/login", data={"user": _ALICE[0], "password": _ALICE[1]}).status_code == HTTPStatus.SEE_OTHER
        name = "VICTIM%5Cprivate$%5Cspoilt"
        for path in ("/", f"/queue?name={name}", f"/queue/resend?name={name}&message={message['lookup_id']}",
                     "/outgoing", "/peers", "/users"):  # fmt: skip
            page = alice.get(path)
            assert page.is_success, path
            shown = re.sub(r'value="[^"]*"', "", page.text)
            assert not set("\u202e\x1b") & set(shown), path
        assert r"a\ud800b\u202egnp.exe\x1b[2J" in alice.get(f"/queue?name={name}").text


def test_a_token_of_a_user_does_not_spoil_the_list_of_the_administrator(place: Victim) -> None:
    with _client(place, (USER.user, USER.password)) as client:
        for lifetime in ("NaN", "Infinity", "1e300", "-1"):
            said = f'{{"scope": ["read"], "lifetime": {lifetime}}}'
            answer = client.post("/api/v1/tokens", content=said, headers={"Content-Type": "application/json"})
            assert answer.status_code in (HTTPStatus.BAD_REQUEST, HTTPStatus.INTERNAL_SERVER_ERROR)
    with lanner.connect(place.address, user=USER.user, password=USER.password) as manager:
        for seconds in (float("nan"), float("inf")):
            with pytest.raises(lanner.errors.InvalidParameter):
                manager.create_token(["read"], lifetime=seconds)
    with _client(place, (ADMINISTRATOR.user, ADMINISTRATOR.password)) as client:
        assert all(one["expires"] is None for one in client.get("/api/v1/tokens").json())
