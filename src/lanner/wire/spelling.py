r"""Queue names as people and programs write them: conversion from text to a name.

All text from outside goes through `format_name` and `path_name`: from the API, the command line,
Spark, COM and enterprise documents. They accept a format name, with or without the prefix
`FormatName:` of System.Messaging, a path name, and the short forms `private$\queue`,
`system$;queue` and `queue`.

They reject more than MS-MQMQ 2.1 does: text that its grammar allows but that is certainly a
mistake, such as a computer called `host:1801`. A message to such a name would wait forever. The
error names the faulty part and suggests the nearest valid text: `_REPAIRS` is a list of common
mistakes, which are corrected one after the other until the result is a name. Packets and stored
names bypass this module, because a peer may have queues that these rules reject.
"""

from __future__ import annotations

import difflib
import enum
import ipaddress
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeVar

from lanner.model.enums import QueueType
from lanner.model.errors import IllegalFormatname, IllegalQueuePathname
from lanner.wire.format_name import PREFIX, DirectFormatName, FormatName, MultipleElementFormatName, parse
from lanner.wire.path_name import MAX_COMPUTER_LENGTH, THIS_COMPUTER, PathName

T = TypeVar("T")

_KINDS: Final = ("DIRECT", "PUBLIC", "PRIVATE", "DL", "MACHINE", "CONNECTOR", "MULTICAST")
_FORMAT_NAME = re.compile(rf"{PREFIX}|(?:{'|'.join(_KINDS)})=", re.IGNORECASE)
_LABEL = re.compile(r"label:", re.IGNORECASE)
_PRIVATE_OR_SYSTEM = re.compile(r"(?:private|system)\$", re.IGNORECASE)
_SHORT_PREFIXES: Final = ("private$\\", "system$;")
_NOT_IN_COMPUTER = re.compile(r'[\x00-\x20"\'*+,/:;<=>?\[\\\]|\x7F-\x9F]')
_PORT = re.compile(r"[^:]+:[0-9]+")
# Control characters, and the surrogates that stand for undecodable command line arguments.
_UNREADABLE = re.compile(r"[\x00-\x1F\x7F-\x9F\uD800-\uDFFF]")
_QUOTING: Final = r"a shell removes backslashes outside quotes, so write the name in single quotes"
_SHOWN: Final = 80
# The length up to which texts are kept in caches, with the names that they denote. Anyone who may
# name a queue can send any number of lists of a thousand queues.
LONGEST_KEPT: Final = 4096


class Spelling(enum.Enum):
    """The kinds of spelling."""

    FORMAT_NAME = "a format name"
    PREFIXED = "a format name after the prefix of System.Messaging"
    PATH_NAME = "a path name"
    SHORT_PATH_NAME = "a path name without its computer, which is this one"
    SHORT_NAME = "the short name of a private queue on this computer"


def is_format_name(text: str) -> bool:
    """Return whether a text is meant as a format name, not as a path name."""
    return _FORMAT_NAME.match(text) is not None


def without_prefix(text: str) -> str:
    """Return a text without the prefix of System.Messaging."""
    return text[len(PREFIX) :] if text[: len(PREFIX)].lower() == PREFIX else text


def spelling_of(text: str) -> Spelling:
    """Return which spelling a text has, assuming that it is a name."""
    if is_format_name(text):
        return Spelling.FORMAT_NAME if without_prefix(text) == text else Spelling.PREFIXED
    if text.lower().startswith(_SHORT_PREFIXES):
        return Spelling.SHORT_PATH_NAME
    return Spelling.PATH_NAME if "\\" in text else Spelling.SHORT_NAME


def format_name(text: str, computer: str = THIS_COMPUTER, *, short_names: bool = True) -> FormatName:
    """Return the format name that a text denotes.

    `computer` is the name of this computer: its own queues may have any name that the grammar
    allows. A `.` stays a `.`. Without `short_names`, a name must be complete. Raise
    IllegalFormatname or IllegalQueuePathname.
    """
    read = _read_format_name if len(text) > LONGEST_KEPT else _kept_format_name
    return read(text, computer, short_names)


def _read_format_name(text: str, computer: str, short_names: bool) -> FormatName:
    return _with_advice(text, lambda given: _format_name(given, computer, short_names=short_names))


