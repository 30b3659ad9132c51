"""Asking the queue manager of a data directory: the process that runs it, or the directory itself while none does."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from lanner.cli.errors import CommandError
from lanner.cli.session import check_directory, open_manager
from lanner.client.administration import Administration
from lanner.client.control_socket import control_path

# Ours: an answer that takes longer does not come; the queue manager is stopping, or hangs.
_TIMEOUT = 30.0  # seconds


def ask(data: Path, request: str, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
    """The answer to a request (see Administration); CommandError says why there is none."""
    check_directory(data)
    question = {"request": request, **arguments}
    answered = ask_running(data, question)
    if answered is not None:
        return answered
    with open_manager(data) as manager:
        return Administration(manager.runtime).answer(question)


def ask_running(data: Path, question: dict[str, object]) -> Any:  # noqa: ANN401 (JSON)
    """The answer of the process that runs the queue manager; None if none does."""
    try:
        with control_path(data) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TIMEOUT)
            try:
                connection.connect(path)
            except (FileNotFoundError, ConnectionRefusedError):
                # Nobody has started one, or it was killed and left its socket behind.
                return None
            except PermissionError as error:
                raise CommandError(
                    f"the queue manager of {data} belongs to another user: run as that user, or as root"
                ) from error
            connection.sendall(json.dumps(question).encode() + b"\n")
            with connection.makefile("rb") as stream:
                line = stream.readline()
    except FileNotFoundError:
        return None
    except TimeoutError as error:
        raise CommandError(f"the queue manager of {data} did not answer in {_TIMEOUT:g} s: look at its log") from error
    except ConnectionError as error:
        raise CommandError(f"the queue manager of {data} went away: look at its log") from error
    if not line.endswith(b"\n"):
        raise CommandError(f"the queue manager of {data} went away: look at its log")
    document = json.loads(line)
    if "error" in document:
        raise CommandError(document["error"])
    return document["answer"]
