"""`lanner send`: send one message, with any of its properties."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from lanner.cli.errors import CommandError, UsageError
from lanner.cli.options import Json, QueueName, duration, guid
from lanner.cli.output import note, say, size, write_json
from lanner.cli.session import Place, open_manager, reaching
from lanner.client import Message, QueueManager
from lanner.client.runtimes import is_embedded
from lanner.model.enums import QueueType
from lanner.security.signing import SigningKey
from lanner.wire.body_types import TEXT_BODIES, VT_BSTR, VT_LPSTR, VT_LPWSTR
from lanner.wire.format_name import PublicFormatName
from lanner.wire.layout import MAX_PACKET_SIZE
from lanner.wire.spelling import without_prefix

_BODY_TYPES = {"bytes": 0, "bstr": VT_BSTR, "lpstr": VT_LPSTR, "lpwstr": VT_LPWSTR}
_MAX_U32 = 0xFFFF_FFFF


def _body_type(text: str | None) -> int | None:
    if text is None:
        return None
    name = text.lower().removeprefix("vt_")
    if name in _BODY_TYPES:
        return _BODY_TYPES[name]
    if not name.isdecimal() or int(name) > _MAX_U32:
        raise UsageError(f"--body-type {text}: {', '.join(_BODY_TYPES)}, or the number of a VARENUM")
    return int(name)


def _body(given: str | None, option: str | None, file: Path | None, body_type: int | None) -> bytes | str:
    """Return the body: text from the command line, bytes from a file or standard input."""
    if sum(value is not None for value in (given, option, file)) > 1:
        raise UsageError("more than one body: give BODY, --body or --file")
    text = given if given is not None else option
    if text is not None:
        # If the body type is not one of the text types, send the text as UTF-8.
        return text if body_type is None or body_type in TEXT_BODIES else text.encode()
    if file is not None and str(file) != "-":
        with file.open("rb") as stream:
            return _read(stream)
    if file is None and sys.stdin.isatty():
        raise UsageError("no body: give it as BODY, with --body or --file, or on standard input")
    return _read(sys.stdin.buffer)


def _read(stream: BinaryIO) -> bytes:
    """Return the whole stream, up to the size limit of a message: a stream may have no end."""
    body = stream.read(MAX_PACKET_SIZE)
    if len(body) == MAX_PACKET_SIZE:
        raise CommandError(
            f"the body is too long: a message has at most {size(MAX_PACKET_SIZE)}, its properties included"
        )
    return body


def _hexadecimal(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError(f"--extension {text}: bytes in hexadecimal, such as 00ff10") from None


def _report_queue(manager: QueueManager, text: str) -> uuid.UUID:
    """Return the identifier of a public queue; a DebugHeader names it so (MS-MQMQ 2.2.20.8)."""
    try:
        return uuid.UUID(text)
    except ValueError:
        pass
    name = manager.names.format_name(text)
    if isinstance(name, PublicFormatName):
        return name.identifier
    attributes = manager.open(text).attributes()
    if attributes.queue_type is not QueueType.PUBLIC:
        raise UsageError(
            f"--trace {text}: reports go to a public queue, this one is {attributes.queue_type.value.lower()}"
        )
    return attributes.identifier


@reaching
def send(
    queue: QueueName,
    text: Annotated[str | None, typer.Argument(metavar="BODY", help="The body, as text.", show_default=False)] = None,
    *,
    body: Annotated[str | None, typer.Option("--body", help="The body, as text.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="The body, from a file; - is standard input.")
    ] = None,
    body_type: Annotated[
        str | None, typer.Option("--body-type", help="bytes, bstr, lpstr, lpwstr, or a number. Text is bstr.")
    ] = None,
    label: Annotated[str, typer.Option("--label", help="What the message is about.")] = "",
    priority: Annotated[int, typer.Option("--priority", min=0, max=7, help="7 is received first.")] = 3,
    recoverable: Annotated[
        bool, typer.Option("--recoverable/--express", help="Keep it on disk, or only in the memory of the process.")
    ] = True,
    time_to_reach_queue: Annotated[str, typer.Option("--ttrq", help="Time to reach the queue.")] = "4d",
    time_to_be_received: Annotated[str, typer.Option("--ttbr", help="Time to be received.")] = "forever",
    dead_letter: Annotated[bool, typer.Option("--dead-letter", help="If it fails, keep it as a dead letter.")] = False,
    journal: Annotated[bool, typer.Option("--journal", help="Keep a copy in the system journal.")] = False,
    trace: Annotated[
        str | None,
        typer.Option("--trace", metavar="QUEUE", help="The public queue, by GUID or name, for reports on its route."),
    ] = None,
    acknowledge: Annotated[
        str, typer.Option("--ack", help="full-reach-queue, full-receive, nack-reach-queue, nack-receive ...")
    ] = "none",
    administration_queue: Annotated[str | None, typer.Option("--admin-queue", help="Where acknowledgments go.")] = None,
    response_queue: Annotated[str | None, typer.Option("--response-queue", help="Where answers go.")] = None,
    correlation_id: Annotated[
        str | None, typer.Option("--correlation-id", help="The id of the message this one answers.")
    ] = None,
    app_specific: Annotated[int, typer.Option("--app-specific", min=0, max=_MAX_U32, help="For your own use.")] = 0,
    extension: Annotated[str, typer.Option("--extension", help="Bytes for your own use, in hexadecimal.")] = "",
    encrypt: Annotated[bool, typer.Option("--encrypt", help="Encrypt the body on its way.")] = False,
    authenticate: Annotated[
        bool, typer.Option("--authenticate", help="Sign it, with --sign-key or a key the queue manager made for you.")
    ] = False,
    sign_key: Annotated[
        Path | None, typer.Option("--sign-key", help="Sign it with this private key (PKCS#8, DER) of --certificate.")
    ] = None,
    hash_algorithm: Annotated[
        str | None, typer.Option("--hash", help="What a signature uses: md5, sha1, sha-256 ...")
    ] = None,
    encryption_algorithm: Annotated[
        str, typer.Option("--cipher", help="What --encrypt uses: rc2, rc4, aes128, aes192, aes256.")
    ] = "aes256",
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="The sender's certificate, a file in DER.")
    ] = None,
    connector_type: Annotated[str | None, typer.Option("--connector-type", help="The connector, a GUID.")] = None,
    transaction: Annotated[
        bool,
        typer.Option("--transaction", help="Use a transaction. For transactional queues here, it is the default."),
    ] = False,
    at: Place,
    json: Json = False,
) -> None:
    """Send a message. Its body is BODY, --body, a file, or standard input."""
    number = _body_type(body_type)
    if acknowledge.lower() != "none" and administration_queue is None:
        raise UsageError(f"--ack {acknowledge} to whom? Give --admin-queue")
    message = Message(
        body=_body(text, body, file, number),
        body_type=number,
        label=label,
        priority=priority,
        recoverable=recoverable,
        time_to_reach_queue=duration(time_to_reach_queue, "--ttrq"),
        time_to_be_received=duration(time_to_be_received, "--ttbr"),
        use_dead_letter_queue=dead_letter,
        use_journal_queue=journal,
        acknowledge=acknowledge,
        administration_queue=administration_queue,
        response_queue=response_queue,
        correlation_id=correlation_id,
        app_specific=app_specific,
        extension=_hexadecimal(extension),
        authenticate=authenticate or sign_key is not None,
        encrypt=encrypt,
        hash_algorithm=hash_algorithm,
        encryption_algorithm=encryption_algorithm,
        sender_certificate=b"" if certificate is None else certificate.read_bytes(),
        connector_type=None if connector_type is None else guid(connector_type, "--connector-type"),
    )
    if encrypt and without_prefix(queue).upper().startswith("DIRECT="):
        # MS-MQQB 3.1.7.1.5.
        raise UsageError(
            f"--encrypt: {queue} does not say whose key to encrypt with. Use a PUBLIC= or PRIVATE= name; "
            "`lanner directory show` lists the computers whose keys are known"
        )
    signing_key = None
    if sign_key is not None:
        if certificate is None:
            raise UsageError("--sign-key needs the --certificate of the key")
        signing_key = SigningKey.load(message.sender_certificate, sign_key.read_bytes())
    with open_manager(at) as manager:
        manager.signing_key = signing_key
        if trace is not None:
            message.tracing_queue = _report_queue(manager, trace)
        target = manager.open(queue)
        in_transaction = transaction or bool(manager.open(queue).is_transactional())
        if in_transaction:
            with manager.transaction() as unit:
                identifier = target.send(message, transaction=unit)
        else:
            identifier = target.send(message)
            if not recoverable and is_embedded(manager):
                note("an express message is kept in memory only: it is gone now that this command ends")
        if json:
            write_json({"id": identifier, "queue": target.format_name, "transactional": in_transaction})
        else:
            say(f"sent {identifier}")
