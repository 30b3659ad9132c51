"""Valid options and offsets, and the errors for invalid ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.errors import InvalidParameter
from lanner.security.private_files import PrivateFileError
from lanner.spark.source.connections import Access, parse_address
from lanner.spark.source.offsets import ManagerOffset, Offset, QueueOffset
from lanner.spark.source.options import batch_options, stream_options, write_options
from lanner.spark.source.queue_names import matches

NUMBERS = st.integers(0, (1 << 63) - 1)
QUEUES = st.builds(
    lambda name, start, more, messages: QueueOffset(name, start, start + more, messages),
    st.text(min_size=1),
    NUMBERS,
    st.integers(0, 1000),
    NUMBERS,
)
MANAGERS = st.builds(ManagerOffset, NUMBERS, st.dictionaries(st.integers(0, 1 << 32), QUEUES, max_size=3))


@given(st.dictionaries(st.uuids().map(str), MANAGERS, max_size=3))
def test_offsets_survive_json_and_always_give_the_same_text(managers: dict[str, ManagerOffset]) -> None:
    """Spark compares texts: the same offset in another order would be a new batch."""
    text = json.dumps(Offset(managers).to_dict())
    assert Offset.parse(text, "offset") == Offset(managers)
    turned = Offset({name: managers[name] for name in reversed(managers)})
    assert json.dumps(turned.to_dict()) == text == json.dumps(json.loads(text), sort_keys=True)


WHOLE = Offset({"qm": ManagerOffset(3, {7: QueueOffset("q", 1, 5, 4)})}).to_dict()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"v": 1', '"v": 2', "v is 2, and this version of Lanner reads 1"),
        ('"to": 5', '"to": -5', "to is -5: a number from 0 on expected"),
        ('"to": 5', '"to": 0', "queue q: to 0 is before from 1"),
        ('"to": 5', '"too": 5', "managers qm, queues 7: to is missing"),
        ('"epoch": 3', '"epoch": "3"', "epoch is '3': a number"),
        ('"7"', '"seven"', "'seven' is not the number of a queue"),
        ('"v": 1', '"v": 1, "w": 2', "w: unknown"),
        ("{", "", "not JSON"),
    ],
)
def test_a_wrong_offset_is_reported(old: str, new: str, words: str) -> None:
    text = json.dumps(WHOLE).replace(old, new, 1)
    with pytest.raises(InvalidParameter, match=words):
        Offset.parse(text, "option startingOffsets")


def test_a_batch_read_has_these_defaults() -> None:
    options = batch_options({"QUEUES": "a, b"})
    assert (options.queues, options.columns, options.include_body) == (("a", "b"), "all", True)
    assert options.access == Access(("grpc://127.0.0.1:1810",), retry=5)
    assert (options.starting, options.ending, options.fail_on_data_loss) == ("earliest", None, False)


def test_streams_have_limits_unless_told_and_receivers_fail_on_loss() -> None:
    options = stream_options({"queues": "a"})
    assert options.max_bytes >= 64 << 20
    assert options.max_messages == 1_000_000
    assert not options.fail_on_data_loss
    assert stream_options({"queues": "a", "mode": "receive", "reader": "r"}).fail_on_data_loss


def test_lists_have_commas_or_are_json() -> None:
    assert batch_options({"queues": '["a,b", "c"]'}).queues == ("a,b", "c")
    assert batch_options({"queues": "[ab]*,c"}).queues == ("[ab]*", "c")
    assert batch_options({"path": "a"}).queues == ("a",)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queues": "a", "startingOffsets": "yesterday"}, "'yesterday': earliest, latest, or the JSON"),
        ({"queues": "a,,b"}, "nothing empty in it"),
        ({"queues": "a", "path": "b"}, "leave one out"),
        ({"queues": "a", "minPartitions": "0"}, "option minPartitions = '0': a number from 1 on expected"),
        ({"queues": "a", "minPartitions": "-1"}, "a number from 1 on expected"),
        ({"queues": "a", "includeBody": "yes"}, "option includeBody = 'yes': true or false expected"),
        ({"queues": "a", "mode": "eventful"}, "option mode = 'eventful': peek or receive or events expected"),
        ({"queues": "a", "mode": "receive"}, "mode receive needs the option reader"),
        ({"queues": "a", "startingOffsets": "latest"}, "startingOffsets latest needs the option reader"),
        ({"queues": "a", "transport": "pigeon"}, "option transport = 'pigeon': flight or rpc expected"),
        ({"queues": "a", "managers": "grpc://x:y"}, "a host, host:port"),
        ({"queues": "a", "managers": "http://x"}, "a host, host:port"),
        ({"queues": "a", "managers": "root:secret@x"}, "user and password do not belong into an address"),
        ({"queues": "a", "passwordEnv": "X"}, "needs the option user"),
        ({"queues": "a", "user": "u", "passwordEnv": "X", "passwordFile": "y"}, "only one of them"),
        ({"queues": "a", "endingOffsets": "latest"}, "option endingOffsets is for a batch read, not for a stream read"),
        ({"queues": "a", "token": "t"}, "a secret cannot be one"),
        ({"queues": "a", "maxBytes": "5"}, "there is no option 'maxBytes'; the nearest is 'maxBytesPerTrigger'"),
    ],
)
def test_a_wrong_option_of_a_stream_is_reported(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        stream_options(options)


def test_a_write_has_options_of_its_own() -> None:
    assert write_options({"queue": "q", "checkpointLocation": "x"}, is_stream=True).queue == "q"
    given = write_options({"managers": "a,b"}, is_stream=False)
    assert given.access.managers == ("grpc://a:1810", "grpc://b:1810")
    with pytest.raises(InvalidParameter, match="option writeId is for a batch write, not for a stream write"):
        write_options({"writeId": "x"}, is_stream=True)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("alpha", "grpc://alpha:1810"),
        ("10.0.0.1:99", "grpc://10.0.0.1:99"),
        ("[::1]", "grpc://[::1]:1810"),
        ("grpc+tls://alpha.example.com", "grpc+tls://alpha.example.com:1810"),
    ],
)
def test_an_address_may_be_short(given: str, address: str) -> None:
    assert parse_address(given) == address


def test_a_password_comes_from_a_private_file_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    access = Access((), "u", str(file))
    with pytest.raises(InvalidParameter, match="needed on the driver and on every worker"):
        access.password()
    file.write_text("pass word\n")
    file.chmod(0o644)
    with pytest.raises(PrivateFileError, match="chmod 600"):
        access.password()
    file.chmod(0o600)
    assert access.password() == "pass word"
    monkeypatch.setenv("LANNER_PASSWORD", "from here")
    monkeypatch.setenv("OTHER", "from there")
    assert Access((), "u").password() == "from here"
    assert Access((), "u", None, "OTHER").password() == "from there"
    assert Access(()).password() is None


@pytest.mark.parametrize(
    ("pattern", "name", "kind", "is_meant"),
    [
        ("*", r"DIRECT=OS:A\private$\orders", "destination", True),
        ("*", r"DIRECT=OS:A\private$\orders;journal", "journal", False),
        ("*;*", r"DIRECT=OS:A\private$\orders;journal", "journal", True),
        ("*", r"DIRECT=OS:A\private$\admin_queue$", "admin", False),
        ("admin*$", r"DIRECT=OS:A\private$\admin_queue$", "admin", True),
        ("*", r"DIRECT=OS:B\private$\orders", "outgoing", False),
        ("direct=os:b*", r"DIRECT=OS:B\private$\orders", "outgoing", True),
        ("FormatName:DIRECT=OS:b*", r"DIRECT=OS:B\private$\orders", "outgoing", True),
        ("*;*", r"DIRECT=OS:A\system$;DEADLETTER", "deadletter", False),
        ("system$;*", r"DIRECT=OS:A\system$;DEADLETTER", "deadletter", True),
        ("o?ders", r"DIRECT=OS:A\private$\Orders", "destination", True),
        ("order", r"DIRECT=OS:A\private$\orders", "destination", False),
    ],
)
def test_what_a_pattern_means(pattern: str, name: str, kind: str, is_meant: bool) -> None:
    assert matches(pattern, name, kind) is is_meant


def test_managers_are_found_in_a_file_and_in_dns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = tmp_path / "fleet"
    fleet.write_text("alpha  # in Berlin\n\n10.0.0.2:1811\nalpha\n")
    found = batch_options({"managers": f"file:{fleet},beta", "queues": "q"}).access.managers
    assert found == ("grpc://alpha:1810", "grpc://10.0.0.2:1811", "grpc://beta:1810")
    answers = [(2, 1, 6, "", ("10.0.0.3", 1812)), (10, 1, 6, "", ("fd00::1", 1812, 0, 0))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_args, **_more: answers)
    found = batch_options({"managers": "dns:fleet.example.com:1812", "queues": "q"}).access.managers
    assert found == ("grpc://10.0.0.3:1812", "grpc://[fd00::1]:1812")
    monkeypatch.undo()
    fleet.write_text("# nobody\n")
    for wrong, why in {f"file:{fleet}": "names no", f"file:{tmp_path}": "cannot be read", "dns:": "DNS"}.items():
        with pytest.raises(InvalidParameter, match=why):
            batch_options({"managers": wrong, "queues": "q"})


def test_times_conditions_and_limits() -> None:
    given = {"queues": "q", "startingTimestamp": "2026-03-01T08:00:00Z", "endingTimestamp": "1772352000000"}
    options = batch_options(given | {"where": '[["seq", ">", 5]]', "pushFilters": "true"})
    assert (options.starting_ms, options.ending_ms) == (1772352000000, 1772352000000)
    assert options.where.to_json() == [["seq", ">", 5]]
    stream = stream_options({"queues": "q", "minMessagesPerTrigger": "10", "maxTriggerDelay": "2m"})
    assert (stream.min_messages, stream.max_delay) == (10, 120)
    for wrong in (
        {"startingTimestamp": "yesterday"},
        {"startingTimestamp": "2026-03-01T08:00:00"},
        {"startingTimestamp": "1", "startingOffsets": "earliest"},
        {"where": "seq > 5"},
        {"where": '[["seq", "~", 5]]'},
        {"limit": "5", "pushFilters": "true"},
        {"onManagerDown": "perhaps"},
        {"bodyFormat": "yaml"},
        {"bodySchema": "int"},
        {"bodyFormat": "json", "bodySchema": "whatever"},
        {"bodyFormat": "json", "mode": "events"},
    ):
        with pytest.raises(InvalidParameter):
            batch_options({"queues": "q"} | wrong)
    with pytest.raises(InvalidParameter):
        stream_options({"queues": "q", "maxTriggerDelay": "soon"})
    # What Spark adds to the options of its tables means nothing here.
    assert batch_options({"queues": "q", "serialization.format": "1"}).queues == ("q",)
