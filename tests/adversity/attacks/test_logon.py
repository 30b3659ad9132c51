"""Callers that do not log on, log on too weakly, or guess passwords.

The target is a running queue manager with its default settings.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

import lanner
from lanner import errors
from lanner.com.interfaces import IOBJECTEXPORTER, RESOLVE_OXID2, SERVER_ALIVE, SERVER_ALIVE2, SIMPLE_PING
from lanner.model.directory_objects import GUID_NULL
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.endpoint_mapper import EPMAPPER, Tower, Twr
from lanner.rpc.faults import FaultStatus, RpcConnectionError, RpcFault
from lanner.rpc.interface import RETURNS, Interface, Method
from lanner.rpc.mgmt import MGMT
from lanner.rpc.ndr import NULL_HANDLE, Value
from lanner.rpc.pdu import NDR20, AuthLevel, SyntaxId
from lanner.rpc.security import Credentials, SecurityError
from lanner.security.log_lines import PER_PEER
from lanner.security.users import USER_FILE
from lanner.services.interfaces.lanner import LANNER as LANNER_INTERFACE
from lanner.services.interfaces.lanner import LANNER_ASK, LANNER_OPEN_SESSION
from lanner.services.interfaces.mqmp import QMCOMM, QMCOMM2, R_QM_GET_RTQM_SERVER_PORT
from lanner.services.interfaces.mqmr import QMMGMT, R_QM_MGMT_ACTION, MgmtObject, MgmtObjectType
from lanner.services.interfaces.mqqp import QM2QM, REMOTE_QM_GET_QMQM_SERVER_PORT
from tests.adversity.attacks.victim import ADMINISTRATOR, LANNER, USER, Victim, victim
from tests.interop.peers import needs_endpoint_mapper_port
from tests.services.calls import CALLS
from tests.statuses import MQ_ERROR_ACCESS_DENIED

NOBODY: Final = Credentials()
PORT_QUERIES: Final = (R_QM_GET_RTQM_SERVER_PORT, REMOTE_QM_GET_QMQM_SERVER_PORT)
PRIVACY: Final = AuthLevel.PKT_PRIVACY
# The wait doubles with each try that waits, up to half a minute.
MAX_WAITING: Final = 8


async def called(
    target: Victim,
    who: Credentials | None,
    level: AuthLevel,
    interface: Interface,
    method: Method,
    **arguments: Value,
) -> int:
    """Make one call on a connection of its own; the status it returns, or that of its fault."""
    async with await connect_tcp(target.address, target.port(), credentials=who, level=level) as client:
        try:
            answer = await (await client.bind(interface)).call(method, **arguments)
        except RpcFault as fault:
            return fault.status
        status = answer.get(RETURNS, 0)
        assert isinstance(status, int)
        return status


def attack(folder: Path, work: Callable[[Victim], Awaitable[None]], settings: str = "", *, com: bool = False) -> None:
    with victim(folder, settings, com=com) as target:
        asyncio.run(asyncio.wait_for(_run(work, target), 120))


async def _run(work: Callable[[Victim], Awaitable[None]], target: Victim) -> None:
    await work(target)


# Nobody
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [None, NOBODY], ids=["unauthenticated", "anonymous"])
def test_nobody_calls_any_method_of_a_queue_manager(tmp_path: Path, who: Credentials | None) -> None:
    """NTLM's anonymous user signs and encrypts, with keys that everybody knows."""

    async def work(target: Victim) -> None:
        asked = set()
        for call in CALLS:
            if call.interface not in (QMCOMM, QMCOMM2, QM2QM, QMMGMT) or call.method in PORT_QUERIES:
                continue
            asked.add(call.interface)
            status = await called(target, who, PRIVACY, call.interface, call.method, **call.arguments)
            assert status == MQ_ERROR_ACCESS_DENIED, call.method
        assert len(asked) >= 3
        denied = await called(target, who, PRIVACY, LANNER_INTERFACE, LANNER_OPEN_SESSION)
        assert denied == MQ_ERROR_ACCESS_DENIED
        denied = await called(target, who, PRIVACY, LANNER_INTERFACE, LANNER_ASK, request='{"request": "status"}')
        assert denied == MQ_ERROR_ACCESS_DENIED
        denied = await called(target, who, PRIVACY, MGMT, MGMT.by_name["rpc__mgmt_inq_if_ids"])
        assert denied == FaultStatus.ACCESS_DENIED

    attack(tmp_path, work)


