"""`lanner send`, `peek` and `receive`."""

from __future__ import annotations

import base64
import datetime as dt
import re
from pathlib import Path

import pytest

from lanner.cli.errors import CommandError
from lanner.client import Message, QueueManager
from lanner.host.reads import Read
from lanner.security.certificates import generate_certificate
from lanner.wire.message import Message as Packet
from tests.cli.conftest import Run

KEYS = {
    "queue", "id", "lookup_id", "label", "body", "body_encoding", "body_type", "body_size", "class", "priority",
    "recoverable", "transactional", "sent_time", "arrived_time", "time_to_reach_queue", "time_to_be_received",
    "correlation_id", "destination_queue", "response_queue", "administration_queue", "acknowledge",
    "use_dead_letter_queue", "use_journal_queue", "use_tracing", "tracing_queue", "app_specific", "extension",
    "authenticated", "encrypted", "source_machine", "sender_id", "sender_verified", "connector_type",
    "abort_count", "move_count", "body_kind", "body_value", "body_type_name", "body_reason",
}  # fmt: skip


def bodies(run: Run, *arguments: str) -> list[str]:
    return [message["body"] for message in run(*arguments, "--json").lines]


def test_text_is_sent_as_a_bstr_and_received_as_text(run: Run, orders: str) -> None:
    identifier = run("send", orders, "grüße", "--label", "one", "--json").json["id"]
    message = run("receive", orders, "--json").json
    assert set(message) == KEYS
    assert (message["id"], message["label"], message["body"]) == (identifier, "one", "grüße")
    assert (message["body_encoding"], message["body_type"], message["body_size"]) == ("text", 8, 10)
    assert (message["body_kind"], message["body_value"], message["body_type_name"]) == ("text", "grüße", "VT_BSTR")
    assert message["recoverable"]
    assert message["sender_verified"] is True
    assert "is empty" in run("receive", orders, code=3).err


def test_the_body_may_be_an_option_a_file_or_standard_input(run: Run, orders: str, tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"from a file")
    run("send", orders, "--body", "option")
    run("send", orders, "--file", file)
    run("send", orders, "--file", "-", stdin=b"dash")
    run("send", orders, stdin=b"piped")
    assert bodies(run, "peek", orders, "--all") == ["option", "from a file", "dash", "piped"]
    assert "more than one body" in run("send", orders, "x", "--body", "y", code=2).err


def test_bytes_are_base64_in_json_hexadecimal_for_people_and_themselves_with_raw(run: Run, orders: str) -> None:
    body = bytes(range(256))
    run("send", orders, stdin=body)
    message = run("peek", orders, "--json").json
    assert message["body_encoding"] == "base64"
    assert base64.b64decode(message["body"]) == body
    shown = run("peek", orders).out
    assert re.search(r"^sender +S-1-[-0-9]+ \(verified\)$", shown, re.MULTILINE)
    assert "0000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f  ................" in shown
    assert "0030  30 31 32" in shown
    assert "0040" not in shown
    assert "256 bytes in all" in shown
    assert run("receive", orders, "--raw").raw == body


