"""The authorization tables in docs/security.md, each cell called over the wire.

The server is a `lanner serve` with default settings. The registries of the code list what can be
called: a method that is in no table fails a test, and so does a row without a method.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

import pytest
import uvloop

from lanner.com.interfaces import (
    IACTIVATION,
    ICLASSFACTORY,
    IOBJECTEXPORTER,
    IREMOTESCMACTIVATOR,
    IREMUNKNOWN,
    IREMUNKNOWN2,
)
from lanner.model.errors import LannerError
from lanner.rpc.endpoint_mapper import EPMAPPER
from lanner.rpc.interface import Interface
from lanner.rpc.mgmt import MGMT
from lanner.services.interfaces.lanner import LANNER, LANNER_ASK, LANNER_CALL
from lanner.services.interfaces.mqmp import QMCOMM, QMCOMM2
from lanner.services.interfaces.mqmr import QMMGMT
from lanner.services.interfaces.mqqp import QM2QM
from lanner.services.interfaces.mqrr import REMOTE_READ
from tests.adversity.matrix import com_probes, flight_probes, http_probes, lanner_probes, mqrr_probes, rpc_probes
from tests.adversity.matrix.callers import INTERFACES, Caller, Probe, Probes, World, world
from tests.adversity.matrix.table import COLUMNS, DOCUMENT, Row, read_rows
from tests.interop.peers import needs_endpoint_mapper_port

Methods = Callable[[World], Awaitable[list[str]]]


def _of(interface: Interface) -> Methods:
    async def methods(_: World) -> list[str]:
        return list(interface.by_name)

    return methods


async def _ask_requests(made: World) -> list[str]:
    return await lanner_probes.requests(made, LANNER_ASK)


async def _call_requests(made: World) -> list[str]:
    return await lanner_probes.requests(made, LANNER_CALL)


async def _members(_: World) -> list[str]:
    return list(com_probes.members())


async def _flight_methods(made: World) -> list[str]:
    return flight_probes.methods(made)


async def _http_routes(made: World) -> list[str]:
    return http_probes.methods(made)


# By the name in the heading of a table: what can be called, and how it is tried.
SECTIONS: Final[dict[str, tuple[Methods, Probes]]] = {
    "qmcomm": (_of(QMCOMM), rpc_probes.QMCOMM_PROBES),
    "qmcomm2": (_of(QMCOMM2), rpc_probes.QMCOMM2_PROBES),
    "qm2qm": (_of(QM2QM), rpc_probes.QM2QM_PROBES),
    "RemoteRead": (_of(REMOTE_READ), mqrr_probes.PROBES),
    "qmmgmt": (_of(QMMGMT), rpc_probes.QMMGMT_PROBES),
    "lanner": (_of(LANNER), lanner_probes.LANNER_PROBES),
    "LannerAsk": (_ask_requests, lanner_probes.ASK_PROBES),
    "LannerCall": (_call_requests, lanner_probes.SESSION_PROBES),
    "epmapper": (_of(EPMAPPER), rpc_probes.EPMAPPER_PROBES),
    "mgmt": (_of(MGMT), rpc_probes.MGMT_PROBES),
    "IObjectExporter": (_of(IOBJECTEXPORTER), com_probes.IOBJECTEXPORTER_PROBES),
    "IActivation": (_of(IACTIVATION), com_probes.IACTIVATION_PROBES),
    "IRemoteSCMActivator": (_of(IREMOTESCMACTIVATOR), com_probes.SCM_PROBES),
    "IRemUnknown": (_of(IREMUNKNOWN), com_probes.REM_UNKNOWN_PROBES),
    "IRemUnknown2": (_of(IREMUNKNOWN2), com_probes.REM_UNKNOWN2_PROBES),
    "IClassFactory": (_of(ICLASSFACTORY), com_probes.FACTORY_PROBES),
    "MC-MQAC": (_members, com_probes.MEMBER_PROBES),
    "Flight": (_flight_methods, flight_probes.FLIGHT_PROBES),
    "HTTP": (_http_routes, http_probes.HTTP_PROBES),
}


@dataclass
class Tried:
    """The callable methods, and each caller's result by section, method and way."""

    methods: dict[str, list[str]] = field(default_factory=dict)
    outcomes: dict[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)
    # UUIDs of what the server says that it has registered, which have no table.
    unknown_interfaces: list[str] = field(default_factory=list)


