"""Logons that are begun and never finished, and callers who never begin one."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

from lanner.rpc.pdu import AuthLevel, AuthType, PacketType, RejectReason
from lanner.rpc.server import ServerLimits
from tests.adversity.attacks.limited_service import LimitedService, read, until
from tests.adversity.rpc_mutator import authenticated
from tests.rpc.loops import run
from tests.rpc.served import Notes, hung_up, raw_connection, served
from tests.rpc.test_pace import begin


def test_one_address_has_so_many_logons_under_way(tmp_path: Path) -> None:
    """Each is a challenge that has to be remembered. Others can log on meanwhile."""
    first_leg = authenticated(AuthType.WINNT, AuthLevel.PKT_PRIVACY)[0]
    name = "rpc logons under way"

    def answer(source: str) -> bytes:
        connection = stack.enter_context(
            socket.create_connection((service.address, service.port("rpc")), 30, (source, 0))
        )
        connection.sendall(first_leg)
        head = read(connection, 16)
        return head + read(connection, int.from_bytes(head[8:10], "little") - 16)

    with LimitedService(tmp_path) as service, ExitStack() as stack:
        answers = [answer("127.9.5.1") for _ in range(70)]
        assert [one[2] for one in answers] == [PacketType.BIND_ACK] * 64 + [PacketType.BIND_NAK] * 6
        assert answers[-1][16] == RejectReason.TEMPORARY_CONGESTION
        assert service.limit(name)["greatest"] == service.limit(name)["per_peer"] == 64
        assert answer("127.9.5.2")[2] == PacketType.BIND_ACK
        stack.close()
        until(lambda: service.limit(name)["used"] == 0)
        service.check()


def test_a_logon_that_is_not_finished_in_time_ends_the_connection() -> None:
    async def main() -> None:
        async with (
            served(Notes(), ServerLimits(bind_timeout=0.2)) as (server, port),
            raw_connection(port) as (reader, writer),
        ):
            writer.write(authenticated(AuthType.WINNT, AuthLevel.PKT_PRIVACY)[0])
            head = await reader.readexactly(16)
            assert head[2] == PacketType.BIND_ACK
            await reader.readexactly(int.from_bytes(head[8:10], "little") - 16)
            assert await hung_up(reader)
            assert server.logons.used == 0

    run(main())


def test_a_connection_that_has_bound_and_makes_no_calls_ends() -> None:
    async def main() -> None:
        async with (
            served(Notes(), ServerLimits(idle_timeout=0.2)) as (_, port),
            raw_connection(port) as (reader, writer),
        ):
            await begin(reader, writer)
            assert await hung_up(reader)

    run(main())
