"""Change notifications between two queue managers as processes in a Samba domain (MS-MQCN)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.directory.ldap import CachedDirectory, named_server
from lanner.directory.ldap.directory import LdapDirectory
from lanner.directory.ldap.service_location import Server, server_key
from lanner.model.directory_objects import Queue
from lanner.model.enums import DirectoryOperationResult
from lanner.wire.user_certificates import UserSignCerts
from tests.active_directory.conftest import World, equals
from tests.active_directory.domain import ADDRESS, ADMINISTRATOR, HOST, PASSWORD, SERVER, Domain

LANNER = Path(sys.executable).with_name("lanner")
ROOT = Path(__file__).resolve().parent.parent.parent
CHANGER, OWNER = "127.19.0.1", "127.19.0.2"
SUCCESS = DirectoryOperationResult.SUCCESS
NOT_CONNECTED = DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
# How long a notification may take on a busy machine; none waits for it to pass.
PATIENCE = 60.0


class Changer:
    """The process of `changer.py`."""

    def __init__(self, settings: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "tests.active_directory.changer", json.dumps(settings)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        self.started = self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, event: str, kind: str, identifier: str = "", **values: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        request: dict[str, object] = {"event": event, "kind": kind, "values": values}
        if identifier:
            request["identifier"] = identifier
        self.process.stdin.write(f"{json.dumps(request)}\n")
        self.process.stdin.flush()
        found = self._answer()
        assert found["result"] == SUCCESS.value, found
        return found

    def close(self) -> None:
        self.process.communicate(timeout=60)
        assert self.process.returncode == 0


class Owner:
    """`lanner serve` in the domain, which processes notifications when they come."""

    def __init__(self, path: Path, name: str, directory: dict[str, Any]) -> None:
        self.data = path / "owner"
        config = path / "owner.toml"
        lines = ["[com]", "enabled = false", "[flight]", "enabled = false", "[directory]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in directory.items()]
        lines.append('notifications = "immediate"')
        config.write_text("\n".join(lines) + "\n")
        self._log = (path / "owner.log").open("w")
        options: list[str | Path] = ["--data", self.data, "--name", name, "--bind", OWNER, "--config", config, "--json"]
        self.process = subprocess.Popen([LANNER, "serve", *options], stdout=subprocess.PIPE, stderr=self._log)
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), (path / "owner.log").read_text()
        self._path = path

    def show(self, name: str) -> dict[str, Any] | None:
        """Return the program's own description of a queue, None if there is no such queue."""
        command: list[str | Path] = [LANNER, "queue", "show", name, "--data", self.data, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found: dict[str, Any] | None = json.loads(done.stdout) if done.returncode == 0 else None
        return found

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)
        self._log.close()
        assert "Traceback" not in (self._path / "owner.log").read_text()