@pytest.mark.parametrize("command", ["peek", "receive"])
def test_bodies_of_other_programs_are_decoded(run: Run, orders: str, command: str) -> None:
    currency = (1 << 62).to_bytes(8, "little")
    run("send", orders, "--body-type", "6", stdin=currency)
    run("send", orders, "--body-type", "3", stdin=b"\x2a\0\0\0\0")
    run("send", orders, "--body-type", "bytes", stdin=b"<Order><Id>7</Id></Order>")
    stream = bytes.fromhex("00 01000000 ffffffff 01000000 00000000 06 01000000 02 6162 0b")
    run("send", orders, "--body-type", "768", stdin=stream)
    members = ("body_kind", "body_value", "body_type_name", "body_reason")
    messages = run("peek", orders, "--all", "--json").lines
    assert [[message[member] for member in members] for message in messages] == [
        ["decimal", "461168601842738.7904", "VT_CY", None],
        ["bytes", "KgAAAAA=", "VT_I4", "VT_I4: 5 bytes, 4 expected"],
        ["xml", {"Id": "7"}, "Order", None],
        ["binary_formatter", base64.b64encode(stream).decode(), "System.String", None],
    ]
    shown = "\n".join(" ".join(line.split()) for line in run(command, orders, "--all").out.splitlines())
    assert "body decimal (VT_CY), 8 B\nvalue 461168601842738.7904\n\n0000 00 00 00" in shown
    assert "body bytes (VT_I4), 5 B\nnot decoded VT_I4: 5 bytes, 4 expected\n\n0000 2a 00 00" in shown
    assert 'body xml (Order), 25 B\nvalue {"Id": "7"}\n\n<Order><Id>7</Id></Order>' in shown
    assert "body binary formatter (System.String), 26 B\n\n0000 00 01 00" in shown


def test_control_characters_do_not_reach_the_terminal(run: Run, orders: str) -> None:
    run("send", orders, "a\x1b[2Jb", "--label", "l\x07")
    shown = run("peek", orders).out
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert r"a\x1b[2Jb" in shown


def test_every_property_can_be_set(run: Run, orders: str) -> None:
    run("queue", "create", "answers")
    first = run("send", orders, "x", "--json").json["id"]
    run("receive", orders)
    connector = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
    reports = "5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e11"
    run(
        "send", orders, "x", "--priority", "7", "--ttrq", "1h", "--ttbr", "1.5m", "--dead-letter", "--journal",
        "--trace", reports, "--ack", "full-receive", "--admin-queue", "answers", "--response-queue", "answers",
        "--correlation-id", first, "--app-specific", "42", "--extension", "00ff",
        "--connector-type", connector, "--body-type", "lpwstr",
    )  # fmt: skip
    message = run("peek", orders, "--json").json
    expected = {
        "priority": 7, "time_to_reach_queue": 3600, "time_to_be_received": 90, "use_dead_letter_queue": True,
        "use_journal_queue": True, "use_tracing": True, "tracing_queue": reports,
        "acknowledge": ["pos_receive", "neg_arrival", "neg_receive"],
        "response_queue": r"DIRECT=OS:ALPHA\private$\answers",
        "administration_queue": r"DIRECT=OS:ALPHA\private$\answers",
        "correlation_id": first, "app_specific": 42, "extension": "AP8=", "connector_type": connector, "body_type": 31,
        "body": "x",
    }  # fmt: skip
    assert {key: message[key] for key in expected} == expected


