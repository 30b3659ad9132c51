"""`lanner resolve`, and the spellings of names on the command line.

The tests use a data directory and `lanner serve`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from lanner.host.addresses import host_computer_name
from tests.cli.conftest import Run, Served, free_address

GUID = "01020304-0506-0708-090a-0b0c0d0e0f10"
NET = r"FormatName:DIRECT=OS:.\private$\orders"
ORDERS = [
    "orders",
    r"private$\orders",
    r".\private$\orders",
    r"ALPHA\private$\orders",
    r"DIRECT=OS:.\private$\orders",
    NET,
    r"formatname:direct=os:localhost\PRIVATE$\orders",
]


@pytest.fixture(params=["directory", "served"])
def started(request: pytest.FixtureRequest, run: Run, serve: Callable[..., Served], orders: str) -> str:
    """Have a queue manager ALPHA with a queue, on its data directory or as a process."""
    del orders
    if request.param == "served":
        serve("--json").ready()
    return str(request.param)


def test_every_spelling_is_taken_by_every_command(run: Run, started: str) -> None:
    del started
    for name in ORDERS:
        reply = rf"FormatName:DIRECT=OS:.\private$\{name[-6:]}"
        run("send", name, name, "--response-queue", reply, "--admin-queue", NET, "--ack", "full_receive")
        message = run("peek", name, "--json").json
        assert message["response_queue"].lower() == r"direct=os:alpha\private$\orders"
        assert message["administration_queue"].lower() == r"direct=os:alpha\private$\orders"
        assert name in run("receive", name).out
        run("queue", "purge", name, code=0)
    assert run("queue", "show", NET, "--json").json["name"] == r"ALPHA\private$\orders"
    run("outgoing", "list", code=3)
    run("queue", "delete", NET, "--yes")
    assert r"private$\orders" not in run("queue", "list").out


def test_a_queue_of_another_computer_is_named_with_the_prefix(run: Run, started: str) -> None:
    del started
    run("send", r"FormatName:DIRECT=TCP:127.0.0.99\private$\far", "x")
    assert run("outgoing", "show", r"formatname:DIRECT=TCP:127.0.0.99\private$\far", "--json").json["messages"] == 1


def test_a_local_queue(run: Run, started: str) -> None:
    del started
    for name in ORDERS:
        (found,) = run("resolve", name, "--json").json["destinations"]
        assert (found["local"], found["problem"]) == (True, None)
        assert found["queue"] == {"name": r"ALPHA\private$\orders", "kind": "private", "messages": 0}
    assert run("resolve", NET).out.splitlines() == [
        rf" 1. {NET} is a format name after the prefix of System.Messaging",
        r" 2. as a format name it is DIRECT=OS:ALPHA\private$\orders, because this computer is ALPHA",
        " 3. ALPHA is this computer",
        r" 4. the queue ALPHA\private$\orders is there: private, 0 messages",
    ]
    assert run("resolve", r"DIRECT=OS:localhost\private$\orders").out.splitlines()[1:3] == [
        r" 2. as a format name it is DIRECT=OS:ALPHA\private$\orders, because this computer is ALPHA",
        " 3. ALPHA is this computer",
    ]
    assert run("resolve", r"DIRECT=OS:alpha\private$\orders").out.splitlines()[2] == " 3. alpha is this computer"


@pytest.mark.parametrize(
    ("name", "spelling", "kind"),
    [
        ("orders;journal", "short_name", "journal"),
        ("system$;deadletter", "short_path_name", "system"),
        (r"ALPHA\private$\orders", "path_name", "private"),
        (r"DIRECT=OS:alpha\private$\orders", "format_name", "private"),
        (NET, "prefixed", "private"),
    ],
)
def test_the_spelling_and_the_kind_are_reported(run: Run, orders: str, name: str, spelling: str, kind: str) -> None:
    del orders
    document = run("resolve", name, "--json").json
    assert (document["spelling"], document["queue_manager"]) == (spelling, "ALPHA")
    assert document["destinations"][0]["queue"]["kind"] == kind


def test_a_queue_that_is_not_here(run: Run, started: str) -> None:
    del started
    ran = run("resolve", "nothing", code=3)
    assert "there is no such queue: `lanner queue create` makes one" in ran.out
    assert r"there is no queue DIRECT=OS:ALPHA\private$\nothing on ALPHA" in ran.err
    (found,) = run("resolve", "nothing", "--json", code=3).json["destinations"]
    assert (found["local"], found["queue"]) == (True, None)


def test_another_computer(run: Run, started: str) -> None:
    del started
    name = r"DIRECT=TCP:127.0.0.99\private$\far"
    ran = run("resolve", name)
    assert ran.out.splitlines()[2:] == [
        " 3. 127.0.0.99 is another computer (protocol TCP)",
        " 4. 127.0.0.99 has the address 127.0.0.99 (the name is an address)",
        " 5. there is no outgoing queue for it yet: the first message creates one",
    ]
    run("send", name, "x")
    (found,) = run("resolve", name, "--json").json["destinations"]
    assert found["local"] is False
    assert (found["protocol"], found["computer"], found["addresses"]) == ("TCP", "127.0.0.99", ["127.0.0.99"])
    assert found["outgoing"] == {"name": name, "messages": 1}
    assert f"its outgoing queue holds 1 message: `lanner outgoing show '{name}'` says more" in run("resolve", name).out


def test_a_computer_without_an_address(run: Run, orders: str) -> None:
    del orders
    ran = run("resolve", r"nowhere.invalid\private$\q", code=3)
    assert 'or in the settings: [peers] nowhere.invalid = "ADDRESS"' in ran.out
    assert "lanner: nowhere.invalid has no address" in ran.err


def test_the_peers_of_the_settings_are_known(
    run: Run, serve: Callable[..., Served], orders: str, tmp_path: Path
) -> None:
    del orders
    settings = tmp_path / "lanner.toml"
    settings.write_text('[peers]\nbeta = "127.0.0.98"\n')
    serve("--json", "--config", settings).ready()
    ran = run("resolve", r"BETA\private$\q")
    assert "BETA has the address 127.0.0.98 (from the peers table of the settings)" in ran.out


def test_several_destinations(run: Run, orders: str) -> None:
    del orders
    name = r"FormatName:DIRECT=OS:.\private$\orders,DIRECT=TCP:127.0.0.99\q"
    assert "it names 2 destinations, and each gets a copy of the message" in run("resolve", name).out
    document = run("resolve", name, "--json").json
    assert [one["local"] for one in document["destinations"]] == [True, False]


def test_identifiers_are_looked_up_in_the_directory(run: Run, started: str, tmp_path: Path) -> None:
    del started
    document = tmp_path / "enterprise.toml"
    document.write_text(
        f"""
        [computers.BETA]
        identifier = "{GUID}"
        address = "127.0.0.98"
        queues = {{ orders = "11020304-0506-0708-090a-0b0c0d0e0f10" }}
        [distribution_lists.everybody]
        identifier = "21020304-0506-0708-090a-0b0c0d0e0f10"
        members = ['FormatName:DIRECT=OS:BETA\\private$\\a', 'BETA\\private$\\b']
        """
    )
    run("directory", "apply", document)
    for name in (
        "PUBLIC=11020304-0506-0708-090a-0b0c0d0e0f10",
        f"FormatName:PRIVATE={GUID}\\5",
        f"MACHINE={GUID};JOURNAL",
    ):
        ran = run("resolve", name)
        assert "in the directory the identifier is of the computer BETA" in ran.out
        assert "127.0.0.98 has the address 127.0.0.98" in ran.out
    (found,) = run("resolve", "DL=21020304-0506-0708-090a-0b0c0d0e0f10", "--json").json["destinations"]
    assert found["members"] == [r"DIRECT=OS:BETA\private$\a", r"DIRECT=OS:BETA\private$\b"]
    for name in (f"PUBLIC={GUID}", f"DL={GUID}"):
        assert "this name cannot be sent to from here" in run("resolve", name, code=3).out


def test_the_private_name_of_a_queue_here(run: Run, orders: str) -> None:
    identifier = run("directory", "show", "--json").json["computers"]["ALPHA"]["identifier"]
    ran = run("resolve", f"MACHINE={identifier};DEADLETTER")
    assert "the identifier is of this computer, ALPHA" in ran.out
    assert "there is no such queue" in run("resolve", f"PRIVATE={identifier}\\ffff", code=3).out


def test_multicast(run: Run, orders: str) -> None:
    del orders
    ran = run("resolve", "MULTICAST=224.0.0.5:8080", code=3)
    assert "the multicast group 224.0.0.5, port 8080" in ran.out
    assert "this version does not send to multicast groups: this name cannot be sent to from here" in ran.out
    assert "this version does not send to multicast groups" in run("send", "MULTICAST=224.0.0.5:8080", "x", code=1).err


def test_http(run: Run, orders: str) -> None:
    del orders
    ran = run("resolve", "DIRECT=HTTP://192.0.2.7/msmq/private$/orders", code=3)
    assert "192.0.2.7 is another computer (protocol HTTP)" in ran.out
    assert "this version does not send over HTTP (MC-MQSRM): this name cannot be sent to from here" in ran.out
    assert (
        "the queue ALPHA\\private$\\orders is there" in run("resolve", "DIRECT=HTTP://alpha/msmq/private$/orders").out
    )


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (
            ".private$orders",
            (
                "name '.private$orders': a queue name that begins with a dot; "
                "a shell removes backslashes outside quotes, "
                r"so write the name in single quotes; did you mean '.\private$\orders'?"
            ),
        ),
        (
            r"beta:1801\private$\q",
            (
                r"name 'beta:1801\private$\q': the computer name 'beta:1801' ends in a port; names have none, "
                r"the port is a setting; did you mean 'beta\private$\q'?"
            ),
        ),
        (
            r"DIRECT=OS:a=b\q",
            (
                r"format name 'DIRECT=OS:a=b\q': '=' is not allowed in a computer name, here 'a=b'; "
                r"did you mean 'DIRECT=OS:a-b\q'?"
            ),
        ),
        (
            "Label:orders",
            (
                "name 'Label:orders': a label does not name a queue, because several queues may have the same: "
                r"`lanner queue list` shows the labels; give the path name of the queue, as in '.\private$\orders'"
            ),
        ),
    ],
)
def test_what_is_no_name_is_an_error(run: Run, started: str, name: str, complaint: str) -> None:
    del started
    for command in (["resolve", name], ["send", name, "x"], ["send", "orders", "x", "--response-queue", name]):
        assert run(*command, code=1).err.startswith(f"lanner: {complaint} [MQ_ERROR_ILLEGAL_")
    run("outgoing", "list", code=3)


# The name of a new queue manager
# -----------------------------------------------------------------------------------


def test_a_new_queue_manager_has_the_name_of_the_host(run: Run, serve: Callable[..., Served]) -> None:
    own = host_computer_name()
    assert serve("--json").ready()["name"] == own
    run("queue", "create", "orders")
    host = socket.gethostname()
    for name in (rf"{host}\private$\orders", rf"DIRECT=OS:{host.partition('.')[0]}\private$\orders"):
        assert run("resolve", name, "--json").json["destinations"][0]["queue"]["name"] == rf"{own}\private$\orders"


def test_a_data_directory_keeps_the_name_it_has(run: Run, serve: Callable[..., Served], orders: str) -> None:
    del orders
    assert serve("--json").ready()["name"] == "ALPHA"
    assert run("resolve", "orders", "--json").json["queue_manager"] == "ALPHA"


def test_the_address_it_is_bound_to_is_local(run: Run, serve: Callable[..., Served], orders: str) -> None:
    del orders
    address, other = free_address(), free_address()
    serve("--json", "--bind", address).ready()
    (found,) = run("resolve", rf"DIRECT=TCP:{address}\private$\orders", "--json").json["destinations"]
    assert found["local"]
    (found,) = run("resolve", rf"DIRECT=TCP:{other}\private$\orders", "--json").json["destinations"]
    assert not found["local"]