def eventually(seen: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not seen():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.fixture
def second(domain: Domain) -> Iterator[World]:
    found = World(domain)
    yield found
    domain.delete(found.computer_dn)


def directory_table(world: World, path: Path, site: str = "") -> dict[str, Any]:
    secret = path / f"{world.computer}.password"
    secret.write_text(f"{PASSWORD}\n")
    return {
        "domain": "mq.test",
        "name_servers": [ADDRESS],
        "account": f"MQ\\{world.computer}$",
        "password_file": str(secret),
        "site": site or world.site_name,
    }


@pytest.mark.spec(
    "MQCN-4.1-1",
    "MQCN-2.3-1",
    "MQCN-3.3.4.1-1",
    "MQCN-3.3.4.1-2",
    "MQCN-3.3.4.1-3",
    "MQCN-3.3.5.1-4",
    "MQCN-3.3.5.3-14",
)
def test_one_queue_manager_changes_queues_of_another(world: World, second: World, tmp_path: Path) -> None:
    """A computer with the necessary rights creates, changes and deletes queues of another.

    Notifications are signed with the certificate of its account in the domain.
    """
    domain = world.domain
    domain.tool("group", "addmembers", "Domain Admins", f"{world.computer}$")
    owner = Owner(tmp_path, second.computer, directory_table(second, tmp_path, world.site_name))
    changer = Changer(
        {
            "data": str(tmp_path / "changer"),
            "name": world.computer,
            "bind": CHANGER,
            "directory": directory_table(world, tmp_path),
            "peers": {second.computer: OWNER, f"{second.computer}.mq.test": OWNER},
        }
    )
    try:
        assert changer.started["identifier"] == str(domain.guid(world.dn))
        # What the account of the computer has in the domain: its certificate, with its digest.
        account = domain.attributes(world.computer_dn)
        certificates = UserSignCerts.unpack(account["mSMQSignCertificates"][0])
        assert len(certificates.certificates) == 1
        assert account["mSMQDigests"] == certificates.digests

        pathname = f"{second.computer}\\orders"
        made = changer.ask("create", "Queue", pathname=pathname, label="told", quota=77)
        identifier = made["identifier"]
        assert made["outgoing"] == [rf"PRIVATE={domain.guid(second.dn)}\00000003"]
        eventually(lambda: owner.show(r".\orders") is not None, "the queue is not created")
        shown = owner.show(r".\orders")
        assert shown is not None
        assert (shown["label"], shown["quota_kb"], shown["identifier"]) == ("told", 77, identifier)

        changer.ask("write", "Queue", identifier, pathname=pathname, label="new")
        eventually(lambda: (owner.show(r".\orders") or {}).get("label") == "new", "the queue is not changed")

        changer.ask("delete", "Queue", identifier, pathname=pathname)
        eventually(lambda: owner.show(r".\orders") is None, "the queue is not deleted")
        found = second.directory.read("Queue", [equals("Identifier", uuid.UUID(identifier))])
        assert found[0] is DirectoryOperationResult.OBJECT_NOT_FOUND
    finally:
        changer.close()
        owner.close()


# The directory, asked for a notification
# -------------------------------------------------------------------------


@pytest.mark.spec("MQCN-3.2.5.2-2", "MQCN-3.2.5.2-3")
def test_domain_controllers_are_known_by_their_names(world: World) -> None:
    world.add_manager()
    identifier = world.add_queue("orders", label="here")
    directory = world.domain.directory(world.computer_log_on)
    for name in (HOST, HOST.upper(), "dc1", f"\\\\{HOST}", f"{HOST}."):
        assert directory.knows_server(name), name
        result, found = directory.read_at(name, "Queue", [equals("Identifier", identifier)], ["Label"])
        assert result is SUCCESS
        assert isinstance(found, Queue)
        assert found.label == "here"
    for name in ("", "dc9.mq.test", "mq.test", ADDRESS, f"{HOST}.evil.test"):
        assert not directory.knows_server(name), name
        wanted = [equals("Identifier", identifier)]
        assert directory.read_at(name or "none", "Queue", wanted, ["Label"])[0] is not SUCCESS
    assert directory.server == HOST


def test_a_server_by_any_name_is_found_by_dns(world: World) -> None:
    """Profile DOCUMENT asks any server that a notification names."""
    world.add_manager()
    identifier = world.add_queue("orders", label="here")
    assert named_server(HOST.upper(), (ADDRESS,)) == [Server(HOST, ADDRESS)]
    assert named_server("nobody.mq.test", (ADDRESS,)) == []
    assert named_server("no name", (ADDRESS,)) == []
    assert server_key(r"\\DC1.") == "dc1"
    stranger = LdapDirectory(
        lambda: [Server("other.mq.test", ADDRESS)],
        ADMINISTRATOR,
        find_server=lambda name: named_server(name, (ADDRESS,)),
    )
    stranger.initialize()
    assert not stranger.knows_server(HOST)
    assert stranger.read_at(HOST, "Queue", [equals("Identifier", identifier)], ["Label"])[0] is SUCCESS


def test_the_queues_of_a_computer_are_listed(world: World, second: World) -> None:
    world.add_manager()
    second.add_manager()
    wanted = {world.add_queue(f"q{number}") for number in range(3)}
    second.add_queue("other")
    result, found = world.directory.queues_of(world.computer)
    assert result is SUCCESS
    assert found is not None
    assert set(found) == wanted
    assert world.directory.queues_of("nobody")[0] is not SUCCESS


def test_what_is_read_for_a_notification_is_never_remembered(world: World) -> None:
    world.add_manager()
    identifier = world.add_queue("orders", label="old")
    cached = CachedDirectory(world.directory, patience=60)
    try:
        wanted = [equals("Identifier", identifier)]
        for server in ("", HOST):
            for label in (f"a{server}", f"b{server}"):
                world.domain.modify(f"CN=orders,{world.dn}", mSMQLabelEx=label)
                found = cached.read_at(server, "Queue", wanted, ["Label"])[1]
                assert isinstance(found, Queue)
                assert found.label == label
        assert cached.knows_server(HOST)
        assert cached.server == HOST
        assert cached.queues_of(world.computer) == (SUCCESS, [identifier])
    finally:
        cached.close()


def test_a_server_that_does_not_answer_holds_up_nobody_else(world: World) -> None:
    """A notification may name a domain controller that is down.

    The directory of the domain stays as fast as before.
    """
    world.add_manager()
    asked: list[str] = []

    def locate() -> list[Server]:
        asked.append("located")
        return [SERVER, Server("dc2.mq.test", "127.19.255.1")]

    directory = LdapDirectory(locate, ADMINISTRATOR)
    directory.initialize()
    clock = [1000.0]
    cached = CachedDirectory(directory, patience=60, clock=lambda: clock[0])
    try:
        wanted = [equals("ComputerName", world.computer)]
        assert cached.knows_server("dc2.mq.test")
        before = len(asked)
        assert not any(cached.knows_server(f"dc{number}.evil.test") for number in range(100))
        assert len(asked) == before
        asked.clear()
        for _ in range(5):
            assert cached.read_at("dc2.mq.test", "QueueManager", wanted, ["ComputerName"]) == (NOT_CONNECTED, None)
        assert len(asked) == 1
        assert cached.read("QueueManager", wanted, ["ComputerName"])[0] is SUCCESS
        clock[0] += 11
        assert cached.read_at("dc2.mq.test", "QueueManager", wanted, ["ComputerName"]) == (NOT_CONNECTED, None)
        assert len(asked) > 1
        for number in range(600):
            cached._named_away[f"dc{number}"] = clock[0]
        assert cached.read_at("dc3.mq.test", "QueueManager", wanted, ["ComputerName"]) == (NOT_CONNECTED, None)
        assert len(cached._named_away) == 1
    finally:
        cached.close()
