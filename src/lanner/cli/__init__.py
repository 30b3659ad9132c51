"""The `lanner` command.

One module per group of commands; `app` puts them together, `errors` turns what went wrong into a
line that says what, where and what to do. Commands work on a data directory directly, through the
client API.
"""

from lanner.cli.app import main

__all__ = ["main"]
