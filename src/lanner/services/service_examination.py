"""The checks of `lanner doctor` that only a running queue manager can make.

They show what it and its peers have refused since its start, and which limits are nearly reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from lanner.security.printable import counted
from lanner.services.examination import QUOTA_WARN, Finding, Verdict

Document: TypeAlias = dict[str, Any]


def examine_service(status: Document, peers: list[Document]) -> Iterator[Finding]:
    """Check the status of a running queue manager, and the peers that it knows."""
    yield from _refusals(status["refused"])
    yield from _incidents(status["incidents"])
    yield from _conflicts(peers)
    yield from _limits(status.get("limits", []))


def _refusals(rows: list[Document]) -> Iterator[Finding]:
    """Yield what the queue manager or its peers have refused since its start."""
    if not rows:
        yield Finding("refusals", Verdict.OK, "no message from or for other computers was refused")
    for one in rows:
        by = "refused here" if one["side"] == "here" else "refused by other computers"
        text = (
            f"{counted(one['messages'])} for {one['queue']} {by}: {one['class']}, the last peer is {one['last_peer']}"
        )
        yield Finding("refusals", Verdict.WARN, text, one["advice"])


def _incidents(rows: list[Document]) -> Iterator[Finding]:
    """Yield unusual requests of peers that the queue manager has ignored since its start.

    Their messages may be missing without a refusal.
    """
    for one in rows:
        if not one["is_usual"]:
            detail = f" ({one['detail']})" if one["detail"] else ""
            text = f"{one['count']} {one['text']}; the last peer is {one['last_peer']}{detail}"
            yield Finding("peers", Verdict.WARN, text, f"docs/security.md, section Peers, explains {one['kind']}")


def _conflicts(peers: list[Document]) -> Iterator[Finding]:
    """Yield queue manager identifiers claimed from an address that they are not bound to."""
    for one in peers:
        for conflict in one["conflicts"]:
            bound = ", ".join(one["addresses"]) or "no address"
            text = (
                f"queue manager {one['guid']} is bound to {bound}; "
                f"{conflict['address']} claimed to be it, and was refused ({conflict['refused']} times)"
            )
            advice = (
                f"find out which computer it is: `lanner peer trust {one['guid']} ADDRESS` accepts it from there, "
                "`lanner peer list` shows all"
            )
            yield Finding("peers", Verdict.WARN, text, advice)


def _limits(rows: list[Document]) -> Iterator[Finding]:
    """Yield the limits for peers that are nearly used up, in total or by one peer."""
    is_calm = True
    for one in rows:
        whose, used, limit = "", one["used"], one["limit"]
        if one["per_peer"] is not None and one["greatest"] * limit > used * one["per_peer"]:
            whose, used, limit = f" by {one['greatest_peer']}", one["greatest"], one["per_peer"]
        if limit and used >= limit * QUOTA_WARN:
            is_calm = False
            text = f"{one['resource']}: {used} of {limit} used{whose}, refused {one['refused']} times"
            yield Finding("limits", Verdict.WARN, text, "`lanner status` shows who; docs/security.md has the settings")
    if is_calm and rows:
        yield Finding("limits", Verdict.OK, f"no resource is used to {QUOTA_WARN:.0%}")
