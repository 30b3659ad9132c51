"""Every spelling of a queue's name, what it means, and what is refused with which advice."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.client import Message, QueueManager
from lanner.host.names import QueueNames, is_format_name
from lanner.model.errors import IllegalFormatname, IllegalQueuePathname, StatusError
from lanner.wire import spelling
from lanner.wire.path_name import PathName

GUID = "01020304-0506-0708-090a-0b0c0d0e0f10"
NAMES = QueueNames("ALPHA")
HERE = r"DIRECT=OS:ALPHA\private$\orders"

# What is written, and the format name that it means on the computer ALPHA.
SPELLINGS = [
    ("orders", HERE),
    (r"private$\orders", HERE),
    (r"PRIVATE$\orders", HERE),
    (r".\private$\orders", HERE),
    (r"ALPHA\Private$\orders", HERE),
    (r"DIRECT=OS:.\private$\orders", HERE),
    (r"direct=os:.\PRIVATE$\orders", HERE),
    (r"DIRECT=TCP:.\private$\orders", HERE),
    (r"FormatName:DIRECT=OS:.\private$\orders", HERE),
    (r"formatname:direct=os:.\private$\orders", HERE),
    (r"FORMATNAME:DIRECT=OS:ALPHA\PRIVATE$\orders", HERE),
    (r"FormatName:DIRECT=OS:.\private$\orders;journal", rf"{HERE};journal"),
    ("orders;JOURNAL", rf"{HERE};journal"),
    ("orders;retry", rf"{HERE};retry"),
    (r".\orders", r"DIRECT=OS:ALPHA\orders"),
    (r"BETA\private$\orders", r"DIRECT=OS:BETA\private$\orders"),
    (r"beta.example.com\orders", r"DIRECT=OS:beta.example.com\orders"),
    (r"192.0.2.7\private$\q", r"DIRECT=OS:192.0.2.7\private$\q"),
    (r"DIRECT=TCP:192.0.2.7\private$\q", r"DIRECT=TCP:192.0.2.7\private$\q"),
    (r"DIRECT=TCP:fe80::1\private$\q", r"DIRECT=TCP:fe80::1\private$\q"),
    (r"FormatName:DIRECT=TCP:[fe80::1]\q", r"DIRECT=TCP:[fe80::1]\q"),
    ("system$;deadletter", r"DIRECT=OS:ALPHA\system$;DEADLETTER"),
    (r"BETA\SYSTEM$;DeadXact", r"DIRECT=OS:BETA\system$;DEADXACT"),
    (r"FormatName:DIRECT=OS:BETA\system$;deadletter", r"DIRECT=OS:BETA\system$;DEADLETTER"),
    (f"PUBLIC={GUID}", f"PUBLIC={GUID}"),
    (f"FORMATNAME:PUBLIC={GUID.upper()};journal", f"PUBLIC={GUID};JOURNAL"),
    (f"formatname:private={GUID}\\f", f"PRIVATE={GUID}\\0000000f"),
    (f"FormatName:DL={GUID}@example.com", f"DL={GUID}@example.com"),
    (f"FormatName:MACHINE={GUID};deadxact", f"MACHINE={GUID};DEADXACT"),
    (f"formatname:connector={GUID}", f"CONNECTOR={GUID}"),
    ("FormatName:MULTICAST=224.0.0.5:8080", "MULTICAST=224.0.0.5:8080"),
    ("FormatName:DIRECT=http://beta/msmq/private$/q", "DIRECT=http://beta/msmq/private$/q"),
    (r"FormatName:DIRECT=OS:.\a,DIRECT=OS:b\q", r"DIRECT=OS:ALPHA\a,DIRECT=OS:b\q"),
    (r"DIRECT=OS:beta\private$\my queue", r"DIRECT=OS:beta\private$\my queue"),
]

# What is written, a part of the reason, and the text that is offered instead.
REFUSED_PATHS = [
    ("", "the name is empty", None),
    ("Label:My Queue", "a label does not name a queue.*lanner queue list", None),
    (r"LABEL:my\queue", "a label does not name a queue", None),
    # Slashes and too many backslashes.
    ("./private$/orders", "a slash", r".\private$\orders"),
    ("BETA/private$/orders", "a slash", r"BETA\private$\orders"),
    ("BETA/orders", "a slash", r"BETA\orders"),
    (r"\\BETA\private$\orders", "no computer before the backslash", r"BETA\private$\orders"),
    (r"\private$\orders", "no computer before the backslash", r".\private$\orders"),
    (r".\\private$\\orders", "a backslash inside the queue name", r".\private$\orders"),
    (r".\private\orders", "a backslash inside the queue name", r".\private$\orders"),
    (r"private\orders", r"'private' is followed by a '\$'", r"private$\orders"),
    (r".\system$\deadletter", "a backslash inside the queue name", r".\system$;deadletter"),
    # What a shell leaves.
    (".private$orders", "begins with a dot; a shell removes backslashes", r".\private$\orders"),
    (".private", r"begins with a dot; .* single quotes, as in '\.\\private\$\\orders'", None),
    (".orders", "begins with a dot", r".\orders"),
    ("private$orders", "no backslash between the parts.*single quotes", r"private$\orders"),
    ("BETAprivate$orders", "no backslash between the parts.*single quotes", r"BETA\private$\orders"),
    (r".\private$orders", "no backslash between the parts.*single quotes", r".\private$\orders"),
    (r"BETA\private$orders", "no backslash between the parts.*single quotes", r"BETA\private$\orders"),
    (r".private$\orders", "begins with a dot", r".\private$\orders"),
    # Computers that cannot be.
    (r"beta:1801\private$\q", "'beta:1801' ends in a port", r"beta\private$\q"),
    (r"OS:.\private$\q", "':' is not allowed in a computer name, here 'OS:.'", r"DIRECT=OS:.\private$\q"),
    (r"TCP:192.0.2.7\private$\q", "':' is not allowed", r"DIRECT=TCP:192.0.2.7\private$\q"),
    (r"DIRECT:OS:.\q", "':' is not allowed", r"DIRECT=OS:.\q"),
    (r"DIRECTOS:.\q", "':' is not allowed", r"DIRECT=OS:.\q"),
    (r"DIRECT OS:.\q", "' ' is not allowed in a computer name", r"DIRECT=OS:.\q"),
    (r"DIRECT = OS : beta\q", "' ' is not allowed in a computer name", r"DIRECT=OS:beta\q"),
    (r"DIRCT=OS:.\q", "'=' is not allowed in a computer name", r"DIRECT=OS:.\q"),
    (r"FormatName=DIRECT=OS:.\q", "'=' is not allowed", r"DIRECT=OS:.\q"),
    (r"al:pha\private$\q", "':' is not allowed in a computer name, here 'al:pha'", r"al-pha\private$\q"),
    (r"al=pha\q", "'=' is not allowed in a computer name, here 'al=pha'", r"al-pha\q"),
    (r"..\q", "'..' begins with a dot", None),
    ("c" * 257 + r"\q", "257 characters, at most 256", None),
    # The addresses of Windows Communication Foundation.
    (r"msmq.formatname:DIRECT=OS:.\private$\q", "':' is not allowed", r"DIRECT=OS:.\private$\q"),
    ("net.msmq://beta/private/orders", "a slash", r"DIRECT=OS:beta\private$\orders"),
    ("net.msmq://beta/orders", "a slash", r"DIRECT=OS:beta\orders"),
    # Characters and lengths.
    ("a=b", "an equals sign", r".\private$\a=b"),
    ("a:b", "a colon", r".\private$\a:b"),
    ("a b", "' ' is not allowed in a queue name", "a-b"),
    ("a+b", r"'\+' is not allowed in a queue name", "a-b"),
    ('a"b', "'\"' is not allowed in a queue name", "a-b"),
    (" orders\t", "U\\+0009 at position 7", "orders"),
    ("or\nders", "U\\+000A at position 2", "orders"),
    ("'.\\private$\\orders'", "is not allowed in a computer name", r".\private$\orders"),
    (r"a\q,b\q", "a backslash inside", r"DIRECT=OS:a\q,DIRECT=OS:b\q"),
    ("a;", "no subqueue name after the semicolon", None),
    ("a;b;c", "a second semicolon", None),
    (r".\private$", "no queue name after private", None),
    ("q" * 125, "125 characters, at most 124", None),
    ("q;" + "s" * 33, "33 characters, at most 32", None),
    ("orders\udc80", "U\\+DC80 at position 6", "orders"),
]
REFUSED_FORMAT_NAMES = [
    (r"DIRECT=OS:beta:1801\private$\q", "'beta:1801' ends in a port", r"DIRECT=OS:beta\private$\q"),
    (r"DIRECT=OS:a=b\q", "'=' is not allowed in a computer name, here 'a=b'", r"DIRECT=OS:a-b\q"),
    (r"DIRECT=TCP:a:b\q=1", "':' is not allowed in a computer name, here 'a:b'", r"DIRECT=TCP:a-b\q=1"),
    (r"DIRECT=OS:a\q,DIRECT=OS:b:c\q", "here 'b:c'", r"DIRECT=OS:a\q,DIRECT=OS:b-c\q"),
    (r"DIRECT=OS:FormatName:DIRECT=OS:.\q", "':' is not allowed", r"FormatName:DIRECT=OS:.\q"),
    (r"FormatName:FormatName:DIRECT=OS:.\q", "does not begin with one of", r"DIRECT=OS:.\q"),
    (r"FormatName:.\private$\orders", "does not begin with one of", r".\private$\orders"),
    ("FormatName:orders", "does not begin with one of", "orders"),
    (r"FormatName:OS:.\private$\q", "does not begin with one of", r"DIRECT=OS:.\private$\q"),
    ("FormatName:", "does not begin with one of", None),
    (r"DIRECT=beta\private$\q", "does not begin with one of", r"DIRECT=OS:beta\private$\q"),
    (r"DIRECT=FTP:beta\q", "does not begin with one of", r"DIRECT=OS:beta\q"),
    (r"DIRECT=OS=beta\q", "does not begin with one of", r"DIRECT=OS:beta\q"),
    (r"DIRECT=OS.\private$\q", "does not begin with one of", r"DIRECT=OS:.\private$\q"),
    (r"DIRECT=OS:\\beta\q", "an address, a backslash and a queue", r"DIRECT=OS:beta\q"),
    ("DIRECT=OS:./private$/q", "an address, a backslash and a queue", r"DIRECT=OS:.\private$\q"),
    ("DIRECT=OS:.private$orders", "an address, a backslash and a queue", r"DIRECT=OS:.\private$\orders"),
    ("DIRECT=OS:BETAprivate$orders", "an address, a backslash and a queue", r"DIRECT=OS:BETA\private$\orders"),
    (r"DIRECT=OS:BETA\private$orders", "no backslash between the parts", r"DIRECT=OS:BETA\private$\orders"),
    (r"DIRECT=OS:private$\orders", "no backslash between the computer and the queue", r"DIRECT=OS:.\private$\orders"),
    (r"DIRECT=OS:a\q, DIRECT=OS:b\q", "does not begin with one of", r"DIRECT=OS:a\q,DIRECT=OS:b\q"),
    (f"PUBLIC={{{GUID}}}", "not a GUID", f"PUBLIC={GUID}"),
    (f"PUBLIC={GUID.replace('-', '')}", "not a GUID", f"PUBLIC={GUID}"),
    ("PUBLIC=1", "not a GUID", None),
    (r".\system$;X", "no system queue is called 'X'", None),
    ("MULTICAST=10.0.0.1:80", "not an address 224.0.0.0", None),
    (r"DIRECT=OS:beta\q;a;b", "a second semicolon", None),
    (r"DIRECT=OS:beta" + "\\" + "q" * 125, "125 characters, at most 124", None),
    ("DIRECT=OS:beta\\q\udc80", "U\\+DC80", r"DIRECT=OS:beta\q"),
    (rf"DIRECT=OS:a\q,MACHINE={GUID}", "cannot be an element", None),
]


@pytest.mark.parametrize(("text", "expected"), SPELLINGS)
def test_every_spelling_means_a_format_name(text: str, expected: str) -> None:
    assert str(NAMES.format_name(text)) == expected
    assert str(NAMES.format_name(expected)) == expected


def advice(error: pytest.ExceptionInfo[StatusError]) -> str | None:
    match = re.search(r"did you mean '(.*)'\?$", str(error.value.args[0]))
    return None if match is None else match[1]


@pytest.mark.parametrize(("text", "reason", "instead"), REFUSED_PATHS)
def test_what_cannot_be_a_path_name_is_refused_with_the_nearest(text: str, reason: str, instead: str | None) -> None:
    with pytest.raises(IllegalQueuePathname, match=reason) as error:
        NAMES.format_name(text)
    assert advice(error) == instead
    if instead is not None:
        NAMES.format_name(instead)
    with pytest.raises(IllegalQueuePathname, match=reason):
        NAMES.path_name(text)


@pytest.mark.parametrize(("text", "reason", "instead"), REFUSED_FORMAT_NAMES)
def test_what_cannot_be_a_format_name_is_refused_with_the_nearest(text: str, reason: str, instead: str | None) -> None:
    with pytest.raises(IllegalFormatname, match=reason) as error:
        NAMES.format_name(text)
    assert advice(error) == instead
    if instead is not None:
        NAMES.format_name(instead)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", r"ALPHA\private$\orders"),
        (r".\orders;retry", r"ALPHA\orders;retry"),
        (r"BETA\private$\orders", r"BETA\private$\orders"),
        (r"FormatName:DIRECT=OS:.\private$\orders", r"ALPHA\private$\orders"),
        (r"direct=tcp:192.0.2.7\orders", r"192.0.2.7\orders"),
    ],
)
def test_the_path_name_of_a_spelling(text: str, expected: str) -> None:
    assert NAMES.path_name(text) == PathName.parse(expected)


@pytest.mark.parametrize("text", [f"FormatName:PUBLIC={GUID}", f"DL={GUID}", r"DIRECT=OS:a\q,DIRECT=OS:b\q"])
def test_a_name_without_a_computer_has_no_path(text: str) -> None:
    with pytest.raises(IllegalQueuePathname, match="says on which computer a queue is"):
        NAMES.path_name(text)


@pytest.mark.parametrize("text", [r"ALPHA\private$orders", r"ALPHA\.orders", r"DIRECT=OS:alpha\private$orders"])
def test_queues_of_this_computer_have_any_name_that_the_grammar_allows(text: str) -> None:
    """A program elsewhere may have created such a queue.

    Commands must be able to list and delete it.
    """
    assert NAMES.format_name(text).key == f"direct=os:{text.rpartition(':')[2]}".lower()


def test_what_is_a_format_name() -> None:
    for text in (r"DIRECT=OS:.\q", "public=x", r"FormatName:DIRECT=OS:.\q", "FORMATNAME:x", "formatname:"):
        assert is_format_name(text)
    for text in ("orders", r".\q", "directory", r"private$\q", "formatname", "a=b", r"OS:.\q"):
        assert not is_format_name(text)


def test_a_program_gives_whole_names() -> None:
    """COM properties have no short names: MC-MQAC 3.10.4.1."""
    assert str(spelling.whole_format_name(r"FormatName:direct=os:.\private$\q")) == r"DIRECT=OS:.\private$\q"
    with pytest.raises(IllegalFormatname, match=r"does not begin with one of.*did you mean 'DIRECT=OS:\.\\q'"):
        spelling.whole_format_name(r".\q")
    with pytest.raises(IllegalQueuePathname, match=r"no backslash.*did you mean '\.\\private\$\\q'"):
        spelling.path_name("q", short_names=False)


_PARTS = st.sampled_from(
    [
        *("FormatName:", "formatname:", "DIRECT=", "PUBLIC=", "PRIVATE=", "DL=", "OS:", "TCP:", "http://", "Label:"),
        *(
            "private$",
            "system$",
            ";",
            "journal",
            "DEADLETTER",
            "\\",
            ".",
            "/",
            ":",
            "=",
            ",",
            "+",
            '"',
            " ",
            "$",
            "[::1]",
        ),
        *("ALPHA", "beta", "orders", "192.0.2.7", "1801", GUID, "{", "}", "\0", "\udc80", "é", "q" * 130, "c" * 260),
    ]
)


@given(st.text(max_size=60) | st.lists(_PARTS, max_size=12).map("".join))
def test_any_text_is_a_name_or_refused(text: str) -> None:
    for names in (NAMES, QueueNames(".")):
        try:
            name = names.format_name(text)
        except (IllegalFormatname, IllegalQueuePathname) as error:
            match = re.search(r"did you mean '(.*)'\?$", str(error.args[0]), re.DOTALL)
            if match is not None:
                names.format_name(match[1])
        else:
            assert names.format_name(str(name)) == name
        try:
            names.path_name(text)
        except (IllegalFormatname, IllegalQueuePathname):
            pass
        else:
            names.format_name(text)


@pytest.mark.parametrize(
    "name", [r".\private$\orders", r"DIRECT=OS:.\private$\orders", r"private$\orders", r".\orders"]
)
def test_what_bash_makes_of_a_name_without_quotes_is_refused(name: str) -> None:
    left = subprocess.run(["bash", "-c", f"printf %s {name}"], capture_output=True, text=True, check=True).stdout
    assert left != name
    with pytest.raises((IllegalFormatname, IllegalQueuePathname)) as error:
        NAMES.format_name(left)
    assert advice(error) == name


@pytest.mark.parametrize("prefix", ["FormatName:", "formatname:", "FORMATNAME:"])
def test_a_program_of_dot_net_names_queues_with_a_prefix(tmp_path: Path, prefix: str) -> None:
    with QueueManager(tmp_path / "data", "ALPHA") as manager:
        orders = manager.create_queue(rf"{prefix}DIRECT=OS:.\private$\orders")
        assert orders.path_name == r"ALPHA\private$\orders"
        message = Message(body="x", response_queue=rf"{prefix}DIRECT=OS:.\private$\replies")
        manager.open(rf"{prefix}DIRECT=OS:.\private$\orders").send(message)
        received = orders.receive(0)
        assert received.response_queue == r"DIRECT=OS:ALPHA\private$\replies"
        assert manager.outgoing_queues() == []
        manager.delete_queue(rf"{prefix}DIRECT=OS:.\private$\orders")
        assert not orders.exists()


@pytest.mark.parametrize("name", ["", ".", "a:b", "a=b", "a b", "a\\b", "a/b", "ä", "x" * 257, "host:1801"])
def test_a_computer_that_no_path_name_could_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(IllegalQueuePathname):
        QueueManager(tmp_path / "data", name)
