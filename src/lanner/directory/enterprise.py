r"""The description of an enterprise: one document for all computers, in TOML or JSON.

    sites = ["HQ", "BRANCH"]

    [[links]]
    sites = ["HQ", "BRANCH"]
    cost = 5
    site_gates = ["GATE"]

    [computers.ALPHA]
    identifier = "0f5ef1a4-6a52-4a2b-9f0e-6ad5a3c0b8a1"
    address = "alpha.example.com"
    sites = ["HQ"]

    [computers.ALPHA.queues]
    orders = "5c8f0c0e-58b1-4f5c-a5ae-8a0a6a1cf0f2"

    [distribution_lists.everybody]
    identifier = "b8a9f6de-12ab-4c8d-9b53-1e1c6a8f21aa"
    members = ['DIRECT=OS:alpha\private$\orders']

    [[users]]
    sid = "S-1-5-21-1-2-3-1001"
    name = "alice"
    certificates = ["MIIC..."]

Keys of computers (`encryption_keys`, `signing_keys`) and certificates are octets, in base64.

`read_enterprise` turns it into a `Topology`; `write_enterprise` does the reverse.
"""

from __future__ import annotations

import base64
import json
import re
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from lanner.directory.topology import Computer, DistributionList, Link, Signer, Topology, TopologyError

Document = dict[str, Any]

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def _octets(value: object) -> object:
    # Other types are left to pydantic's validation.
    return base64.b64decode(value, validate=True) if isinstance(value, str) else value


_Octets = Annotated[bytes, BeforeValidator(_octets), PlainSerializer(lambda octets: base64.b64encode(octets).decode())]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Link(_Part):
    sites: list[str] = Field(min_length=2, max_length=2)
    cost: int = 1
    site_gates: list[str] = []


class _Computer(_Part):
    identifier: uuid.UUID | None = None
    address: str = ""
    sites: list[str] = []
    routing_server: bool = False
    out_routing_servers: list[str] = []
    in_routing_servers: list[str] = []
    encryption_keys: _Octets = b""
    signing_keys: _Octets = b""
    queues: dict[str, uuid.UUID] = {}


class _User(_Part):
    sid: str
    name: str = ""
    certificates: list[_Octets] = []


class _List(_Part):
    identifier: uuid.UUID
    members: list[str] = []


class _Enterprise(_Part):
    sites: list[str] = []
    links: list[_Link] = []
    computers: dict[str, _Computer] = {}
    distribution_lists: dict[str, _List] = {}
    users: list[_User] = []


def load_enterprise(path: Path) -> Document:
    """Read a file. Raises TopologyError if it is not valid TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TopologyError(f"{path}: {error}") from None


def read_enterprise(document: Mapping[str, object]) -> Topology:
    """Parse a document. Raises TopologyError, which names the invalid part."""
    try:
        found = _Enterprise.model_validate(document)
    except ValidationError as error:
        parts = (f"{_place(problem['loc'])}: {problem['msg']}" for problem in error.errors(include_url=False))
        raise TopologyError("; ".join(parts)) from None
    return Topology(
        tuple(found.sites),
        tuple(
            Computer(
                name,
                one.identifier,
                one.address,
                tuple(one.sites),
                one.routing_server,
                tuple(one.out_routing_servers),
                tuple(one.in_routing_servers),
                one.queues,
                one.encryption_keys,
                one.signing_keys,
            )
            for name, one in found.computers.items()
        ),
        tuple(Link(one.sites[0], one.sites[1], one.cost, tuple(one.site_gates)) for one in found.links),
        tuple(
            DistributionList(name, one.identifier, tuple(one.members)) for name, one in found.distribution_lists.items()
        ),
        tuple(Signer(one.sid, one.name, tuple(one.certificates)) for one in found.users),
    )


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "the document"


def write_enterprise(topology: Topology) -> Document:
    """Return the document of a topology; values equal to their default are left out."""
    enterprise = _Enterprise(
        sites=list(topology.sites),
        links=[
            _Link(sites=[one.site1, one.site2], cost=one.cost, site_gates=list(one.site_gates))
            for one in topology.links
        ],
        computers={
            one.name: _Computer(
                identifier=one.identifier,
                address=one.qualified_computer_name,
                sites=list(one.sites),
                routing_server=one.routing_server,
                out_routing_servers=list(one.out_routing_servers),
                in_routing_servers=list(one.in_routing_servers),
                encryption_keys=one.encryption_keys,
                signing_keys=one.signing_keys,
                queues=dict(one.public_queues),
            )
            for one in topology.computers
        },
        distribution_lists={
            one.name: _List(identifier=one.identifier, members=list(one.members)) for one in topology.distribution_lists
        },
        users=[_User(sid=one.sid, name=one.name, certificates=list(one.certificates)) for one in topology.signers],
    )
    return enterprise.model_dump(mode="json", exclude_defaults=True)


def to_toml(document: Document) -> str:
    """Return a document in the form that `load_enterprise` reads."""
    return "\n".join(_table(document, ())).strip() + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for key, value in table.items():
        if not _is_table(value):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        name = ".".join(map(_key, (*path, key)))
        if isinstance(value, Mapping):
            # A table that contains only tables needs no header of its own.
            if not value or any(not _is_table(inner) for inner in value.values()):
                yield f"\n[{name}]"
            yield from _table(value, (*path, key))
        elif _is_table(value):
            for one in value:
                yield f"\n[[{name}]]"
                yield from _table(one, (*path, key))


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and bool(value) and isinstance(value[0], Mapping))


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _value(key)


def _value(value: object) -> str:
    # For strings, numbers, booleans and lists of them, JSON is valid TOML, except for one
    # character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