def test_everybody_may_ask_where_the_queue_manager_is(tmp_path: Path) -> None:
    """A client needs the address before it can log on."""

    async def work(target: Victim) -> None:
        level = AuthLevel.NONE
        assert await called(target, None, level, QMCOMM, R_QM_GET_RTQM_SERVER_PORT, f_ip=0) == target.port()
        read_port = target.port("remote read")
        assert await called(target, None, level, QM2QM, REMOTE_QM_GET_QMQM_SERVER_PORT, dw_port_type=1) == read_port
        tower = Twr.of(Tower(SyntaxId(QMMGMT.uuid, *QMMGMT.version), NDR20, 0))
        async with await connect_tcp(target.address, target.port()) as client:
            mapper = await client.bind(EPMAPPER)
            answer = await mapper.call(
                EPMAPPER.by_name["ept_map"], obj=GUID_NULL, map_tower=tower, entry_handle=NULL_HANDLE, max_towers=4
            )
            assert answer["num_towers"]

    attack(tmp_path, work)


def test_the_resolver_of_com_tells_nobody_more_than_that_it_lives(tmp_path: Path) -> None:
    needs_endpoint_mapper_port("127.0.0.1")

    async def work(target: Victim) -> None:
        for alive in (SERVER_ALIVE, SERVER_ALIVE2):
            assert await called(target, None, AuthLevel.NONE, IOBJECTEXPORTER, alive) == 0
        for who in (None, NOBODY):
            protocols = {"c_requested_protseqs": 1, "ar_requested_protseqs": (7,)}
            denied = await called(target, who, PRIVACY, IOBJECTEXPORTER, RESOLVE_OXID2, p_oxid=1, **protocols)
            assert denied == FaultStatus.ACCESS_DENIED
            denied = await called(target, who, PRIVACY, IOBJECTEXPORTER, SIMPLE_PING, p_set_id=1)
            assert denied == FaultStatus.ACCESS_DENIED

    attack(tmp_path, work, com=True)


def test_management_is_not_done_where_others_can_read_it(tmp_path: Path) -> None:
    """An administrator at integrity is refused, and at privacy served.

    Likewise a user's other calls at level connect are refused, because any host on the path could
    continue the connection.
    """
    machine = {"p_object_format": MgmtObject(MgmtObjectType.MGMT_MACHINE, 0), "lpwsz_action": "TIDY"}

    async def work(target: Victim) -> None:
        for level in (AuthLevel.CONNECT, AuthLevel.PKT, AuthLevel.PKT_INTEGRITY):
            denied = await called(target, ADMINISTRATOR, level, QMMGMT, R_QM_MGMT_ACTION, **machine)
            assert denied == MQ_ERROR_ACCESS_DENIED, level
        assert await called(target, ADMINISTRATOR, PRIVACY, QMMGMT, R_QM_MGMT_ACTION, **machine) == 0
        assert await called(target, USER, PRIVACY, QMMGMT, R_QM_MGMT_ACTION, **machine) == MQ_ERROR_ACCESS_DENIED
        ask = next(call for call in CALLS if call.method.name == "R_QMQueryQMRegistryInternal")
        for level, is_served in ((AuthLevel.CONNECT, False), (AuthLevel.PKT_INTEGRITY, True)):
            status = await called(target, USER, level, QMCOMM, ask.method, **ask.arguments)
            assert (status == 0) is is_served, level

    attack(tmp_path, work)


# Guesses
# --------------------------------------------------------------------------------------------------


async def guess(target: Victim, password: str, source: str = "127.0.0.1", user: str = ADMINISTRATOR.user) -> bool:
    """Whether a password is right."""
    credentials = Credentials(user, password)
    try:
        async with await connect_tcp(
            target.address, target.port(), credentials=credentials, level=PRIVACY, local_address=(source, 0)
        ) as client:
            bound = await client.bind(LANNER_INTERFACE)
            return bool((await bound.call(LANNER_OPEN_SESSION))[RETURNS] == 0)
    except (RpcFault, RpcConnectionError, SecurityError):
        return False


