"""Strangers who claim another sender: the claim gives no rights and is shown as a claim."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import lanner
from lanner.model.enums import AuthenticationLevel
from lanner.security.signing import sign
from lanner.security.users import USER_FILE, UserFile
from lanner.wire.builder import MessageProperties, build, set_authentication
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.sid import LOCAL_SYSTEM
from lanner.wire.signature_input import hash_input_20
from tests.adversity.network import PORT
from tests.adversity.stranger import GUID, Stranger
from tests.client.peers import free_address
from tests.contract.service import LANNER, Service
from tests.security.samples import signing_key

_PATIENCE = 20.0  # seconds


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    started = Service(tmp_path / "data", f"[transfer]\nport = {PORT}\n")
    yield started
    started.close()


class Liar(Stranger):
    """A peer that sends any sender it likes."""

    ordinal = 0

    def tell(self, service: Service, queue: str, *, source: UUID = GUID, mark: bool = False, **properties: Any) -> None:  # noqa: ANN401 (of MessageProperties)
        self.ordinal += 1
        packet = build(
            MessageProperties(**{"body": queue.encode(), **properties}),
            source=source,
            ordinal=self.ordinal,
            sent_time=int(time.time()),
            destination=parse(rf"DIRECT=TCP:{service.address}\private$\{queue}"),
        )
        self.session.send(set_authentication(packet, AuthenticationLevel.SIG20) if mark else packet, None)
        self.flush()


def sid_of(service: Service, name: str) -> bytes:
    return UserFile(service.data / USER_FILE).sid(name).pack()


def shown(service: Service, queue: str) -> list[dict[str, Any]]:
    """Return the messages in a queue as `lanner peek --json` shows them."""
    command: list[str | Path] = [LANNER, "peek", queue, "--all", "--json", "--data", service.data]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def test_nobody_gains_rights_by_naming_an_account(service: Service) -> None:
    """A queue restricted to bob and the administrators rejects a peer that claims to be one."""
    with lanner.connect(data=service.data) as qm, Liar.connect(free_address(), service.address) as liar:
        closed = qm.create_queue("closed", access={"bob": "send"})
        last = qm.create_queue("open")
        liar.open()
        for sender in (sid_of(service, "bob"), sid_of(service, "alice"), LOCAL_SYSTEM.pack()):
            for mark in (False, True):
                liar.tell(service, "closed", sender_identifier=sender, mark=mark)
        liar.tell(service, "open", sender_identifier=sid_of(service, "bob"))
        assert last.receive(timeout=_PATIENCE).body_bytes == b"open"
        assert closed.count() == 0


def test_a_claim_is_shown_as_a_claim(service: Service) -> None:
    """This holds also if the peer says that the signature was verified.

    Bob's own message is bob's.
    """
    with lanner.connect(data=service.data) as qm, Liar.connect(free_address(), service.address) as liar:
        queue = qm.create_queue("q", access={"Everyone": "send", "bob": "send"})
        bob = sid_of(service, "bob")
        liar.open()
        liar.tell(service, "q", sender_identifier=bob)
        liar.tell(service, "q", sender_identifier=bob, mark=True)
        while queue.count() < 2:
            time.sleep(0.01)
        with lanner.connect(service.address, "bob", "word", port=service.port) as user:
            user.open("q").send("by bob")
        expected = [False, False, True]
        assert [message.sender_verified for message in queue] == expected
        assert [message.authenticated for message in queue] == [False] * 3
        documents = shown(service, "q")
        assert [one["sender_verified"] for one in documents] == expected
        assert [one["sender_id"] for one in documents] == [bob.hex()] * 3


def test_a_signature_for_one_queue_is_worth_nothing_in_another(service: Service, tmp_path: Path) -> None:
    """Bob has signed a message to the attacker's own computer.

    What was hashed of it becomes the body of another message.

    The hash of MSMQ 1.0 has no lengths and no destination, so it is the same for both.
    """
    certificate = tmp_path / "bob.der"
    certificate.write_bytes(signing_key("bob").certificate)
    register: list[str | Path] = [LANNER, "user", "certificate", "bob", certificate, "--data", service.data]
    subprocess.run(register, check=True, capture_output=True)
    bob = sid_of(service, "bob")
    captured = Message(
        sign(
            build(
                MessageProperties(body=b"pay 10", sender_identifier=bob),
                source=UUID(int=5),
                ordinal=1,
                sent_time=int(time.time()),
                destination=parse(r"DIRECT=TCP:127.0.0.9\private$\mine"),
            ),
            signing_key("bob"),
        )
    )
    stolen: dict[str, Any] = {
        "sender_identifier": bob,
        "sender_certificate": captured.sender_certificate,
        "signature": captured.signature,
        "hash_algorithm": captured.hash_algorithm,
    }
    with lanner.connect(data=service.data) as qm, Liar.connect(free_address(), service.address) as liar:
        bobs = qm.create_queue("bobs", access={"bob": "send"})
        signed = qm.create_queue("signed", authentication=True)
        last = qm.create_queue("open")
        liar.open()
        for queue in ("bobs", "signed", "open"):
            liar.tell(service, queue, body=hash_input_20(captured)[24:], **stolen)
        liar.tell(service, "open")
        assert last.receive(timeout=_PATIENCE).body_bytes == b"open"
        assert (bobs.count(), signed.count()) == (0, 0)


def test_nobody_passes_for_this_queue_manager(service: Service) -> None:
    """A message that names this queue manager as its source would count as sent by a local user."""
    with lanner.connect(data=service.data) as qm, Liar.connect(free_address(), service.address) as liar:
        queue = qm.create_queue("q")
        liar.open()
        assert qm.identifier is not None
        liar.tell(service, "q", sender_identifier=sid_of(service, "bob"), source=qm.identifier)
        liar.tell(service, "q", sender_identifier=sid_of(service, "bob"))
        assert queue.receive(timeout=_PATIENCE).source_machine == GUID
        assert queue.count() == 0
