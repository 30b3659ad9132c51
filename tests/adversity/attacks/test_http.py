"""Attacks on the HTTP API and the console.

The attackers are strangers, users, and messages that an administrator looks at.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Final

import httpx
import pytest

import lanner
from lanner.http.bodies import MAX_BODY, MAX_OF_STRANGER
from lanner.http.sessions import COOKIE
from tests.adversity.attacks.victim import ADMINISTRATOR, USER, Victim, victim

# More than a busy machine needs for an answer, and less than a request may take to come.
PATIENCE: Final = 50.0  # seconds
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
        _until(lambda: any("refused without a look" in line for line in place.log))
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
        assert client.get("/api/v1/tokens").json() == []