def test_a_message_is_signed_with_a_key_and_its_certificate(run: Run, data: Path, tmp_path: Path) -> None:
    made = generate_certificate("alice", dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    certificate, key = tmp_path / "alice.der", tmp_path / "alice.key"
    certificate.write_bytes(made.certificate)
    key.write_bytes(made.private_key)
    run("queue", "create", "signed", "--authenticate")
    assert "signed messages only" in run("send", "signed", "x", code=1).err
    run("send", "signed", "x", "--sign-key", key, "--certificate", certificate)
    assert run("receive", "signed", "--json").json["authenticated"]
    far = r"DIRECT=OS:other\private$\far"
    run("send", far, "x", "--sign-key", key, "--certificate", certificate)
    with QueueManager(data) as manager:
        sent = manager.open(far).peek(0)
        assert sent.sender_certificate == made.certificate
        assert Packet(sent.packet).signature
    assert "--certificate" in run("send", far, "x", "--sign-key", key, code=2).err
    assert "PKCS#8" in run("send", far, "x", "--sign-key", certificate, "--certificate", certificate, code=1).err


def test_a_message_is_signed_with_a_key_of_the_queue_managers(run: Run, data: Path) -> None:
    run("queue", "create", "signed", "--authenticate")
    assert "`lanner send --authenticate`" in run("send", "signed", "x", code=1).err
    run("send", "signed", "x", "--authenticate")
    assert run("receive", "signed", "--json").json["authenticated"]


def test_a_body_without_an_end_is_not_read_to_it(run: Run, orders: str) -> None:
    assert "at most 4.0 MiB" in run("send", orders, "--file", "/dev/zero", code=1).err


def test_a_transactional_queue_gets_a_transaction_of_its_own(run: Run) -> None:
    run("queue", "create", "t", "--transactional")
    assert run("send", "t", "x", "--json").json["transactional"]
    assert run("receive", "t", "--json").json["transactional"]


def test_transactional_messages_for_another_computer_need_the_option(run: Run, orders: str) -> None:
    run("send", r"DIRECT=OS:other\private$\far", "plain")
    run("send", r"DIRECT=OS:other\private$\far", "unit", "--transaction")
    messages = run("peek", r"DIRECT=OS:other\private$\far", "--all", "--json").lines
    assert {message["body"]: message["transactional"] for message in messages} == {"plain": False, "unit": True}


def test_an_express_message_is_gone_with_the_command_which_says_so(run: Run, orders: str) -> None:
    assert "gone" in run("send", orders, "x", "--express").err
    run("peek", orders, code=3)


def test_peek_leaves_and_receive_takes_as_many_as_asked_for(run: Run, orders: str) -> None:
    for body in "abcd":
        run("send", orders, body)
    assert bodies(run, "peek", orders) == ["a"]
    assert bodies(run, "peek", orders, "-n", "2") == ["a", "b"]
    assert bodies(run, "receive", orders, "-n", "2") == ["a", "b"]
    assert bodies(run, "receive", orders, "--all") == ["c", "d"]


def test_priority_decides_the_order(run: Run, orders: str) -> None:
    for priority in "270":
        run("send", orders, priority, "--priority", priority)
    assert bodies(run, "receive", orders, "--all") == ["7", "2", "0"]


def test_a_message_is_found_by_its_lookup_id_and_next_to_it(run: Run, orders: str) -> None:
    for body in "abc":
        run("send", orders, body)
    identifiers = [message["lookup_id"] for message in run("peek", orders, "--all", "--json").lines]
    assert all(isinstance(identifier, str) for identifier in identifiers)
    assert bodies(run, "peek", orders, "--lookup-id", identifiers[1]) == ["b"]
    assert bodies(run, "peek", orders, "--lookup-id", hex(int(identifiers[1])), "--where", "next") == ["c"]
    assert bodies(run, "peek", orders, "--lookup-id", identifiers[1], "--where", "previous") == ["a"]
    assert bodies(run, "peek", orders, "--where", "last") == ["c"]
    assert bodies(run, "receive", orders, "--lookup-id", identifiers[1]) == ["b"]
    assert "no message with lookup id" in run("receive", orders, "--lookup-id", identifiers[1], code=3).err
    assert bodies(run, "peek", orders, "--all") == ["a", "c"]


def test_a_wait_that_ends_without_a_message_has_exit_code_3(run: Run, orders: str) -> None:
    assert "no message came in time" in run("receive", orders, "--timeout", "0.001", code=3).err
    assert "no message came in time" in run("peek", orders, "--timeout", "0.001", code=3).err


def test_a_wait_ends_at_once_where_there_is_a_message(run: Run, orders: str) -> None:
    run("send", orders, "x")
    assert bodies(run, "peek", orders, "--timeout", "forever") == ["x"]
    assert bodies(run, "receive", orders, "--timeout", "1h", "--all") == ["x"]


def test_messages_that_could_not_be_written_stay(run: Run, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for body in "ab":
        run("send", orders, body)

    def broken(*_: object, **__: object) -> None:
        raise CommandError("no room for output")

    with monkeypatch.context() as patch:
        patch.setattr("lanner.cli.reading.show_message", broken)
        run("receive", orders, "--all", code=1)
    assert bodies(run, "peek", orders, "--all") == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--ttbr", "soon"), "5m"),
        (("--ack", "full-receive"), "--admin-queue"),
        (("--body-type", "text"), "bstr"),
        (("--extension", "xyz"), "hexadecimal"),
        (("--connector-type", "x"), "a GUID"),
    ],
)
def test_a_property_without_meaning_is_a_usage_error(
    run: Run, orders: str, options: tuple[str, ...], complaint: str
) -> None:
    assert complaint in run("send", orders, "x", *options, code=2).err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--ack", "always", "--admin-queue", "orders"), "acknowledge 'always'"),
        (("--correlation-id", "x"), "correlation_id 'x'"),
        (("--hash", "crc"), "hash_algorithm 'crc'"),
        (("--file", "missing.bin"), "missing.bin"),
    ],
)
def test_a_property_that_cannot_be_sent_is_named(
    run: Run, orders: str, options: tuple[str, ...], complaint: str
) -> None:
    arguments = () if options[0] == "--file" else ("x",)
    assert complaint in run("send", orders, *arguments, *options, code=1).err


