"""Call our echo with Samba's libdcerpc; for the system's Python, which has Samba.

Arguments: binding options, e.g. "ntlm,seal".
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

ECHO = ("60a15ec5-4de8-11d7-a637-005056a20182", 1)
DATA = bytes(range(256)) * 80


def main() -> None:
    mgmt: Any = importlib.import_module("samba.dcerpc.mgmt")
    base: Any = importlib.import_module("samba.dcerpc.base")
    credentials: Any = importlib.import_module("samba.credentials")
    param: Any = importlib.import_module("samba.param")
    settings = param.LoadParm()
    settings.load(os.environ["SMB_CONF_PATH"])
    who = credentials.Credentials()
    who.guess(settings)
    who.set_username(os.environ["USERNAME"])
    who.set_password(os.environ["PASSWORD"])
    who.set_domain(os.environ["DOMAIN"])
    options = sys.argv[1]
    if "krb5" in options:
        who.set_realm(os.environ["REALM"])
        who.set_kerberos_state(credentials.MUST_USE_KERBEROS)
    else:
        who.set_kerberos_state(credentials.DONT_USE_KERBEROS)
    if not options:
        who.set_anonymous()
    host = os.environ["TARGET_HOSTNAME"]
    binding = f"ncacn_ip_tcp:{host}[{os.environ['PORT']}{',' + options if options else ''}]"
    # Interfaces that Samba has no IDL for are reached from one that it has.
    first = mgmt.mgmt(binding, settings, who)
    echo = base.ClientConnection(binding, ECHO, settings, basis_connection=first)
    for opnum in (0, 1):
        if echo.request(opnum, DATA) != DATA:
            raise SystemExit(f"opnum {opnum} does not echo")
    first.request(0, b"")


main()
