"""`lanner directory`, on a data directory and on a running queue manager.

The tests include its purpose: messages over a router.
"""

from __future__ import annotations

import base64
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import lanner
from lanner.client.runtimes import runtime_of
from lanner.directory.enterprise import to_toml
from lanner.model.enums import QueuePrivacyLevel
from lanner.model.errors import InvalidParameter
from lanner.security.profile import Profile
from lanner.wire.message import Message as Packet
from lanner.wire.public_keys import MqdsPublicKey, MqdsPublicKeys, ProviderType
from tests.cli.conftest import Run, Served, free_address
from tests.security.samples import queue_manager_keys

LIST = "b8a9f6de-12ab-4c8d-9b53-1e1c6a8f21aa"
FILE = rf"""
sites = ["HQ"]

[[links]]
sites = ["HQ", "Default-First-Site-Name"]
cost = 5
site_gates = ["GATE"]

[computers.GATE]
identifier = "0f5ef1a4-6a52-4a2b-9f0e-6ad5a3c0b8a1"
address = "gate.example.com"
sites = ["HQ"]

[distribution_lists.everybody]
identifier = "{LIST}"
members = ['DIRECT=OS:alpha\private$\a', 'DIRECT=OS:alpha\private$\b']
"""
DONE = [
    "site HQ is new",
    "computer GATE is new",
    "routing link HQ - Default-First-Site-Name is new",
    "distribution list everybody is new",
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "enterprise.toml"
    path.write_text(FILE)
    return path


@pytest.fixture(params=["stopped", "running"])
def place(request: pytest.FixtureRequest, run: Run, orders: str, serve: Callable[..., Served]) -> str:
    """Commands do the same on both."""
    run("queue", "create", "a")
    run("queue", "create", "b")
    if request.param == "running":
        serve("--json").ready()
    return orders


def test_an_enterprise_is_made_known_shown_and_forgotten(run: Run, place: str, file: Path) -> None:
    assert run("directory", "apply", file).out.splitlines() == DONE
    assert run("directory", "apply", file).out == "nothing has changed\n"
    assert run("directory", "apply", file, "--json").json == []
    shown = run("directory", "show")
    document = run("directory", "show", "--json").json
    assert tomllib.loads(shown.out) == document
    assert document["links"] == tomllib.loads(FILE)["links"]
    assert document["computers"]["GATE"] == tomllib.loads(FILE)["computers"]["GATE"]
    assert document["computers"]["ALPHA"]["sites"] == ["Default-First-Site-Name"]
    # What is shown can be given to others, and to itself.
    file.write_text(shown.out)
    assert run("directory", "apply", file).out == "nothing has changed\n"
    run("send", f"DL={LIST}", "to everybody")
    assert [run("receive", name, "--json").json["body"] for name in ("a", "b")] == ["to everybody"] * 2
    for what in (
        ("link", "hq", "Default-First-Site-Name"),
        ("computer", "gate"),
        ("list", "everybody"),
        ("site", "HQ"),
    ):
        assert run("directory", "remove", *what, "--yes").out == f"removed {what[0]} {' - '.join(what[1:])}\n"
    left = run("directory", "show", "--json").json
    assert (left["sites"], list(left["computers"])) == (["Default-First-Site-Name"], ["ALPHA"])
    assert len(left) == 2


@pytest.mark.parametrize(
    ("profile", "keys", "shown"),
    [
        (Profile.SAFE, slice(3), ""),
        (Profile.DOCUMENT, slice(3), "computer BETA: its key has 1024 bits: weak, 2048 are recommended"),
        (Profile.DOCUMENT, slice(1), "computer BETA: its key has 512 bits: too short, and used only with "),
    ],
)
def test_weak_keys_of_others_are_shown(
    run: Run, place: str, file: Path, profile: Profile, keys: slice, shown: str
) -> None:
    """Weak keys of other computers are shown as comments, which `apply` skips, and beside the JSON.

    `doctor` reports the weak keys of the peer.
    """
    entries = MqdsPublicKeys.unpack(queue_manager_keys(profile).public_key_lists()[0]).keys[keys]
    encoded = base64.b64encode(MqdsPublicKeys(entries).pack()).decode()
    beta = f"""
        [computers.BETA]
        identifier = "0f5ef1a4-6a52-4a2b-9f0e-6ad5a3c0b8a2"
        address = "127.0.0.9"
        sites = ["Default-First-Site-Name"]
        encryption_keys = "{encoded}"
    """
    file.write_text(beta)
    run("directory", "apply", file)
    text, told = run("directory", "show").out, run("directory", "show", "--json").err
    assert (f"# {shown}" in text, shown in told) == (bool(shown), True)
    assert ("BETA: its key" in text) is ("BETA: its key" in told) is bool(shown)
    file.write_text(text)
    assert run("directory", "apply", file).out == "nothing has changed\n"


def test_what_is_wrong_is_reported_and_nothing_is_done(run: Run, place: str, file: Path) -> None:
    before = run("directory", "show").out

    def refused(text: str) -> str:
        file.write_text(text)
        complaint = run("directory", "apply", file, code=1).err
        assert run("directory", "show").out == before
        return complaint

    assert "enterprise.toml: " in refused("[computers.")
    assert "computers.GATE.identifier: Input should be a valid UUID" in refused('[computers.GATE]\nidentifier = "x"')
    assert "computer GATE: its identifier is needed" in refused('sites = ["HQ"]\n[computers.GATE]')
    assert "routing link HQ - west: there is no site west" in refused(
        'sites = ["HQ"]\n[[links]]\nsites = ["HQ", "west"]'
    )
    assert "site nowhere: there is no site nowhere" in run("directory", "remove", "site", "nowhere", code=1).err
    assert "that is this one" in run("directory", "remove", "computer", "ALPHA", code=1).err
    assert "there is no such user" in run("directory", "remove", "user", "S-1-5-18", "--yes", code=1).err
    assert "what is removed:" in run("directory", "remove", "queue", "q", code=2).err
    assert "what is removed:" in run("directory", "remove", "link", "HQ", code=2).err


@pytest.fixture
def three(tmp_path: Path) -> Iterator[dict[str, lanner.QueueManager]]:
    """Queue managers of their own addresses, which know nothing of each other."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(lanner.QueueManager(tmp_path / name, name, bind=free_address()))
            for name in ("ALPHA", "GATE", "OMEGA")
        }


def test_messages_go_by_what_was_made_known(three: dict[str, lanner.QueueManager], tmp_path: Path) -> None:
    """A message goes from one site to another, over the computer between them.

    Its destination is a public queue, named by its identifier.
    """
    queue = three["OMEGA"].create_queue(r".\orders")
    sites = {"ALPHA": ["west"], "GATE": ["west", "east"], "OMEGA": ["east"]}
    computers = {}
    for name, manager in three.items():
        about = manager.enterprise.document()["computers"][name]
        computers[name] = about | {
            "sites": sites[name],
            "address": address_of(manager),
            "routing_server": name == "GATE",
        }
    # The same file for all.
    path = tmp_path / "enterprise.toml"
    path.write_text(to_toml({"sites": ["west", "east"], "computers": computers}))
    for manager in three.values():
        assert manager.enterprise.apply(path)
    identifier = computers["OMEGA"]["queues"]["orders"]
    three["ALPHA"].open(f"PUBLIC={identifier}").send(lanner.Message(body="over the gate", recoverable=True))
    message = queue.receive(20)
    assert message.body == "over the gate"
    assert Packet(message.packet).route_count == 1
    deadline = time.monotonic() + 20
    while any(waiting.count() for waiting in three["ALPHA"].outgoing_queues()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_encrypted_and_signed_is_read_and_known_at_the_other_end(
    three: dict[str, lanner.QueueManager], tmp_path: Path
) -> None:
    """The exported file contains the keys of computers and the certificates of signers."""
    alpha, omega = three["ALPHA"], three["OMEGA"]
    queue = omega.create_queue(r".\orders", authentication=True, privacy_level=QueuePrivacyLevel.BODY)
    secret = lanner.Message(body="secret", authenticate=True, encrypt=True, use_dead_letter_queue=True)
    alpha.create_queue("here").send(lanner.Message(body="signed", authenticate=True))
    documents = [manager.enterprise.document() for manager in (alpha, omega)]
    computers = {name: about for document in documents for name, about in document["computers"].items()}
    for name, about in computers.items():
        about["address"] = address_of(three[name])
    path = tmp_path / "enterprise.toml"
    path.write_text(to_toml({"computers": computers, "users": documents[0]["users"]}))
    for manager in (alpha, omega):
        assert manager.enterprise.apply(path)
    alpha.open(f"PUBLIC={computers['OMEGA']['queues']['orders']}").send(secret)
    message = queue.receive(20)
    assert (message.body, message.encrypt, message.authenticated) == ("secret", True, True)
    # What is encrypted for keys that this computer lacks could not be decrypted.
    others = MqdsPublicKeys((MqdsPublicKey(ProviderType.PROV_RSA_FULL, "a provider", b"a key"),)).pack()
    computers["ALPHA"]["encryption_keys"] = base64.b64encode(others).decode()
    with pytest.raises(InvalidParameter, match="computer ALPHA: that is this one, and the file has other keys"):
        alpha.enterprise.apply({"computers": computers})


def address_of(manager: lanner.QueueManager) -> str:
    (address,) = runtime_of(manager).engine.settings.local_addresses
    return address