_kept_format_name: Final = lru_cache(maxsize=1024)(_read_format_name)


def path_name(text: str, computer: str = THIS_COMPUTER, *, short_names: bool = True) -> PathName:
    """Return the path name that a text denotes, which may be that of a direct format name.

    Otherwise like `format_name`.
    """
    read = _read_path_name if len(text) > LONGEST_KEPT else _kept_path_name
    return read(text, computer, short_names)


def _read_path_name(text: str, computer: str, short_names: bool) -> PathName:
    return _with_advice(text, lambda given: _path_name(given, computer, short_names=short_names))


_kept_path_name: Final = lru_cache(maxsize=1024)(_read_path_name)


def whole_format_name(text: str, computer: str = THIS_COMPUTER) -> FormatName:
    """Return a format name where no other spelling is allowed. Raise IllegalFormatname."""

    def read(given: str) -> FormatName:
        # `parse` rejects anything but a format name and lists the existing kinds.
        return _format_name(given, computer, short_names=False) if is_format_name(given) else parse(given)

    return _with_advice(text, read)


def check_computer(name: str) -> None:
    """Raise ValueError with the reason if a text cannot be a computer's name or address."""
    if not name:
        raise ValueError("no computer name")
    if len(name) > MAX_COMPUTER_LENGTH:
        raise ValueError(f"computer name of {len(name)} characters, at most {MAX_COMPUTER_LENGTH}")
    if _is_address(name):
        return
    if _PORT.fullmatch(name):
        raise ValueError(f"the computer name {name!r} ends in a port; names have none, the port is a setting")
    bad = _NOT_IN_COMPUTER.search(name)
    if bad:
        raise ValueError(f"{bad[0]!r} is not allowed in a computer name, here {name[:_SHOWN]!r}")
    if name[0] == "." and name != THIS_COMPUTER:
        raise ValueError(f"the computer name {name[:_SHOWN]!r} begins with a dot; {_QUOTING}")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


# Reading
# --------------------------------------------------------------------------------------------------


def _format_name(text: str, computer: str, *, short_names: bool) -> FormatName:
    _check_characters(text)
    if not is_format_name(text):
        return DirectFormatName.to_path(_path(text, computer, short_names=short_names))
    name = parse(text)
    elements = tuple(_checked(text, element, computer) for element in name.elements)
    return MultipleElementFormatName(elements) if isinstance(name, MultipleElementFormatName) else elements[0]


def _path_name(text: str, computer: str, *, short_names: bool) -> PathName:
    if not is_format_name(text):
        _check_characters(text)
        return _path(text, computer, short_names=short_names)
    name = _format_name(text, computer, short_names=short_names)
    if not isinstance(name, DirectFormatName) or name.path_name is None:
        raise IllegalQueuePathname(
            f"{text[:_SHOWN]}: a path name or a direct format name says on which computer a queue is"
        )
    return name.path_name


def _check_characters(text: str) -> None:
    bad = _UNREADABLE.search(text)
    if bad:
        raise _illegal(text, f"the character U+{ord(bad[0]):04X} at position {bad.start()} is not allowed in a name")


def _checked(text: str, name: FormatName, computer: str) -> FormatName:
    """Return an element of a format name in its canonical spelling."""
    if not isinstance(name, DirectFormatName):
        return name
    path = name.path_name
    try:
        if name.host.lower() != computer.lower():
            check_computer(name.host)
            if path is not None:
                _check_path(path)
    except ValueError as error:
        raise _illegal(text, str(error)) from None
    # The path of an HTTP address keeps its spelling, because the other computer interprets it.
    return name if name.is_http or path is None else DirectFormatName.to_path(_canonical(path), name.protocol)


def _canonical(path: PathName) -> PathName:
    return replace(path, name=path.name.upper()) if path.is_system else path


