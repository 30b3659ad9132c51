"""Samba's libdcerpc against a whole queue manager; for the system's Python, which has Samba.

`python3 samba_foreign.py HOST OPTIONS INTERFACE OPNUM STUB`: it asks the endpoint mapper for the
port of an interface, calls an operation with a stub in hexadecimal, and prints the answer likewise.
USERNAME, PASSWORD and SMB_CONF_PATH are in the environment.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, TypeAlias

Peer: TypeAlias = Any  # Samba has no types
base: Peer = importlib.import_module("samba.dcerpc.base")
credentials: Peer = importlib.import_module("samba.credentials")
epmapper: Peer = importlib.import_module("samba.dcerpc.epmapper")
mgmt: Peer = importlib.import_module("samba.dcerpc.mgmt")
misc: Peer = importlib.import_module("samba.dcerpc.misc")
param: Peer = importlib.import_module("samba.param")

RPC_C_EP_MATCH_BY_IF, RPC_C_VERS_ALL = 1, 1
TCP = 7


def port_of(host: str, interface: str, settings: Peer) -> int:
    nobody = credentials.Credentials()
    nobody.set_anonymous()
    mapper = epmapper.epmapper(f"ncacn_ip_tcp:{host}[135]", settings, nobody)
    wanted = epmapper.rpc_if_id_t()
    wanted.uuid = misc.GUID(interface)
    wanted.vers_major = 1
    _, entries, _ = mapper.epm_Lookup(
        RPC_C_EP_MATCH_BY_IF, misc.GUID(), wanted, RPC_C_VERS_ALL, misc.policy_handle(), 10
    )
    for entry in entries:
        for floor in entry.tower.tower.floors:
            if floor.lhs.protocol == TCP:
                return int(floor.rhs.port)
    raise SystemExit(f"the endpoint mapper knows no port of {interface}")


def main() -> None:
    host, options, interface, opnum, stub = sys.argv[1:]
    settings = param.LoadParm()
    settings.load(os.environ["SMB_CONF_PATH"])
    who = credentials.Credentials()
    who.guess(settings)
    who.set_username(os.environ["USERNAME"])
    who.set_password(os.environ["PASSWORD"])
    who.set_domain("MQ")
    who.set_kerberos_state(credentials.DONT_USE_KERBEROS)
    binding = f"ncacn_ip_tcp:{host}[{port_of(host, interface, settings)},{options}]"
    # Interfaces that Samba has no IDL for are reached from one that it has.
    first = mgmt.mgmt(binding, settings, who)
    called = base.ClientConnection(binding, (interface, 1), settings, basis_connection=first)
    sys.stdout.write(called.request(int(opnum), bytes.fromhex(stub)).hex())


main()
