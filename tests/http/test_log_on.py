"""Logging on over HTTP.

Covered: what a connection of the HTTP process can do, which user it becomes, and the cost of wrong
secrets.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from lanner.model.errors import MQ_OK, AccessDenied
from lanner.rpc.async_client import RpcClient, connect_socket, connect_tcp
from lanner.rpc.faults import InterfaceRefused, RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.security import Credentials
from lanner.rpc.server import RpcServer
from lanner.security.identity import SYSTEM
from lanner.services.interfaces.lanner import LANNER, LANNER_ASK, LANNER_LOG_ON, LANNER_OPEN_SESSION, LANNER_WHO
from lanner.services.interfaces.mqmr import QMMGMT
from tests.client.peers import free_address
from tests.client.served import ServedManager
from tests.http.service import HttpService

T = TypeVar("T")
LANNER_COMMAND = Path(sys.executable).with_name("lanner")


class Pairs:
    """A queue manager in this process, and ends of socket pairs as the HTTP process has them."""

    def __init__(self, folder: Path) -> None:
        self.served = ServedManager(folder / "data", free_address())
        self.served.runtime.users.add("alice", "secret", administrator=True)
        self.served.runtime.users.add("bob", "word")

        async def door() -> Callable[[socket.socket], None]:
            return self.served.listener.door_for_log_ons("http")

        self._take = self.served.run(door())

    def socket(self) -> socket.socket:
        ours, its = socket.socketpair()

        async def take() -> None:
            self._take(its)

        self.served.run(take())
        return ours

    def run(self, work: Callable[[RpcClient], Awaitable[T]]) -> T:
        async def main() -> T:
            async with await connect_socket(self.socket(), "daemon") as client:
                return await work(client)

        return asyncio.run(main())


@pytest.fixture
def pairs(tmp_path: Path) -> Iterator[Pairs]:
    made = Pairs(tmp_path)
    yield made
    made.served.close()


async def _log_on(client: RpcClient, **request: str) -> dict[str, Any]:
    bound = await client.bind(LANNER)
    return await bound.call(LANNER_LOG_ON, request=json.dumps(request))


def test_before_a_log_on_nothing_else_is_served(pairs: Pairs) -> None:
    async def work(client: RpcClient) -> None:
        bound = await client.bind(LANNER)
        for method, arguments in ((LANNER_WHO, {}), (LANNER_ASK, {"request": "{}"}), (LANNER_OPEN_SESSION, {})):
            with pytest.raises(RpcFault, match="ACCESS_DENIED"):
                await bound.call(method, **arguments)
        with pytest.raises(InterfaceRefused):
            await client.bind(QMMGMT)

    pairs.run(work)


def test_a_connection_becomes_the_user_for_good(pairs: Pairs) -> None:
    async def work(client: RpcClient) -> None:
        told = await _log_on(client, user="bob", password="word", address="192.0.2.7")
        assert told[RETURNS] == MQ_OK
        again = await _log_on(client, user="alice", password="secret", address="192.0.2.7")
        assert again[RETURNS] == AccessDenied.status
        assert "belongs to bob" in again["answer"]
        bound = await client.bind(LANNER)
        asked: dict[str, Any] = await bound.call(LANNER_ASK, request='{"request": "status"}')
        assert asked[RETURNS] == AccessDenied.status

    pairs.run(work)


def test_wrong_passwords_are_counted_for_the_address_of_the_user(pairs: Pairs) -> None:
    async def work(client: RpcClient) -> None:
        told = await _log_on(client, user="bob", password="wrong", address="192.0.2.7")
        assert told[RETURNS] == AccessDenied.status

    for _ in range(2):
        pairs.run(work)
    audit = (pairs.served.data / "audit.log").read_text()
    assert '"from": "192.0.2.7"' in audit
    assert '"who": "bob"' in audit
    assert "wrong" in audit
    assert '"word"' not in audit


def test_a_ticket_is_good_once(pairs: Pairs) -> None:
    interface = next(one for one in _server(pairs).interfaces if one.name == "lanner")
    ticket = interface._documents._of_users["ticket"](SYSTEM, {})["ticket"]  # type: ignore[attr-defined]

    async def work(client: RpcClient) -> int:
        status: int = (await _log_on(client, ticket=ticket, address="192.0.2.7"))[RETURNS]
        return status

    assert [pairs.run(work), pairs.run(work)] == [MQ_OK, AccessDenied.status]


def _server(pairs: Pairs) -> RpcServer:
    return pairs.served.listener.server


@pytest.mark.parametrize("request_", ["[]", "{", "{}", '{"user": "bob"}', '{"user": "bob", "password": 1}'])
def test_a_malformed_request_is_refused_and_not_quoted(pairs: Pairs, request_: str) -> None:
    async def work(client: RpcClient) -> None:
        bound = await client.bind(LANNER)
        told: dict[str, Any] = await bound.call(LANNER_LOG_ON, request=request_)
        assert told[RETURNS] != MQ_OK

    pairs.run(work)


def test_over_tcp_it_needs_privacy_and_a_caller_who_has_logged_on(pairs: Pairs) -> None:
    served = pairs.served

    async def main() -> list[int]:
        found = []
        for credentials in (None, Credentials("alice", "secret")):
            async with await connect_tcp(served.bind, served.port, credentials=credentials) as client:
                told = await _log_on(client, user="bob", password="word")
                found.append(told[RETURNS])
                if credentials is not None:
                    bound = await client.bind(LANNER)
                    who: dict[str, Any] = await bound.call(LANNER_ASK, request='{"request": "who am i"}')
                    assert json.loads(who["answer"])["user"] == "bob"
        return found

    assert asyncio.run(main()) == [AccessDenied.status, MQ_OK]


def test_who_has_opened_a_session_cannot_become_another(pairs: Pairs) -> None:
    served = pairs.served

    async def main() -> int:
        async with await connect_tcp(served.bind, served.port, credentials=Credentials("alice", "secret")) as client:
            await (await client.bind(LANNER)).call(LANNER_OPEN_SESSION)
            status: int = (await _log_on(client, user="bob", password="word"))[RETURNS]
            return status

    assert asyncio.run(main()) == AccessDenied.status


# Through the service
# --------------------------------------------------------------------------------------------------


def _token(service: HttpService, *arguments: str) -> dict[str, Any]:
    command = [str(LANNER_COMMAND), "token", "create", *arguments, "--data", str(service.data), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def test_a_token_does_what_its_scope_says(service: HttpService, alice: httpx.Client) -> None:
    alice.post("/api/v1/queues", json={"name": "private$\\scoped"}).raise_for_status()
    path = "/api/v1/queues/private$%5Cscoped"
    expected = {
        "read": (200, 403, 403, 403, 200),
        "send": (403, 201, 403, 403, 403),
        "receive": (200, 403, 200, 403, 403),
        "manage": (403, 403, 403, 200, 403),
        "admin": (200, 201, 200, 200, 200),
    }
    found = {}
    for scope in expected:
        with service.client(token=_token(service, "--scope", scope, "--for", "alice")["token"]) as client:
            found[scope] = (
                client.get(f"{path}/messages").status_code,
                client.post(f"{path}/messages", json={"body": "x"}).status_code,
                client.delete(f"{path}/messages").status_code,
                client.patch(path, json={"label": scope}).status_code,
                client.get("/api/v1/outgoing").status_code,
            )
    assert found == expected


def test_a_token_gives_no_right_that_its_user_has_not(service: HttpService) -> None:
    with service.client(token=_token(service, "--scope", "admin", "--for", "bob")["token"]) as client:
        assert client.get("/api/v1/outgoing").status_code == 403
        assert client.get("/api/v1/queues").json()["total"] == 0


def test_a_token_makes_no_token_and_no_ticket(service: HttpService) -> None:
    with service.client(token=_token(service, "--scope", "admin", "--for", "alice")["token"]) as client:
        answer = client.post("/api/v1/tokens", json={"scope": ["admin"]})
    assert answer.status_code == 403
    assert "log on with the password" in answer.json()["detail"]


def test_a_revoked_token_ends_at_once(service: HttpService, alice: httpx.Client) -> None:
    made = _token(service, "--scope", "read", "--for", "alice")
    with service.client(token=made["token"]) as client:
        assert client.get("/api/v1/whoami").status_code == 200
        assert alice.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
        assert client.get("/api/v1/whoami").status_code == 401


def test_a_token_that_has_expired_is_refused(service: HttpService) -> None:
    made = _token(service, "--scope", "read", "--for", "alice", "--expires", "2s")
    with service.client(token=made["token"]) as client:
        assert client.get("/api/v1/whoami").status_code == 200
        answers = []
        for _ in range(40):
            answers.append(client.get("/api/v1/whoami").status_code)
            if answers[-1] == 401:
                break
            time.sleep(0.1)
    assert answers[-1] == 401


def test_tokens_survive_a_restart_and_are_kept_as_hashes(tmp_path: Path) -> None:
    service = HttpService(tmp_path / "alpha")
    try:
        made = _token(service, "--scope", "read", "--for", "alice")
        kept = service.data / "tokens.json"
        assert made["token"].rpartition("_")[2] not in kept.read_text()
        assert kept.stat().st_mode & 0o077 == 0
        service.kill()
        service.start()
        with service.client(token=made["token"]) as client:
            assert client.get("/api/v1/whoami").json()["user"] == "alice"
    finally:
        service.close()
