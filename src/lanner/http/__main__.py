"""How the daemon starts the process: the numbers of the listening socket, of the socket pair, and of the settings."""

from __future__ import annotations

import sys

from lanner.http.server import main

if __name__ == "__main__":
    main(*(int(one) for one in sys.argv[1:4]))