@pytest.mark.parametrize(
    "arguments", [("--lookup-id", "x"), ("--lookup-id", "-1"), ("--where", "next"), ("--where", "up")]
)
def test_a_place_without_meaning_is_a_usage_error(run: Run, orders: str, arguments: tuple[str, ...]) -> None:
    run("peek", orders, *arguments, code=2)


def test_a_message_is_encrypted_with_aes_unless_another_cipher_is_named(run: Run, orders: str, data: Path) -> None:
    run("queue", "create", "private", "--privacy", "body")
    for cipher, level in (((), 5), (("--cipher", "rc4"), 3)):
        run("send", "private", "x", "--encrypt", *cipher)
        with QueueManager(data) as qm:
            assert Packet(qm.open("private").receive(0).packet).privacy_level == level


def test_nothing_is_encrypted_for_a_direct_name(run: Run, orders: str) -> None:
    """It would wait for its computer, and become a dead letter there."""
    complaint = run("send", r"direct=OS:beta\private$\q", "x", "--encrypt", code=2).err
    assert "does not say whose key to encrypt with" in complaint
    run("outgoing", "list", code=3)


def test_ctrl_c_is_no_error_and_leaves_the_messages(run: Run, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Read, timeout: float | None) -> None:
        del timeout
        self.abandon()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Read, "block", interrupted)
        stopped = run("receive", orders, "--timeout", "60", code=130)
        assert (stopped.out, stopped.err) == ("", "")
        assert "KeyboardInterrupt" in run("receive", orders, "--timeout", "60", "--debug", code=130).err
    run("send", orders, "x")
    assert run("receive", orders, "--json").json["body"] == "x"


def test_raw_gives_text_as_utf_8_or_as_it_is_said(run: Run, orders: str) -> None:
    run("send", orders, "Straße")
    assert run("peek", orders, "--raw").raw == "Straße".encode()
    assert run("peek", orders, "--raw", "--encoding", "latin-1").raw == "Straße".encode("latin-1")
    assert run("peek", orders, "--raw", "--encoding", "as-is").raw == "Straße".encode("utf-16-le")
    assert "no encoding of Python" in run("peek", orders, "--raw", "--encoding", "klingon", code=2).err
    assert "cannot be written as ascii" in run("receive", orders, "--raw", "--encoding", "ascii", code=1).err
    assert run("peek", orders, "--json").json["body"] == "Straße"


def test_raw_leaves_octets_alone(run: Run, orders: str, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\xff\x00\xfe")
    run("send", orders, "--file", tmp_path / "body")
    assert run("receive", orders, "--raw").raw == b"\xff\x00\xfe"


def test_the_list_of_dead_letters_has_the_reason(run: Run, orders: str, data: Path) -> None:
    with QueueManager(data) as manager:
        manager.open(orders).send(
            Message(body="x", recoverable=True, time_to_be_received=0, use_dead_letter_queue=True)
        )
        manager.dead_letter.peek(10)
    listed = run("deadletter", "list").out
    assert "REASON" in listed
    assert "not received in time" in listed
