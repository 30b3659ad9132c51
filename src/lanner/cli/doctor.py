"""`lanner doctor`: check that everything is in order."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from lanner.cli.errors import EXIT_ERROR, UsageError
from lanner.cli.options import DEFAULT_DATA, Host, Json, Kerberos, PasswordFile, User, duration
from lanner.cli.output import console, write_json
from lanner.cli.peers import Caller, examine_peer
from lanner.cli.session import Place, open_manager, place_of, read_peers, read_tls, running
from lanner.cli.tls_checks import examine_files
from lanner.model.errors import LannerError, StoreLocked
from lanner.security.printable import printable
from lanner.services.examination import Finding, Verdict, examine

if TYPE_CHECKING:
    from lanner.daemon.settings import Settings
    from lanner.services.documents import Document
    from lanner.transfer.settings import TransferSettings

_STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red", Verdict.SKIP: "dim"}
# This is as long as the Session Retry Connect Timer. `--timeout forever` also means this default.
DEFAULT_TIMEOUT = 5.0  # seconds


def doctor(
    peer: Annotated[
        str | None,
        typer.Argument(
            metavar="[PEER]",
            help="Another computer, to find out whether and why it cannot be reached.",
            show_default=False,
        ),
    ] = None,
    *,
    timeout: Annotated[str, typer.Option("--timeout", help="How long PEER has for each step.")] = "5",
    config: Annotated[
        Path | None, typer.Option("--config", help="Settings of `lanner serve` to check too, and where its data is.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="The data directory.", show_default="./data", readable=False)
    ] = None,
    host: Host = None,
    user: User = None,
    password_file: PasswordFile = None,
    kerberos: Kerberos = False,
    json: Json = False,
) -> None:
    """Check the data directory and the settings, or the connection to PEER.

    Changes no queue and no message.

    Exit code 1 if something is broken, or PEER cannot be reached.
    """
    from lanner.daemon.settings import load_settings

    at = place_of(DEFAULT_DATA, host, user, password_file, kerberos=kerberos)
    findings: list[Finding] = []
    given: dict[str, object] = {} if data is None else {"data": data}
    if config is not None:
        findings.append(_settings(config, given))
    is_usable = not findings or findings[0].verdict is Verdict.OK
    # The data directory and the settings are those of `lanner serve` with these options.
    settings = load_settings(config if is_usable else None, given)
    found: Iterator[Finding]
    if at.host is not None:
        if peer is not None or config is not None:
            raise UsageError("--host examines that queue manager itself: leave out PEER and --config")
        found = _elsewhere(at)
    elif peer is None:
        now = dt.datetime.now(dt.UTC)
        found = itertools.chain(_examined(settings.data, now), _tls(settings, now), _resources(settings))
    else:
        found = _examine_peer(peer, settings, duration(timeout, "--timeout") or DEFAULT_TIMEOUT)
    if not json:
        for finding in findings:
            _show(finding)
    for finding in found:
        findings.append(finding)
        if not json:
            # Each finding is shown at once, because later steps may take time.
            _show(finding)
    if json:
        write_json([one.document() for one in findings])
    if any(finding.verdict is Verdict.FAIL for finding in findings):
        raise typer.Exit(EXIT_ERROR)


def _examined(data: Path, now: dt.datetime) -> Iterator[Finding]:
    """Yield findings about a data directory, and those of a queue manager that runs on it."""
    try:
        yield from examine(data, now)
    except StoreLocked as error:
        holder = error.args[0].partition(":")[0]
        manager = running(data)
        if manager is None:
            yield Finding("lock", Verdict.OK, f"{holder}: a program has opened its queue manager")
            text = "not examined, because that program has it open"
            yield Finding("store", Verdict.SKIP, text, "end the program, or run `lanner serve` in its place")
            return
        yield Finding("lock", Verdict.OK, f"{holder}: a queue manager is running")
        with manager:
            yield from map(Finding.from_document, manager.examine(f"--data {data}"))


def _elsewhere(at: Place) -> Iterator[Finding]:
    """Yield the findings of a queue manager elsewhere about itself and its data directory."""
    with open_manager(at) as manager:
        yield Finding("service", Verdict.OK, f"{manager.name} answers at {at.host}")
        yield from map(Finding.from_document, manager.examine(f"--host {at.host}", files=True))


def _tls(settings: Settings, now: dt.datetime) -> Iterator[Finding]:
    """Yield findings about the certificates for TLS.

    They are those of the running queue manager; if none runs, those in the settings.
    """
    transfer = settings.transfer_settings
    manager = running(settings.data)
    if manager is not None:
        with manager:
            transfer = _told(transfer, manager.status())
    yield from examine_files(transfer, now)


def _resources(settings: Settings) -> Iterator[Finding]:
    """Yield whether the databases, whose in-doubt branches the service resolves, can take part."""
    from lanner.daemon.resources import open_resource

    for name, table in settings.coordinator.resources.items():
        try:
            connection, database = open_resource(name, table)
            try:
                database.check()
            finally:
                connection.close()
        except LannerError as error:
            advice = "until this works, transactions in doubt there stay in doubt"
            yield Finding("resources", Verdict.FAIL, str(error.args[0]), advice)
        else:
            yield Finding("resources", Verdict.OK, f"{name} takes part in distributed transactions")


def _told(transfer: TransferSettings, status: Document) -> TransferSettings:
    """Return the transfer settings with the values of the running queue manager."""
    told = {key: status[key] for key in ("port", "ping_port")} | read_tls(status["tls"])
    return dataclasses.replace(transfer, **told, peers=read_peers(status["peers"], status["tls"]["peers"]))


def _examine_peer(peer: str, settings: Settings, timeout: float) -> Iterator[Finding]:
    """Examine a peer with the address and settings of the running queue manager.

    If none runs, the configuration file provides them.
    """
    data = settings.data
    manager = running(data)
    if manager is None:
        yield Finding("local", Verdict.SKIP, f"no queue manager runs on {data}: the settings are used instead")
        # The identifier does not matter: the session is closed as soon as it is open.
        yield from examine_peer(Caller(peer, settings.transfer_settings, settings.bind, timeout, uuid.uuid4()))
        return
    with manager:
        status = manager.status()
        if status["transfer"]:
            yield Finding("local", Verdict.OK, f"{status['name']} runs in process {status['process']}")
        else:
            text = f"{status['name']} runs, but exchanges no messages with other computers"
            yield Finding("local", Verdict.FAIL, text, "set transfer.enabled = true and restart it")
        yield from examine_peer(
            Caller(
                peer,
                _told(settings.transfer_settings, status),
                status["bind"],
                timeout,
                uuid.UUID(status["identifier"]),
                lambda addresses: manager.peer(peer, addresses),
            )
        )


def _settings(config: Path, given: dict[str, object]) -> Finding:
    from lanner.daemon.settings import load_settings

    try:
        load_settings(config, given)
    except LannerError as error:
        return Finding("settings", Verdict.FAIL, str(error), "the operator's guide lists every setting")
    return Finding("settings", Verdict.OK, f"{config} can be used")


def _show(finding: Finding) -> None:
    line = Text(f"{finding.verdict:<5}", style=_STYLES[finding.verdict])
    line.append(f"{finding.check:<13} {printable(finding.text)}", style="default")
    out = console()
    out.print(line, soft_wrap=True)
    if finding.advice:
        out.print(Text(f"{'':5}{'':13} {printable(finding.advice)}", style="dim"), soft_wrap=True)
    sys.stdout.flush()
