"""All methods of MS-MQRR, called by clients of other implementations.

The server is `lanner serve` with its default settings. Every port comes from the endpoint mapper at
135. Half of what the clients receive is in a transaction whose outcome the test supplies, as the
     coordinator's program.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.client import Message, QueueManager, connect
from lanner.model.branches import Branch
from lanner.model.enums import Acknowledgements
from lanner.wire.message import Message as Packet
from lanner.wire.propagation_token import pack_token
from tests.adversity.served import PASSWORD, Served
from tests.interop.peers import needs_endpoint_mapper_port
from tests.interop.test_foreign_clients import output
from tests.statuses import MQ_ERROR_IO_TIMEOUT, STATUS_NOT_FOUND

USER = "alice"
SCRIPT = Path(__file__).with_name("scapy_mqrr.py")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    needs_endpoint_mapper_port("127.0.0.1")
    with Served(tmp_path_factory.mktemp("mqrr"), "FOREIGN", users=(USER,)) as made:
        yield made
        made.check()


def scapy(address: str, *arguments: str) -> str:
    if importlib.util.find_spec("msrpcs") is None:
        pytest.skip("scapy-rpc is not installed")
    return output([sys.executable, "-W", "ignore", str(SCRIPT), address, USER, PASSWORD, *arguments])


def go_msrpc(address: str, mechanism: str, *arguments: str) -> str:
    program = os.environ.get("LANNER_GO_MSRPC_READ")
    if not program:
        pytest.skip(
            "go-msrpc is not at hand: LANNER_GO_MSRPC_READ does not name the program of go_msrpc_remote_read.go"
        )
    return output([program, address, USER, PASSWORD, mechanism, *arguments])


def run(site: Served, client: str, *arguments: str) -> dict[str, object]:
    import json

    text = scapy(site.address, *arguments) if client == "scapy" else go_msrpc(site.address, client, *arguments)
    seen: dict[str, object] = json.loads(text)
    return seen


def prepared(manager: QueueManager, name: str) -> None:
    for queue, transactional in ((name, True), (f"{name}-answers", False)):
        made = manager.create_queue(rf".\private$\{queue}", transactional=transactional)
        made.grant(USER, "full")
    with manager.transaction() as unit:
        for body in (b"first", b"second", b"third", b"fourth", b"fifth"):
            manager.open(rf".\private$\{name}").send(
                Message(
                    body=body,
                    acknowledge=Acknowledgements.POS_RECEIVE | Acknowledgements.NEG_RECEIVE,
                    administration_queue=rf".\private$\{name}-answers",
                ),
                transaction=unit,
            )


@pytest.mark.parametrize("syntax", ["ndr", "ndr64"])
@pytest.mark.parametrize("client", ["scapy", "ntlm", "spnego"])
def test_all_methods(site: Served, client: str, syntax: str) -> None:
    name = f"{client}-{syntax}"
    with site.manager() as manager:
        prepared(manager, name)
        with connect(site.address, USER, PASSWORD) as user:
            backend = user._backend
            branch = Branch(
                uuid.UUID(backend.distributed("coordinator", resource="far")["identifier"]), uuid.uuid4(), "far"
            )
            identifier = str(branch.transaction)
            named = {"coordinator": str(branch.coordinator), "identifier": identifier, "resource": "far"}
            backend.distributed("begin distributed", identifier=identifier)
            seen = run(site, client, syntax, name, branch.transaction.bytes_le.hex(), pack_token(branch).hex())
            bodies = {
                what.removesuffix(" packet"): bytes(Packet(bytes.fromhex(str(seen.pop(what)))).body)
                for what in list(seen)
                if what.endswith(" packet") and seen[what]
            }
            assert bodies == {
                "peek": b"first",
                "receive": b"first",
                "next": b"second",
                "accepted": b"third",
                "rejected": b"fourth",
            }
            assert seen.pop("is_ndr64", syntax == "ndr64") == (syntax == "ndr64")
            assert seen.pop("empty packet") == ""
            assert seen.pop("cancel") == STATUS_NOT_FOUND
            assert seen.pop("empty") == MQ_ERROR_IO_TIMEOUT
            assert seen.pop("port") == 2103
            assert set(seen.values()) == {0}, seen
            queue, answers = (manager.open(rf".\private$\{one}") for one in (name, f"{name}-answers"))
            assert queue.count() == 2, "the two of the transaction are still there"
            classes = [int(one.message_class) for one in answers.receive_many(9, timeout=0)]
            assert sorted(classes) == [0x4000, 0xC001]
            backend.distributed("prepare", **named)
            backend.distributed("decide", identifier=identifier, resources=["far"])
            backend.distributed("end branch", commit=True, **named)
            classes = [int(one.message_class) for one in answers.receive_many(9, timeout=0)]
            assert sorted(classes) == [0x4000, 0xC004]
            assert queue.count() == 0
            assert manager.open(rf".\private$\{name};moved").receive(timeout=0).body == b"second"
