"""`lanner doctor`: whether everything is in order."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from lanner.cli.checks import Finding, Verdict, examine
from lanner.cli.errors import EXIT_ERROR
from lanner.cli.options import Json
from lanner.cli.output import console, printable, write_json
from lanner.model.errors import LannerError

_STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}


def doctor(
    *,
    config: Annotated[
        Path | None, typer.Option("--config", help="Settings of `lanner serve` to check too, and where its data is.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="The data directory.", show_default="./data", readable=False)
    ] = None,
    json: Json = False,
) -> None:
    """Check the data directory and the settings. Changes no queue and no message; exit code 1 if something is broken."""
    from lanner.daemon import load_settings

    findings: list[Finding] = []
    given: dict[str, object] = {} if data is None else {"data": data}
    if config is not None:
        findings.append(_settings(config, given))
    is_usable = not findings or findings[0].verdict is Verdict.OK
    # Where `lanner serve` would look with the same options.
    where = load_settings(config if is_usable else None, given).data
    findings += examine(where, dt.datetime.now(dt.UTC))
    if json:
        write_json(
            [
                {"check": one.check, "verdict": one.verdict.value, "text": one.text, "advice": one.advice}
                for one in findings
            ]
        )
    else:
        for finding in findings:
            _show(finding)
    if any(finding.verdict is Verdict.FAIL for finding in findings):
        raise typer.Exit(EXIT_ERROR)


def _settings(config: Path, given: dict[str, object]) -> Finding:
    from lanner.daemon import load_settings

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
