"""The `lanner` command.

There is one module per group of commands. `app` combines them; `errors` turns each error into a
line that says what happened, to which object, and what to do. Commands work on a data directory
directly, through the client API.
"""

from lanner.cli.app import main

__all__ = ["main"]
