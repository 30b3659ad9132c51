"""The messages that a person sees when something goes wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import lanner
from lanner.client import QueueManager
from tests.cli.conftest import Run


def test_no_data_directory_is_reported_with_what_to_do(run: Run, data: Path) -> None:
    error = run("queue", "list", code=1).err
    assert f"data directory {data} does not exist" in error
    assert "lanner queue create NAME" in error
    assert not data.exists()
    data.mkdir()
    assert "holds no queue manager" in run("peek", "x", code=1).err


def test_a_data_directory_in_use_names_the_process(run: Run, data: Path) -> None:
    with QueueManager(data):
        error = run("queue", "list", code=1).err
    assert "is open in process" in error
    assert "another data directory" in error


def test_an_error_is_json_where_the_output_is(run: Run, orders: str) -> None:
    ran = run("peek", "none", "--json", code=1)
    assert ran.out == ""
    error = json.loads(ran.err)
    assert (error["kind"], error["status"]) == ("QueueNotFound", "0xc00e0003")
    assert "lanner queue list" in error["hint"]


@pytest.mark.parametrize("arguments", [("--debug", "peek", "none"), ("peek", "none", "--debug")])
def test_debug_shows_the_traceback_wherever_it_stands(run: Run, orders: str, arguments: tuple[str, ...]) -> None:
    assert "Traceback" in run(*arguments, code=1).err
    assert "Traceback" not in run("peek", "none", code=1).err


def test_a_fault_of_the_program_is_no_traceback_either(run: Run, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("lanner.cli.reading.open_manager", broken)
    error = run("peek", orders, code=1).err
    assert error == "lanner: ZeroDivisionError: oops; this is a fault of lanner, `--debug` shows where\n"


def test_a_word_after_two_dashes_is_a_body_and_no_option(run: Run, orders: str) -> None:
    run("send", orders, "--", "--debug")
    assert run("peek", orders, "--json").json["body"] == "--debug"


def test_an_illegal_name_is_reported_with_legal_ones(run: Run, orders: str) -> None:
    error = run("queue", "create", r"a b\c", code=1).err
    assert "' ' is not allowed" in error
    assert r"'.\private$\orders'" in error


def test_a_wrong_command_is_a_usage_error_with_a_guess(run: Run) -> None:
    assert "send" in run("snd", code=2).err


def test_the_version(run: Run) -> None:
    assert run("--version").out == f"lanner {lanner.__version__}\n"


def test_every_command_explains_itself(run: Run) -> None:
    for command in (
        "serve",
        "queue",
        "send",
        "peek",
        "receive",
        "move",
        "copy",
        "deadletter",
        "journal",
        "user",
        "outgoing",
        "status",
        "trace",
        "doctor",
    ):
        assert command in run("--help").out
        assert "Usage" in run(*command.split(), "--help").out


@pytest.mark.parametrize(
    "command", [("queue", "list"), ("queue", "create", "x"), ("serve",), ("doctor",), ("user", "list")]
)
def test_a_file_is_no_data_directory(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "file"
    file.touch()
    ran = run(*command, "--data", file, code=1)
    assert f"{file} is no directory" in ran.err + ran.out


def test_a_data_directory_of_somebody_else_is_told(
    run: Run, orders: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may read everything, so the answer of the system is played.
    monkeypatch.setattr(os, "access", lambda path, mode, **_: Path(path) != data)
    for command in (("queue", "list"), ("doctor",), ("user", "list")):
        ran = run(*command, code=1)
        assert f"{data} cannot be read and written by uid" in ran.err + ran.out


def test_a_flag_takes_no_value_in_the_help(run: Run) -> None:
    for command in ((), ("queue", "create"), ("queue",), ("receive",)):
        assert "bool" not in run(*command, "--help").out