def test_a_dictionary_does_not_get_in(tmp_path: Path) -> None:
    """Not although the right password is in it, and all are tried at once.

    The user gets in meanwhile, from elsewhere.
    """

    async def work(target: Victim) -> None:
        words = [f"word{number}" for number in range(250)]
        tries = [asyncio.create_task(guess(target, word)) for word in [*words, ADMINISTRATOR.password]]
        await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
        assert await guess(target, ADMINISTRATOR.password, source="127.0.0.77")
        while sum(task.done() for task in tries) < len(tries) - MAX_WAITING:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.01)
        done = [task for task in tries if task.done()]
        waiting = [task for task in tries if not task.done()]
        assert not any(task.result() for task in done)
        # The last one was the right one, and it was not looked at.
        assert tries[-1] in done
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        # A few lines about each kind of thing, and not one for each guess.
        wrong = [line for line in target.log if "is wrong" in line or "without checking the password" in line]
        assert 1 <= len(wrong) <= 3 * PER_PEER
        assert ADMINISTRATOR.password not in "".join(target.log)

    attack(tmp_path, work)


def test_a_user_who_is_known_at_an_address_is_not_slowed_down_by_the_guesses_of_others_there(tmp_path: Path) -> None:
    async def work(target: Victim) -> None:
        assert await guess(target, USER.password, user=USER.user)
        await asyncio.gather(*[guess(target, f"word{number}", user=f"user{number}") for number in range(8)])
        # An account that was never seen there waits, and is not even looked at here.
        late = asyncio.create_task(guess(target, ADMINISTRATOR.password))
        for _ in range(3):
            assert await guess(target, USER.password, user=USER.user)
        assert not late.done()
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)

    attack(tmp_path, work)


@pytest.mark.parametrize("is_locked", [False, True])
def test_an_account_is_locked_only_if_the_operator_wants_that(tmp_path: Path, is_locked: bool) -> None:
    async def work(target: Victim) -> None:
        for number in range(3):
            assert not await guess(target, "wrong", source=f"127.0.1.{number + 1}")
        assert await guess(target, ADMINISTRATOR.password, source="127.0.2.1") is not is_locked
        assert await guess(target, USER.password, user=USER.user)
        if is_locked:
            assert any("the account is locked" in line for line in target.log)

    attack(tmp_path, work, "[security]\nlockout_failures = 3\n" if is_locked else "")


def lanner_command(*arguments: str, password: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    command = [str(LANNER), *arguments]
    return subprocess.run(command, input=password, capture_output=True, text=True, check=False)


# Secrets
# --------------------------------------------------------------------------------------------------


def test_without_ntlm_there_is_nothing_to_pass_the_hash_with(tmp_path: Path) -> None:
    """An NT hash is as good as the password.

    Where NTLM is off, none is kept of a new password, and none is taken.
    """

    async def work(target: Victim) -> None:
        where = ("--password-stdin", "--data", str(target.data))
        assert not await guess(target, ADMINISTRATOR.password)
        assert lanner_command("user", "add", "carol", *where, password="correct horse").returncode == 0
        accounts = json.loads((target.data / USER_FILE).read_text())["users"]
        hashes = {one["name"]: one["nt_hash"] for one in accounts}
        assert hashes["carol"] is None
        assert hashes["alice"] is not None
        assert "NT hashes of alice, bob" in lanner_command("doctor", "--data", str(target.data)).stdout

    attack(tmp_path, work, "[security]\nntlm = false\n")


def test_passwords_that_are_guessed_first_are_not_taken(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name, password, complaint in (
        ("carol", "short", "at least 8 characters"),
        ("administrator", "Administrator", "is the name itself"),
    ):
        done = lanner_command("user", "add", name, "--password-stdin", "--data", str(data), password=password)
        assert done.returncode == 1
        assert complaint in done.stderr
        assert not (data / USER_FILE).exists()


def test_who_is_refused_is_told_what_to_do(tmp_path: Path) -> None:
    with victim(tmp_path) as target, pytest.raises(errors.AccessDenied, match="serves only callers that log on"):
        lanner.connect(target.address, port=target.port())
