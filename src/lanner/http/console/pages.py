"""The pages with lists.

These are the overview, queues, outgoing queues, peers, transactions, doctor, trace and reports.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from lanner.host.name_patterns import name_pattern
from lanner.http.console import overview as summary
from lanner.http.console.confirming import Question, ask
from lanner.http.console.overview import destination, quota_share
from lanner.http.console.page import (
    done,
    explain,
    is_stuck,
    local_name,
    queue_url,
    render,
    shell,
    short_name,
    url,
)
from lanner.http.console.past import SPANS, last_rate, past, span_of, spark, trend
from lanner.http.console.peers_picture import draw
from lanner.http.console.samples import every_queue, oldest_arrivals
from lanner.http.console.sites_picture import draw_sites
from lanner.http.console.visiting import Looking, PageRoute
from lanner.http.console.words import number, percent, plural, size
from lanner.model.enums import INFINITE
from lanner.model.errors import AccessDenied, LannerError, MessageNotFound

if TYPE_CHECKING:
    from lanner.client._async.queue_manager import QueueManager
    from lanner.http.console.page import Visitor
    from lanner.http.console.samples import Sampler

router = APIRouter(route_class=PageRoute, include_in_schema=False)
Document = dict[str, Any]

_PAGE: Final = 50
# The number of queues on the overview, the number considered for it, and the number of samples from
# which on a session has rates.
_BUSIEST: Final = 8
_LIKELY: Final = 24
_ENOUGH: Final = 3
_KINDS: Final = {"private": "Private", "public": "Public", "system": "System"}
# The queues that every queue manager has, and their contents.
_SYSTEM: Final = (
    ("system$;DEADLETTER", "Dead letters"),
    ("system$;DEADXACT", "Dead letters of transactions"),
    ("system$;JOURNAL", "Journal of messages that were sent"),
)
# The limits on the overview, by the resource of the budget.
_ROOM: Final = {
    "bytes of messages": "Quota of all messages",
    "bytes of express messages in memory": "Memory of express messages",
    "descriptors": "Open files",
    "transfer sessions": "Sessions",
}


# Overview
# --------------------------------------------------------------------------------------------------


@router.get("/")
async def overview(request: Request, visitor: Looking, span: int = 900) -> Response:
    manager, sampler = visitor.manager, visitor.sampler
    if not visitor.sees_all:
        # Sessions, limits and checks need the right to see all; other users begin with their
        # queues.
        return RedirectResponse("/queues", 303)
    span = span_of(span)
    sample, status, findings, oldest, before = await asyncio.gather(
        sampler.latest(), manager.status(), manager.examine(), manager.oldest_message(), past(manager, None)
    )
    found = summary.alarms(sample, findings, is_online=status["online"], name=manager.name)
    rows = [{**row, "rate": sampler.rate(row["name"])} for row in sample.rows]
    # The session may be too young to have rates. The history then decides among the likely queues.
    likely = sorted(rows, key=lambda row: (-row["rate"].into, -row["arrivals"], -row["messages"]))[:_LIKELY]
    lines = await asyncio.gather(*(past(manager, row["name"]) for row in likely))
    for row, points in zip(likely, lines, strict=True):
        if len(sampler.samples) < _ENOUGH:
            row["rate"] = last_rate(points)
    busiest = sorted(
        zip(likely, lines, strict=True),
        key=lambda pair: (-pair[0]["rate"].into - pair[0]["rate"].out, -pair[0]["messages"], pair[0]["name"]),
    )[:_BUSIEST]
    return await render(
        request,
        visitor,
        "overview.html",
        about=status,
        alarms=found,
        headline=summary.headline(len(found)),
        checks=len(findings),
        in_order=sum(one["verdict"] not in ("WARN", "FAIL") for one in findings),
        messages=sample.messages,
        dead_letters=sample.dead_letters,
        stuck=sum(map(is_stuck, sample.outgoing)),
        rate=sampler.rate() if len(sampler.samples) >= _ENOUGH else last_rate(before),
        trend=trend(before),
        oldest=oldest,
        span=span,
        spans=SPANS,
        queues=sample.queues,
        busiest=[(row, spark(points)) for row, points in busiest],
        room=_room(status),
    )


def _room(status: Document) -> list[Document]:
    room = []
    disk = status.get("disk")
    if disk is not None:
        used, total = disk["total"] - disk["free"], disk["total"]
        room.append({"name": "Disk", "text": f"{size(used)} of {size(total)}", "percent": percent(used, total)})
    for limit in status["limits"]:
        name = _ROOM.get(limit["resource"])
        if name is not None:
            is_bytes = limit["resource"].startswith("bytes")
            used, most = (
                (size(limit["used"]), size(limit["limit"]))
                if is_bytes
                else (number(limit["used"]), number(limit["limit"]))
            )
            room.append({"name": name, "text": f"{used} of {most}", "percent": percent(limit["used"], limit["limit"])})
    return room


async def _denied(request: Request, visitor: Visitor, title: str, error: AccessDenied) -> Response:
    """Return the page for a user who lacks a right; it shows the alternatives."""
    return await render(request, visitor, "denied.html", status=403, heading=title, text=str(error))


# Queues
# --------------------------------------------------------------------------------------------------


@router.get("/queues")
async def queues(
    request: Request,
    visitor: Looking,
    kind: str = "private",
    find: str = "",
    show: str = "all",
    sort: str = "messages",
    page: int = 0,
) -> Response:
    sampler = visitor.sampler
    known = await every_queue(visitor.manager, await sampler.latest())
    kind = kind if kind in _KINDS else "private"
    every = {key: _rows(known, sampler, key) for key in ("private", "public")}
    every["system"] = await _system_rows(visitor.manager) if visitor.sees_all else []
    matching = [row for row in every[kind] if _matches(row, find)]
    shown = {
        "all": matching,
        "filled": [row for row in matching if row["messages"]],
        "attention": [row for row in matching if row["state"] in ("warn", "bad")],
    }
    show = show if show in shown else "all"
    rows = sorted(shown[show], key=_order(sort))
    first = max(0, page) * _PAGE
    chips = [("all", "All"), ("filled", "Not empty"), ("attention", "Needs attention")]
    return await render(
        request,
        visitor,
        "queues.html",
        part="queue_rows.html",
        rows=await _with_oldest(visitor.manager, rows[first : first + _PAGE]),
        found=len(rows),
        first=first,
        page=page,
        kind=kind,
        find=find,
        show=show,
        sort=sort,
        total=sum(row["messages"] for key in ("private", "public") for row in every[key]),
        count=len(every["private"]) + len(every["public"]),
        tabs=[(key, title, len(every[key])) for key, title in _KINDS.items()],
        chips=[(key, title, len(shown[key])) for key, title in chips],
    )


def _rows(known: list[Document], sampler: Sampler, kind: str) -> list[Document]:
    rows = []
    for row in known:
        if row["kind"] != kind:
            continue
        share = quota_share(row)
        state, word = "", "Empty"
        if share >= summary.FULL:
            state, word = "bad", "Full"
        elif share >= summary.NEARLY_FULL:
            state, word = "warn", f"{share} % of quota"
        elif sampler.rate(row["name"]).out:
            state, word = "ok", "Working"
        elif row["messages"]:
            state, word = "busy", "Waiting"
        limited = row["quota_kb"] != INFINITE
        rows.append(
            {
                **row,
                "share": share if limited else None,
                "state": state,
                "word": word,
                "rate": sampler.rate(row["name"]),
            }
        )
    return rows


async def _system_rows(manager: QueueManager) -> list[Document]:
    rows = []
    for name, label in _SYSTEM:
        async with manager.open(name) as queue:
            attributes = await queue.attributes()
        rows.append(
            {
                "name": name,
                "kind": "system",
                "label": label,
                "messages": attributes.message_count,
                "bytes": attributes.total_bytes,
                "journal_messages": 0,
                "readers": 0,
                "share": None,
                "state": "locked",
                "word": "System",
                "rate": _NO_RATE,
            }
        )
    return rows


class _NoRate:
    into = out = 0.0


_NO_RATE: Final = _NoRate()


def _matches(row: Document, find: str) -> bool:
    pattern = find.casefold()
    fits = name_pattern(pattern if "*" in pattern or "?" in pattern else f"*{pattern}*")
    return any(fits(text.casefold()) for text in (short_name(row["name"]), row["label"]))


def _order(sort: str) -> Any:  # noqa: ANN401 (a key of sorted)
    urgency = {"bad": 0, "warn": 1}
    keys: dict[str, Any] = {
        "name": lambda row: row["name"].casefold(),
        "bytes": lambda row: -row["bytes"],
        "in": lambda row: -row["rate"].into,
        "out": lambda row: -row["rate"].out,
        "journal": lambda row: -row["journal_messages"],
    }
    return keys.get(sort, lambda row: (urgency.get(row["state"], 2), -row["messages"], row["name"].casefold()))


async def _with_oldest(manager: QueueManager, rows: list[Document]) -> list[Document]:
    """Add when the oldest message of each queue arrived; of a system queue the first one."""
    known = await oldest_arrivals(manager, [row["name"] for row in rows if row["messages"]])

    async def oldest(row: Document) -> Document:
        if row["kind"] != "system" or not row["messages"]:
            return {**row, "oldest": known.get(row["name"])}
        try:
            async with manager.open(row["name"]) as queue:
                return {**row, "oldest": (await queue.peek_by_lookup_id(0, "first")).arrived_time}
        except (MessageNotFound, AccessDenied):
            return {**row, "oldest": None}

    return list(await asyncio.gather(*map(oldest, rows)))


@router.get("/queues/create")
async def create_form(request: Request, visitor: Looking) -> Response:
    return await _create_page(request, visitor, {}, None)


async def _create_page(request: Request, visitor: Visitor, form: Document, error: LannerError | None) -> Response:
    empty = {"name": "", "label": "", "quota": "", "journal_quota": "", "transactional": False, "journal": False}
    told = None if error is None else explain(error)
    return await render(
        request, visitor, "queue_create.html", status=200 if error is None else 409, form={**empty, **form}, error=told
    )


@router.post("/queues/create")
async def create(
    request: Request,
    visitor: Looking,
    name: Annotated[str, Form()],
    label: Annotated[str, Form()] = "",
    quota: Annotated[str, Form()] = "",
    journal_quota: Annotated[str, Form()] = "",
    transactional: Annotated[str, Form()] = "",
    journal: Annotated[str, Form()] = "",
) -> Response:
    form = {
        "name": name,
        "label": label,
        "quota": quota,
        "journal_quota": journal_quota,
        "transactional": bool(transactional),
        "journal": bool(journal),
    }
    try:
        queue = await visitor.manager.create_queue(
            name.strip(),
            label=label,
            transactional=bool(transactional),
            journal=bool(journal),
            quota_kb=int(quota) if quota.isdecimal() else None,
            journal_quota_kb=int(journal_quota) if journal_quota.isdecimal() else None,
        )
    except LannerError as error:
        return await _create_page(request, visitor, form, error)
    made = local_name(queue.path_name)
    return done(visitor, queue_url(made), "Queue created", name=made, href=queue_url(made))


@router.get("/find")
async def find_anything(visitor: Looking, what: str = "") -> Response:
    """Redirect to the queue, the message or the computer of that name."""
    what = what.strip()
    if not what:
        return RedirectResponse("/queues", 303)
    if "\\" in what and what.partition("\\")[2].isdecimal():
        return RedirectResponse(url("/trace", message=what), 303)
    sample = await visitor.sampler.latest()
    known = await every_queue(visitor.manager, sample)
    names = {local_name(row["name"]).casefold(): local_name(row["name"]) for row in known}
    exact = names.get(what.casefold()) or names.get(f"private$\\{what}".casefold())
    if exact is not None:
        return RedirectResponse(queue_url(exact), 303)
    for one in sample.outgoing:
        if destination(one).casefold() == what.casefold():
            return RedirectResponse(url("/outgoing", name=one["name"]), 303)
    return RedirectResponse(url("/queues", find=what), 303)


# Outgoing queues
# --------------------------------------------------------------------------------------------------


@router.get("/outgoing")
async def outgoing(request: Request, visitor: Looking, name: str = "") -> Response:
    try:
        documents = await visitor.manager.outgoing()
    except AccessDenied as error:
        return await _denied(request, visitor, "You may not see outgoing queues", error)
    rows = sorted(map(_outgoing_row, documents), key=lambda row: (not row["stuck"], -row["messages"], row["name"]))
    chosen = next((row for row in rows if row["name"].lower() == name.lower()), None)
    if chosen is None and rows and rows[0]["stuck"]:
        chosen = rows[0]
    return await render(
        request,
        visitor,
        "outgoing.html",
        rows=rows,
        chosen=chosen,
        waiting=sum(row["messages"] for row in rows),
    )


_STATES: Final = {
    "Connected": ("ok", "Connected"),
    "Disconnected": ("bad", "Not connected"),
    "Disconnecting": ("busy", "Disconnecting"),
    "Inactive": ("", "Inactive"),
    "Locked": ("locked", "Locked"),
    "NeedValidation": ("busy", "Looking for a route"),
    "Waiting": ("busy", "Connecting"),
    "OnHold": ("paused", "Paused"),
}


def _outgoing_row(document: Document) -> Document:
    state, word = _STATES.get(document["state"].replace(" ", ""), ("", document["state"]))
    if state == "bad" and not document["messages"]:
        state = ""
    return {
        **document,
        "destination": destination(document),
        "pill": state,
        "word": word,
        "paused": state == "paused",
        "stuck": is_stuck(document),
        "lines": _history(document["connection_history"]),
    }


def _history(entries: list[Document]) -> list[Document]:
    """Return the connection's history, newest first.

    Consecutive attempts that failed the same way are one line.
    """
    lines: list[Document] = []
    for entry in reversed(entries):
        last = lines[-1] if lines else None
        if last is not None and all(last[key] == entry[key] for key in ("text", "error", "addresses")):
            last["times"] += 1
        else:
            lines.append({**entry, "times": 1})
    return lines


@router.post("/outgoing/{action}")
async def act_on_outgoing(
    request: Request,
    visitor: Looking,
    action: str,
    name: Annotated[str, Form()],
    confirmed: Annotated[str, Form()] = "",
) -> Response:
    manager = visitor.manager
    back = url("/outgoing", name=name)
    if action == "pause" and not confirmed:
        waiting = next((one["messages"] for one in await manager.outgoing() if one["name"] == name), 0)
        return await render(request, visitor, "outgoing_pause.html", name=name, waiting=waiting, back=back)
    if action == "pause":
        await manager.pause(name)
        return done(visitor, back, "Paused. Its messages wait until it is resumed")
    if action == "resume":
        await manager.resume(name)
        return done(visitor, back, "Resumed")
    await manager.resend(name)
    return done(visitor, back, "Tried again now")


# Peers
# --------------------------------------------------------------------------------------------------


@router.get("/peers")
async def peers(request: Request, visitor: Looking, view: str = "sessions") -> Response:
    manager = visitor.manager
    try:
        known, status, waiting, enterprise = await asyncio.gather(
            manager.peers(), manager.status(), manager.outgoing(), _enterprise(manager)
        )
    except AccessDenied as error:
        return await _denied(request, visitor, "You may not see other computers", error)
    rows = peer_rows(known, status, waiting)
    rows.sort(key=lambda row: (row["pill"] != "bad", not row["conflicts"], -row["waiting"], row["name"].casefold()))
    stuck = frozenset(row["name"].casefold() for row in rows if row["pill"] == "bad")
    return await render(
        request,
        visitor,
        "peers.html",
        rows=rows,
        picture=draw(manager.name, rows),
        view="sites" if view == "sites" else "sessions",
        enterprise=enterprise,
        map=draw_sites(enterprise, manager.name, stuck),
        sites={name.casefold(): ", ".join(one["sites"]) for name, one in enterprise["computers"].items()},
    )


async def _enterprise(manager: QueueManager) -> Document:
    """Return sites, links and computers, with the defaults that the document leaves out."""
    told = await manager.enterprise.document()
    links = [{"cost": 1, "site_gates": [], **link} for link in told.get("links", ())]
    computers = {name: {"sites": [], **one} for name, one in told.get("computers", {}).items()}
    return {"sites": told.get("sites", []), "links": links, "computers": computers}


def peer_rows(known: list[Document], status: Document, waiting: list[Document]) -> list[Document]:
    """Return the other computers: those with a pin, a session or an outgoing queue."""
    rows: dict[str, Document] = {}

    def row(name: str) -> Document:
        empty: Document = {"guid": "", "conflicts": [], "waiting": 0, "sessions": 0, "on_the_way": 0, "problem": None}
        more: Document = {
            "name": name,
            "pill": "",
            "word": "Inactive",
            "last_seen": None,
            "addresses": {},
            "tls": False,
        }
        return rows.setdefault(name.casefold(), {**empty, **more})

    by_address: dict[str, Document] = {}
    for peer in known:
        one = row(peer["name"] or next(iter(peer["addresses"]), peer["guid"]))
        one.update(
            {key: peer[key] for key in ("guid", "conflicts", "last_seen", "addresses")},
        )
        by_address |= dict.fromkeys(peer["addresses"], one)
    for session in status["sessions"]:
        one = by_address.get(session["address"]) or row(session["certified_peer"] or session["address"])
        one["sessions"] += 1
        one["on_the_way"] += session["unacknowledged"]
        one["tls"] = one["tls"] or session["certificate"] is not None
        one["pill"], one["word"] = "ok", "Connected"
    for queue in map(_outgoing_row, waiting):
        hops = [hop.partition("=")[2] for hop in queue["next_hops"]]
        known_hop = next((hop for hop in hops if hop in by_address), None)
        one = row(queue["destination"]) if known_hop is None else by_address[known_hop]
        if one["name"] in one["addresses"] and queue["name"].upper().startswith("DIRECT=OS:"):
            one["name"] = queue["destination"]
        one["waiting"] += queue["messages"]
        if queue["stuck"]:
            one["pill"], one["word"], one["problem"] = "bad", "Not connected", queue["problem"]
        elif queue["paused"] and one["pill"] != "bad":
            one["pill"], one["word"] = "paused", "Paused"
    return list(rows.values())


@router.post("/peers/{action}")
async def act_on_peer(
    request: Request,
    visitor: Looking,
    action: str,
    guid: Annotated[str, Form()],
    confirmed: Annotated[str, Form()] = "",
) -> Response:
    if action not in ("trust", "forget") or not confirmed:
        return await ask(request, visitor, peer_question(guid, is_trust=action == "trust"))
    if action == "trust":
        await visitor.manager.trust_peer(guid)
        return done(visitor, "/peers", "The addresses that were learnt are trusted now")
    await visitor.manager.forget_peer(guid)
    return done(visitor, "/peers", "The peer is forgotten; it is learnt anew when it connects")


def peer_question(guid: str, *, is_trust: bool) -> Question:
    if is_trust:
        title, verb, effects = (
            "Trust the addresses of this peer?",
            "Trust",
            (
                (
                    "lock",
                    "warn",
                    "Believed",
                    "is this identifier from the addresses that were learnt, also where another computer claims it.",
                ),
                ("peers", "", "Others", "that claim it are refused."),
            ),
        )
    else:
        title, verb, effects = (
            "Forget this peer?",
            "Forget",
            (
                ("x", "warn", "Ends", "its sessions; what was not acknowledged is sent again."),
                ("peers", "warn", "Learnt anew", "is its address, from the first computer that claims to be it."),
            ),
        )
    action = verb.lower()
    command = shell("lanner", "peer", action, guid)
    fields = {"guid": guid}
    return Question(
        title, guid, verb, f"/peers/{action}", "/peers", effects, fields, command, is_destructive=not is_trust
    )


# Transactions, doctor, trace
# ----------------------------------------------------------------------------------------


@router.get("/transactions")
async def transactions(request: Request, visitor: Looking) -> Response:
    try:
        rows = await visitor.manager.transactions()
    except AccessDenied as error:
        return await _denied(request, visitor, "You may not see transactions", error)
    return await render(request, visitor, "transactions.html", rows=rows)


@router.post("/transactions/{action}")
async def end_transaction(
    request: Request,
    visitor: Looking,
    action: str,
    transaction: Annotated[str, Form()],
    confirmed: Annotated[str, Form()] = "",
) -> Response:
    manager = visitor.manager
    if not confirmed:
        rows = [row for row in await manager.transactions() if row["transaction"] == transaction]
        return await render(request, visitor, "transaction_end.html", action=action, transaction=transaction, rows=rows)
    if action == "commit":
        ended = await manager.commit_transaction(transaction)
    else:
        ended = await manager.abort_transaction(transaction)
    word = "committed" if action == "commit" else "aborted"
    return done(visitor, "/transactions", f"{plural(len(ended), 'part')} of the transaction {word}")


# The pages that help with a check of the doctor, and their names.
_REMEDIES: Final = {
    "dead letters": ("/deadletters", "Dead letters"),
    "outgoing": ("/outgoing", "Outgoing queues"),
    "quotas": ("/queues?show=attention", "Queues that need attention"),
    "certificates": ("/certificates", "Certificates"),
    "transactions": ("/transactions", "Transactions"),
    "peers": ("/peers", "Peers"),
}


@router.get("/doctor")
async def doctor(request: Request, visitor: Looking) -> Response:
    try:
        findings = await visitor.manager.examine(files=True)
    except AccessDenied as error:
        return await _denied(request, visitor, "You may not ask the doctor", error)
    order = {"FAIL": 0, "WARN": 1}
    findings.sort(key=lambda one: order.get(one["verdict"], 2))
    return await render(request, visitor, "doctor.html", findings=findings, pages=_REMEDIES)