def _path(text: str, computer: str, *, short_names: bool) -> PathName:
    if _LABEL.match(text):
        raise _illegal(
            text,
            r"a label does not name a queue, because several queues may have the same: `lanner queue list` shows the "
            r"labels; give the path name of the queue, as in '.\private$\orders'",
        )
    spelling = spelling_of(text)
    whole = text
    if spelling is not Spelling.PATH_NAME and short_names:
        if spelling is Spelling.SHORT_NAME:
            _check_short_name(text)
        whole = f".\\{text}" if spelling is Spelling.SHORT_PATH_NAME else f".\\private$\\{text}"
    try:
        path = PathName.parse(whole)
    except IllegalQueuePathname as error:
        # Hide the part that was added to a short name, because it was not in the given text.
        raise IllegalQueuePathname(str(error.args[0]).replace(whole, text, 1)) from None
    path = _canonical(path)
    if path.computer.lower() == computer.lower() != THIS_COMPUTER:
        return path
    try:
        check_computer(path.computer)
        _check_path(path)
    except ValueError as error:
        raise _illegal(text, str(error)) from None
    return path


def _check_short_name(text: str) -> None:
    """Reject text that the grammar of queue names allows but that is no short name of a queue."""
    if not text:
        raise _illegal(text, "the name is empty")
    if "/" in text:
        raise _illegal(text, "a slash, where a backslash separates the parts of a name")
    if text[0] == ".":
        example = r", as in '.\private$\orders'" if text.lower() == ".private" else ""
        raise _illegal(text, f"a queue name that begins with a dot; {_QUOTING}{example}")
    if _PRIVATE_OR_SYSTEM.search(text):
        raise _illegal(text, f"no backslash between the parts of the name; {_QUOTING}")
    for character, problem in ((":", "a colon"), ("=", "an equals sign")):
        if character in text:
            raise _illegal(text, f"{problem}, which stands in format names only")


def _check_path(path: PathName) -> None:
    if path.computer.lower() == "private":
        raise ValueError("'private' is followed by a '$' in the name of a private queue")
    if _PRIVATE_OR_SYSTEM.search(path.computer):
        raise ValueError(f"no backslash between the computer and the queue; {_QUOTING}")
    if path.queue_type is QueueType.PUBLIC and (path.name[0] == "." or _PRIVATE_OR_SYSTEM.search(path.name)):
        raise ValueError(f"no backslash between the parts of the queue name {path.name[:_SHOWN]!r}; {_QUOTING}")


def _illegal(text: str, problem: str) -> IllegalFormatname | IllegalQueuePathname:
    shown = _UNREADABLE.sub(lambda bad: f"<U+{ord(bad[0]):04X}>", text[:_SHOWN]) + ("..." if text[_SHOWN:] else "")
    if is_format_name(text):
        return IllegalFormatname(f"format name '{shown}': {problem}")
    return IllegalQueuePathname(f"name '{shown}': {problem}")


# Advice
# --------------------------------------------------------------------------------------------------


def _with_advice(text: str, read: Callable[[str], T]) -> T:
    try:
        return read(text)
    except (IllegalFormatname, IllegalQueuePathname) as error:
        nearest = _nearest(text, read)
        advice = "" if nearest is None else f"; did you mean '{nearest}'?"
        raise type(error)(f"{error.args[0]}{advice}") from None


def _nearest(text: str, read: Callable[[str], object]) -> str | None:
    """Return the first repair of a text that can be read."""
    if len(text) > MAX_COMPUTER_LENGTH or _LABEL.match(text):
        return None
    for repaired in _repaired(text):
        try:
            read(repaired)
        except (IllegalFormatname, IllegalQueuePathname):
            continue
        return repaired
    return None


def _repaired(text: str) -> Iterator[str]:
    for repair in _REPAIRS:
        after = repair(text)
        if after != text:
            text = after
            yield text
    if not is_format_name(text):
        if "\\" in text:
            yield f"DIRECT=OS:{text}"
        elif text[:1] != ".":
            yield f".\\private$\\{text}"


def _substitution(pattern: str, replacement: str) -> Callable[[str], str]:
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda text: compiled.sub(replacement, text)


def _known_kind(text: str) -> str:
    """Correct the kind of a format name, as in DIRCT=OS:... ."""
    kind, separator, rest = text.partition("=")
    near = difflib.get_close_matches(kind.strip().upper(), _KINDS, 1, 0.7) if separator else []
    return f"{near[0]}={rest}" if near and kind.upper() != near[0] else text


def _with_dashes(text: str) -> str:
    """Write the GUID of a format name in canonical form."""

    def guid(match: re.Match[str]) -> str:
        return str(uuid.UUID(match[0]))

    return re.sub(r"\{[0-9A-Fa-f-]{36}\}|(?<![0-9A-Fa-f-])[0-9A-Fa-f]{32}(?![0-9A-Fa-f-])", guid, text)


