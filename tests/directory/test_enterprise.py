"""The document of an enterprise: valid contents, and the errors for invalid ones."""

from __future__ import annotations

import tomllib
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.directory.enterprise import load_enterprise, read_enterprise, to_toml, write_enterprise
from lanner.directory.topology import Computer, DistributionList, Link, Signer, Topology, TopologyError

ALPHA, ORDERS, LIST = (uuid.UUID(int=number) for number in (1, 2, 3))
NETWORK = Topology(
    ("north", "south west"),
    (
        Computer(
            "ALPHA", ALPHA, "alpha.example.org", ("north",), True, ("BETA",), ("ALPHA", "BETA"), {"orders": ORDERS}
        ),
        Computer("BETA", encryption_keys=b"\0\1\xff", signing_keys=b"keys"),
    ),
    (Link("north", "south west", 7, ("ALPHA",)), Link("a", "b")),
    (DistributionList("every body", LIST, (r"DIRECT=OS:beta\private$\q", f"PUBLIC={ORDERS}")),),
    (Signer("S-1-5-21-1-2-3-1001", "alice", (b"\0one", b"two")), Signer("S-1-5-18")),
)


def test_a_document_says_all_of_a_topology(tmp_path: Path) -> None:
    document = write_enterprise(NETWORK)
    assert read_enterprise(document) == NETWORK
    path = tmp_path / "enterprise.toml"
    path.write_text(to_toml(document), encoding="utf-8")
    assert load_enterprise(path) == document


def test_it_reads_like_something_that_a_person_wrote() -> None:
    topology = replace(NETWORK, computers=NETWORK.computers[:1], links=NETWORK.links[:1], signers=NETWORK.signers[:1])
    assert (
        to_toml(write_enterprise(topology))
        == r"""sites = ["north", "south west"]

[[links]]
sites = ["north", "south west"]
cost = 7
site_gates = ["ALPHA"]

[computers.ALPHA]
identifier = "00000000-0000-0000-0000-000000000001"
address = "alpha.example.org"
sites = ["north"]
routing_server = true
out_routing_servers = ["BETA"]
in_routing_servers = ["ALPHA", "BETA"]

[computers.ALPHA.queues]
orders = "00000000-0000-0000-0000-000000000002"

[distribution_lists."every body"]
identifier = "00000000-0000-0000-0000-000000000003"
members = ["DIRECT=OS:beta\\private$\\q", "PUBLIC=00000000-0000-0000-0000-000000000002"]

[[users]]
sid = "S-1-5-21-1-2-3-1001"
name = "alice"
certificates = ["AG9uZQ==", "dHdv"]
"""
    )
    assert to_toml(write_enterprise(Topology())) == "\n"


plain = st.one_of(st.text(), st.integers(-(2**31), 2**31), st.booleans(), st.lists(st.text(), max_size=3))
tables = st.recursive(
    st.dictionaries(st.text(), plain, max_size=3),
    lambda inner: st.dictionaries(
        st.text(), st.one_of(plain, inner, st.lists(inner, min_size=1, max_size=2)), max_size=3
    ),
    max_leaves=8,
)  # fmt: skip


@given(tables)
def test_whatever_is_written_is_read_again(document: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(document)) == document


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"sites": 3}, "^sites: Input should be a valid list$"),
        ({"site": ["a"]}, "^site: Extra inputs are not permitted$"),
        ({"links": [{"sites": ["a"]}]}, "^links.0.sites: List should have at least 2 items"),
        ({"links": [{"sites": ["a", "b"], "cost": "much"}]}, "^links.0.cost: Input should be a valid integer"),
        ({"computers": {"ALPHA": {"identifier": "x"}}}, "^computers.ALPHA.identifier: Input should be a valid UUID"),
        ({"computers": {"ALPHA": {"queues": {"q": 1}}}}, "^computers.ALPHA.queues.q: "),
        ({"computers": {"ALPHA": {"signing_keys": "no base64!"}}}, "^computers.ALPHA.signing_keys: Value error"),
        (
            {"users": [{"sid": "S-1-5-18", "certificates": [1]}]},
            "^users.0.certificates.0: Input should be a valid bytes",
        ),
        ({"distribution_lists": {"all": {}}}, "^distribution_lists.all.identifier: Field required$"),
        ({"sites": 3, "links": 4}, "; links: "),
    ],
)
def test_a_mistake_is_reported_with_its_place(document: dict[str, object], complaint: str) -> None:
    with pytest.raises(TopologyError, match=complaint):
        read_enterprise(document)


@pytest.mark.parametrize("text", [b"[computers.", b"\xff"])
def test_a_file_that_is_no_toml_is_told_by_its_name(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "enterprise.toml"
    path.write_bytes(text)
    with pytest.raises(TopologyError, match=r"^.*enterprise\.toml: "):
        load_enterprise(path)
