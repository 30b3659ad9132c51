"""The audit log names the user, the origin and the change, whatever way a change comes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lanner
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.interface import RETURNS
from lanner.rpc.security import Credentials
from lanner.security.roles import Role
from lanner.security.users import UNIX_USERS, UserFile
from lanner.services.interfaces import mqmp
from lanner.services.interfaces.mqmp import QMCOMM, QMCOMM2
from lanner.services.ports import LOCAL_SOCKET
from tests.contract.service import LANNER, USERS, Service
from tests.services.queue_client_peer import Peer, queue_object
from tests.statuses import MQ_ERROR_ACCESS_DENIED

SETTINGS = """
[rpc]
requires_authentication = false
"""
ORDERS = r"ALPHA\private$\orders"
NAME = r"DIRECT=OS:.\private$\orders"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path / "data", SETTINGS)
    yield made
    made.close()


def records(data: Path, *events: str) -> list[dict[str, Any]]:
    """Return the records of these events, without the time."""
    found = [json.loads(line) for line in (data / "audit.log").read_text().splitlines()]
    for one in found:
        del one["time"]
    return [one for one in found if one["event"] in events or not events]


def work(manager: lanner.QueueManager) -> None:
    """Do everything that is recorded."""
    queue = manager.create_queue("orders")
    queue.send("secret body")
    queue.grant("Everyone", "peek")
    assert queue.purge() == 1
    manager.delete_queue("orders")


def check(data: Path, who: str, sid: str, place: str) -> None:
    found = records(data, "create queue", "change access", "purge queue", "delete queue")
    assert [one["event"] for one in found] == ["create queue", "change access", "purge queue", "delete queue"]
    for one in found:
        assert (one["outcome"], one["who"], one["sid"], one["queue"]) == ("done", who, sid, ORDERS)
        assert one["from"].startswith(place), one
    assert "(A;;0x4;;;WD)" in found[1]["before"]
    assert "(A;;0x6;;;WD)" in found[1]["after"]
    assert found[2]["messages"] == 1
    text = (data / "audit.log").read_text()
    assert not any(secret in text for secret in ("secret body", *USERS.values()))


def test_of_a_program_on_this_machine(service: Service) -> None:
    with lanner.connect(data=service.data) as manager:
        work(manager)
    check(service.data, "SYSTEM", "S-1-5-18", f"lanner.sock uid {os.geteuid()}")


def test_of_a_user_over_tcp(service: Service) -> None:
    with lanner.connect(service.address, "alice", USERS["alice"], port=service.port) as manager:
        work(manager)
    check(service.data, "alice", str(UserFile(service.data / "users.json").sid("alice")), "127.")


def test_of_a_queue_manager_in_a_process(tmp_path: Path) -> None:
    with lanner.QueueManager(tmp_path / "data", "ALPHA") as manager:
        work(manager)
    check(tmp_path / "data", "SYSTEM", "S-1-5-18", f"process {os.getpid()} uid {os.geteuid()}")


def test_of_the_command_line(tmp_path: Path) -> None:
    data = tmp_path / "data"

    def run(*arguments: str, stdin: str = "") -> None:
        subprocess.run([LANNER, *arguments, "--data", data], check=True, capture_output=True, input=stdin, text=True)

    run("queue", "create", "orders", "--name", "ALPHA")
    run("send", "orders", "secret body")
    run("queue", "access", "grant", "orders", "Everyone", "peek")
    run("queue", "purge", "orders", "--yes")
    run("queue", "delete", "orders", "--yes")
    place = f"command line uid {os.geteuid()}"
    check(data, "SYSTEM", "S-1-5-18", place)
    run("user", "add", "carol", "--password-stdin", "--administrator", stdin="long enough secret\n")
    run("user", "set", "carol", "--no-administrator", "--password-stdin", stdin="another long secret\n")
    run("user", "remove", "carol", "--yes")
    found = records(data, "add user", "set password", "set role", "remove user")
    assert [one["event"] for one in found] == ["add user", "set password", "set role", "remove user"]
    assert {one["from"] for one in found} == {place}
    assert found[0]["role"] == "administrator"
    assert "secret" not in (data / "audit.log").read_text()


def test_of_msmqs_own_interface(service: Service) -> None:
    """MS-MQMP: what is refused is recorded too."""
    with lanner.connect(data=service.data) as manager:
        manager.create_queue("orders").send("x")

    async def run() -> None:
        nobody = await connect_tcp(service.address, service.port)
        peer = Peer(nobody, await nobody.bind(QMCOMM), await nobody.bind(QMCOMM2))
        status = await peer.status(mqmp.R_QM_DELETE_OBJECT, p_object_format=queue_object(NAME))
        assert status == MQ_ERROR_ACCESS_DENIED
        await nobody.close()
        alice = await connect_tcp(service.address, service.port, credentials=Credentials("alice", USERS["alice"]))
        peer = Peer(alice, await alice.bind(QMCOMM), await alice.bind(QMCOMM2))
        opened = await peer.open(NAME)
        assert await opened.purge() == 0
        assert (await peer.call(mqmp.R_QM_DELETE_OBJECT, p_object_format=queue_object(NAME)))[RETURNS] == 0
        await alice.close()

    asyncio.run(run())
    refused, purged, deleted = records(service.data, "purge queue", "delete queue")
    assert (refused["outcome"], refused["who"], refused["sid"]) == ("refused", "ANONYMOUS LOGON", "S-1-5-7")
    assert refused["from"].startswith("127.")
    assert (purged["event"], purged["who"], purged["messages"]) == ("purge queue", "alice", 1)
    assert (deleted["event"], deleted["who"], deleted["outcome"]) == ("delete queue", "alice", "done")


def test_who_cannot_log_on(service: Service) -> None:
    for user, password in (("alice", "wrong"), ("mallory", "guess"), ("alice", "wrong")):
        with pytest.raises(lanner.errors.AccessDenied):
            lanner.connect(service.address, user, password, port=service.port)
    found = records(service.data, "log on")
    # The same once more is only counted.
    assert [(one["who"], one["outcome"]) for one in found] == [("alice", "refused"), ("mallory", "refused")]
    assert all(one["from"].startswith("127.") and one["mechanism"] in ("NTLM", "Negotiate") for one in found)
    assert "guess" not in (service.data / "audit.log").read_text()


@pytest.mark.parametrize(("value", "name"), [("none", None), ("other.log", "other.log")])
def test_the_file_is_a_setting(tmp_path: Path, value: str, name: str | None) -> None:
    service = Service(tmp_path / "data", f'[log]\naudit = "{value}"\n')
    with lanner.connect(data=service.data) as manager:
        manager.create_queue("orders")
    service.close()
    found = [path.name for path in service.data.glob("*.log*")]
    assert found == ([] if name is None else [name])
    # The log of the service has the records in any case.
    assert '"event": "create queue"' in service.log


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs programs as other users")
def test_a_unix_user_without_an_account_owns_the_queue_that_it_makes(service: Service) -> None:
    """The kernel says who it is: S-1-22-1-uid."""
    uid = 54321
    sid = UNIX_USERS.child(uid)
    UserFile(service.data / "users.json").set_role(str(sid), Role.ADMINISTRATOR)
    # Only for this test: by default no other user reaches the socket.
    service.data.chmod(0o755)
    (service.data / LOCAL_SOCKET).chmod(0o666)
    program = textwrap.dedent(
        """
        import os, sys
        import lanner
        # Once as root, which may read the interpreter's modules.
        with lanner.connect(data=sys.argv[1]) as manager:
            queue = manager.create_queue("his")
            queue.send("x")
            queue.receive(0)
        os.chdir(sys.argv[1])
        os.setgroups([]); os.setgid(54321); os.setuid(54321)
        with lanner.connect(data=".") as manager:
            queue = manager.create_queue("hers")
            queue.send("x")
            print(queue.receive(0).body)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, service.data], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "x\n"), done.stderr
    with lanner.connect(data=service.data) as manager:
        found = manager.open("hers").access()
    assert found.owner_sid == str(sid)
    _, record = records(service.data, "create queue")
    assert (record["sid"], record["from"]) == (str(sid), f"lanner.sock uid {uid}")
    service.data.chmod(0o700)