def _with_backslashes(text: str) -> str:
    return text if re.match(r"direct=https?:", text, re.IGNORECASE) else text.replace("/", "\\")


def _list_of_names(text: str) -> str:
    """Convert comma-separated path names to the equivalent list of format names."""
    if "," not in text:
        return text
    try:
        return ",".join(str(_format_name(part.strip(), THIS_COMPUTER, short_names=True)) for part in text.split(","))
    except (IllegalFormatname, IllegalQueuePathname):
        return text


def _computers_without_separators(text: str) -> str:
    """Replace `:` and `=` in the name of a computer by dashes.

    The name ends at the first backslash.
    """
    return _COMPUTER.sub(lambda found: found[1] + re.sub(r"(?<=\w)[:=](?=\w)", "-", found[2]), text)


_COMPUTER = re.compile(r"((?:^|,)(?:direct=(?:os|tcp):)?)([^\\,]+)(?=\\)", re.IGNORECASE)
_PROTOCOLS: Final = "os|tcp|https?|ipx|spx"
# Corrections of common mistakes, in the order of the parts of a name. Each is applied to the result
# of the previous ones.
_REPAIRS: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: _UNREADABLE.sub("", text).strip(" \t'\"`"),
    # Addresses of Windows Communication Foundation.
    _substitution(r"^msmq\.formatname:", ""),
    _substitution(r"^(?:net\.)?msmq://([^/:]+)(?::[0-9]+)?/private\$?/(.+)$", r"DIRECT=OS:\1\\private$\\\2"),
    _substitution(r"^(?:net\.)?msmq://([^/:]+)(?::[0-9]+)?/(.+)$", r"DIRECT=OS:\1\\\2"),
    # Produced by older versions that did not recognize the prefix.
    _substitution(r"^direct=os:(?=formatname:|direct=)", ""),
    _substitution(r"^(?:formatname[:=]\s*)+", ""),
    _known_kind,
    # DIRECT:OS:..., DIRECT OS:..., DIRECTOS:..., DIRECT = OS:...
    _substitution(rf"^({'|'.join(_KINDS)})\s*[:=\s]\s*", r"\1="),
    _substitution(rf"^direct(?=(?:{_PROTOCOLS}):)", "DIRECT="),
    _substitution(rf"^(?=(?:{_PROTOCOLS}):)", "DIRECT="),
    _substitution(rf"^(direct=(?:{_PROTOCOLS}))\s*[:=;\s]\s*", r"\1:"),
    _substitution(r"^(direct=os)(?=\.\\)", r"\1:"),
    _substitution(r"\s*,\s*", ","),
    _with_dashes,
    _with_backslashes,
    # A name in the form of a file share, or one escaped for a programming language.
    _substitution(r"(^|[:=])\\\\+", r"\1"),
    _substitution(r"\\\\+", r"\\"),
    # A shell removes this part of an unquoted name.
    _substitution(r"(^|\\)private\\", r"\1private$\\"),
    _substitution(r"(?<=[^\\:=,])private\$", r"\\private$"),
    _substitution(r"private\$(?=[^\\])", r"private$\\"),
    _substitution(r"(?<=[^\\:=,])system\$;", r"\\system$;"),
    _substitution(r"system\$[\\:]?(?=(?:deadletter|deadxact|journal)$)", "system$;"),
    _substitution(r"(^|:)\\", r"\1.\\"),
    _substitution(r"^\.(?:\\\.)+(?=\\)", "."),
    _substitution(r"(?<=:)(?=private\$\\|system\$;)", r".\\"),
    _substitution(r"^((?:direct=os:)?\.)(?=[^\\.])(?!private$)", r"\1\\"),
    _substitution(r"^((?:direct=[a-z]+:)?[^\\:]+):[0-9]+(?=\\)", r"\1"),
    _substitution(rf"^direct=(?!(?:{_PROTOCOLS}):)(?:[a-z]+:)?(?=[^\\]+\\)", "DIRECT=OS:"),
    _list_of_names,
    _computers_without_separators,
    lambda text: text if is_format_name(text) else re.sub(r'[\s"+,]+', "-", text),
)
