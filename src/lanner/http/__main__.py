"""Entry point for the daemon, with three descriptors: listening socket, socket pair, settings."""

from __future__ import annotations

import sys

from lanner.http.server import main

if __name__ == "__main__":
    main(*(int(one) for one in sys.argv[1:4]))