async def _try(probe: Probe, caller: Caller) -> str:
    """Say what a caller gets; what cannot be prepared is an outcome that no table has."""
    try:
        return str(await probe(caller))
    except (AssertionError, LannerError) as error:
        return f"{type(error).__name__}: {error}"


async def _try_all(made: World) -> Tried:
    tried = Tried()
    registered = await made.callers["administrator"].results(MGMT, rpc_probes.RPC_MGMT["rpc__mgmt_inq_if_ids"])
    known = {interface.uuid for interface in INTERFACES}
    tried.unknown_interfaces = [str(one.uuid) for one in registered["if_id_vector"].if_id if one.uuid not in known]
    for section, (methods, probes) in SECTIONS.items():
        tried.methods[section] = await methods(made)
        todo = dict(probes)
        if section == "MC-MQAC":
            probed = {name for name, _ in probes}
            todo |= {(name, ""): com_probes.reached(name) for name in tried.methods[section] if name not in probed}
        for (name, way), probe in todo.items():
            tried.outcomes[section, name, way] = tuple([await _try(probe, made.callers[column]) for column in COLUMNS])
    return tried


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    """Call everything as everybody."""
    needs_endpoint_mapper_port("127.0.0.1")

    async def main() -> Tried:
        async with world(tmp_path_factory.mktemp("matrix")) as made:
            try:
                found = await _try_all(made)
            finally:
                flight_probes.close_clients()
                http_probes.close_clients()
            made.served.check()
            return found

    return uvloop.run(main())


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return read_rows(DOCUMENT.read_text(encoding="utf-8"))


def _row_of(rows: list[Row], section: str, name: str, way: str) -> Row | None:
    """Return the row of a method: one that names it, before one that a pattern of is like it."""
    found = [row for row in rows if row.section == section and row.way == way and row.matches(name)]
    return min(found, key=lambda row: name not in row.names, default=None)


def test_every_interface_has_a_table(tried: Tried, rows: list[Row]) -> None:
    assert tried.unknown_interfaces == []
    assert {row.section for row in rows} == SECTIONS.keys()


@pytest.mark.parametrize("section", SECTIONS)
def test_every_method_is_in_the_table(tried: Tried, rows: list[Row], section: str) -> None:
    names = {name for place, name, _ in tried.outcomes if place == section}
    untried = [name for name in tried.methods[section] if name not in names]
    assert untried == [], "write a probe for it in tests/adversity/matrix, and a row in docs/security.md"
    missing = [
        f"{name} {way}".rstrip()
        for place, name, way in tried.outcomes
        if place == section and _row_of(rows, section, name, way) is None
    ]
    assert missing == [], f"write a row for it in docs/security.md, `{section}`"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_row_is_about_a_method(tried: Tried, rows: list[Row], section: str) -> None:
    tries = [(name, way) for place, name, way in tried.outcomes if place == section and name in tried.methods[section]]
    idle = [
        f"{pattern} {row.way}".rstrip()
        for row in rows
        if row.section == section
        for pattern in row.names
        if not any(fnmatchcase(name, pattern) and way == row.way for name, way in tries)
    ]
    assert idle == [], f"there is nothing to call for this row of `{section}`"


@pytest.mark.parametrize("section", SECTIONS)
def test_everybody_may_do_what_the_table_says(tried: Tried, rows: list[Row], section: str) -> None:
    wrong = []
    for (place, name, way), told in tried.outcomes.items():
        row = _row_of(rows, section, name, way) if place == section else None
        if row is not None and row.outcomes != told:
            pairs = zip(COLUMNS, row.outcomes, told, strict=True)
            differences = [f"{who} {got}, not {said}" for who, said, got in pairs if said != got]
            wrong.append(f"{name} {way}".rstrip() + ": " + "; ".join(differences))
    assert not wrong, "\n".join(wrong)
