"""The checks of `lanner doctor` on a data directory and its store.

A check changes no queue and no message, and each finding says what to do about it. If a queue
manager is running, it runs the checks itself, because no other process can open its store. `where`
holds the options that a command needs to reach this queue manager: `--data DIR` or `--host HOST`.
"""

from __future__ import annotations

import datetime as dt
import enum
import json
import os
import shutil
import stat
import uuid
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import lmdb
from cryptography import x509

from lanner.directory import EmbeddedDirectory
from lanner.engine import tables
from lanner.engine.persistence import load_attributes
from lanner.engine.transactions import read_branch
from lanner.model.directory_objects import DEFAULT_QUEUE_MANAGER_QUOTA, KILOBYTE, User
from lanner.model.enums import INFINITE, DirectoryOperationResult, OutgoingState
from lanner.model.errors import LannerError, StoreLocked
from lanner.native import description
from lanner.security.certificates import certificates_of
from lanner.security.printable import counted, size
from lanner.security.users import USER_FILE, UserFile
from lanner.store import Store
from lanner.store.format import FORMAT

# Not in the specification: the free disk space below which a finding is an error, or a warning. The
# first is far enough above the store's own reserve (DEFAULT_RESERVE) to leave time for freeing
# space.
DISK_FAIL = 64 << 20
DISK_WARN = 1 << 30
# Not in the specification: the share of a quota from which a finding warns, before the quota
# rejects messages.
QUOTA_WARN = 0.8
_CERTIFICATE_WARN = dt.timedelta(days=30)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Verdict(enum.StrEnum):
    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"
    # The check was not run, or its result is not conclusive.
    SKIP = "SKIP"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    verdict: Verdict
    text: str
    advice: str = ""

    def document(self) -> dict[str, str]:
        """Return the finding as a JSON object."""
        return {"check": self.check, "verdict": self.verdict.value, "text": self.text, "advice": self.advice}

    @classmethod
    def from_document(cls, document: dict[str, str]) -> Finding:
        """Restore a finding from its JSON object."""
        return cls(document["check"], Verdict(document["verdict"]), document["text"], document["advice"])


def _ok(check: str, text: str) -> Finding:
    return Finding(check, Verdict.OK, text)


def _warn(check: str, text: str, advice: str) -> Finding:
    return Finding(check, Verdict.WARN, text, advice)


def _fail(check: str, text: str, advice: str) -> Finding:
    return Finding(check, Verdict.FAIL, text, advice)


def examine(data: Path, now: dt.datetime) -> Iterator[Finding]:
    """Run all checks, from the files inward, and stop at the first layer that is unreachable.

    Raises StoreLocked if another process has the store open.
    """
    if not (yield from examine_files(data)):
        return
    where = f"--data {data}"
    try:
        store = Store.open(data)
    except StoreLocked:
        raise
    except (LannerError, lmdb.Error, OSError) as error:
        yield _fail("store", f"{data} cannot be opened: {error}", "restore it from a backup, or use a newer Lanner")
        return
    try:
        with store.lock:
            yield _ok("lock", "no process has the directory open")
            yield from examine_store(store, where, now, list(_in_doubt_of(store)))
    finally:
        store.close()


def examine_files(data: Path) -> Generator[Finding, None, bool]:
    """Check the directory and its files; return whether it contains a store."""
    if not data.is_dir():
        what = "is no directory" if data.exists() else "does not exist"
        yield _fail("directory", f"{data} {what}", f"make it with `lanner queue create NAME --data {data}`")
        return False
    if not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        advice = "run as its owner, or change the owner (chown) to the user that runs the queue manager"
        yield _fail("directory", f"{data} cannot be read and written by uid {os.geteuid()}", advice)
        return False
    yield _ok("directory", f"{data} can be read and written")
    yield from _permissions(data)
    yield _disk(data)
    yield from _accounts(data)
    if not Store.exists(data):
        yield _fail("store", f"{data} holds no queue manager", f"`lanner queue create NAME --data {data}` makes one")
        return False
    return True


def examine_store(
    store: Store,
    where: str,
    now: dt.datetime,
    transactions: list[dict[str, Any]],
    problems: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Finding]:
    """Check an open store.

    The caller holds the store's lock, and passes the transactions that are in doubt. `problems` has
    why messages of outgoing queues do not leave, by format name, if a queue manager is running.
    """
    # This describes the process that has the store open. Without compiled functions the Python
    # versions do the same, more slowly.
    yield _ok("native", description())
    yield _ok("store", f"opens; format {FORMAT}, LMDB {'.'.join(map(str, lmdb.version()))}")
    quarantined = sum(1 for _ in store.table("quarantine").items())
    if quarantined:
        text = f"{counted(quarantined, 'record')} failed the checksum and were put aside"
        yield _warn("records", text, "the disk or the memory is failing: check both; send the messages again")
    else:
        yield _ok("records", "none was put aside for a wrong checksum")
    yield from _in_doubt(transactions, where)
    queues = {
        tables.QUEUE_KEY.unpack(key)[0]: load_attributes(value) for key, value in store.table(tables.QUEUES).items()
    }
    yield from _quotas(store, queues, where)
    yield from _dead_letters(store, queues, where)
    yield from _outgoing(store, queues, where, problems)
    yield from _certificates(store, now)


def _permissions(data: Path) -> Iterator[Finding]:
    # The directory's mode protects its contents, except the secrets, whose files have modes of
    # their own.
    mode = stat.S_IMODE(data.stat().st_mode)
    is_open = bool(mode & _OTHERS)
    if is_open:
        advice = f"chmod 700 {data}"
        yield _warn("permissions", f"{data} has mode {mode:04o}: others may look at messages", advice)
    for path in sorted(data.glob("*.json")):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & _OTHERS:
            is_open = True
            text = f"{path} has mode {mode:04o} and holds secrets: it will not be used"
            yield _fail("permissions", text, f"chmod 600 {path}")
    strangers = sorted(path.name for path in data.iterdir() if path.stat().st_uid != data.stat().st_uid)
    if strangers:
        text = f"{', '.join(strangers)} and {data} belong to different users"
        yield _warn("permissions", text, f"chown all of {data} to the user that runs the queue manager")
    elif not is_open:
        yield _ok("permissions", "only the owner can read the messages and secrets")


def _disk(data: Path) -> Finding:
    free = shutil.disk_usage(data).free
    text = f"{size(free)} free on the disk of {data}"
    if free < DISK_FAIL:
        return _fail("disk", f"{text}: recoverable messages will soon be refused", "make room")
    if free < DISK_WARN:
        return _warn("disk", text, "make room, or set quota.queue_manager_kb below it")
    return _ok("disk", text)


def _accounts(data: Path) -> Iterator[Finding]:
    path = data / USER_FILE
    if not path.exists():
        yield _ok("accounts", "no users; only local administrators can manage the queue manager")
        return
    try:
        file = UserFile(path)
        users = file.users()
        administrators = [user.name for user in users if file.is_administrator(user.name)]
    except LannerError as error:
        yield _fail("accounts", str(error), "without it nobody can log on")
        return
    hashes = [user.name for user in users if user.nt_hash is not None]
    if hashes and not file.policy.ntlm:
        text = f"security.ntlm is off, and there are still NT hashes of {', '.join(hashes)}"
        yield _warn("accounts", text, f"`lanner user set NAME --password --data {data}` sets a password without one")
    if users and not administrators:
        advice = f"`lanner user set NAME --administrator --data {data}`"
        yield _warn("accounts", f"{counted(len(users), 'user')}, none an administrator", advice)
    else:
        yield _ok(
            "accounts", f"{counted(len(users), 'user')}, {counted(len(administrators), 'administrator')} among them"
        )


def _in_doubt_of(store: Store) -> Iterator[dict[str, Any]]:
    """Yield the in-doubt transactions of a store on which no queue manager runs."""
    prepared = {
        uuid.UUID(bytes=key): read_branch(json.loads(value).get("branch"))
        for key, value in store.table(tables.TRANSACTIONS).items()
    }
    for identifier, branch in prepared.items():
        transaction = identifier if branch is None else branch.transaction
        yield {
            "transaction": str(transaction),
            "kind": "branch",
            "resources": [] if branch is None else [branch.resource],
        }
    for key, value in store.table(tables.COORDINATOR).items():
        if key != tables.COORDINATOR_KEY:
            resources = json.loads(value)["resources"]
            yield {"transaction": str(uuid.UUID(bytes=key)), "kind": "decision", "resources": resources}


def _in_doubt(rows: list[dict[str, Any]], where: str) -> Iterator[Finding]:
    """Check for prepared transactions, which lock messages, and for undelivered commits."""
    advice = f"`lanner transaction list {where}` shows them; "
    is_calm = True
    for row in rows:
        names = ", ".join(row["resources"]) or "not known"
        if row["kind"] == "branch":
            is_calm = False
            text = f"{row['transaction']} is prepared and not decided, its messages are locked (resource: {names})"
            yield _warn("transactions", text, advice + "a program that gives its coordinator this resource resolves it")
        elif row["kind"] == "decision":
            is_calm = False
            text = f"{row['transaction']} is committed, and resources have not received the commit: {names}"
            yield _warn(
                "transactions", text, advice + "a program that gives the resource, or a table of it, resolves it"
            )
    if is_calm:
        yield _ok("transactions", "none is in doubt")


Stored = dict[int, tuple[str, dict[str, Any]]]


def _quotas(store: Store, queues: Stored, where: str) -> Iterator[Finding]:
    settings = store.table(tables.SETTINGS).get(tables.QUEUE_MANAGER_KEY)
    machine = {} if settings is None else load_attributes(settings)[1]
    used = sum(store.stats(number)[1] for number in queues)
    limits = [
        (
            f"queue manager {machine.get('computer_name', '')}",
            used,
            machine.get("queue_manager_quota", DEFAULT_QUEUE_MANAGER_QUOTA),
            "receive or purge messages, or raise quota.queue_manager_kb",
        )
    ]
    for number, (_, queue) in queues.items():
        name = queue["pathname"]
        _, total = store.stats(number)
        quota, advice = (
            queue["quota"],
            f"receive or purge messages, or `lanner queue set '{name}' --quota-kb NUMBER {where}`",
        )
        if name.lower().endswith(";journal") and queue["parent"] in queues:
            quota = queues[queue["parent"]][1]["journal_quota"]
            advice = f"`lanner journal '{name.rpartition(';')[0]}' --purge {where}`"
        elif name.lower().endswith("system$;journal"):
            quota, advice = machine.get("journal_quota", INFINITE), f"`lanner journal --purge {where}`"
        limits.append((name, total, quota, advice))
    troubled = False
    for name, total, quota, advice in limits:
        if quota == INFINITE or total < quota * KILOBYTE * QUOTA_WARN:
            continue
        troubled = True
        text = f"{name} uses {size(total)} of {size(quota * KILOBYTE)}"
        if total + KILOBYTE > quota * KILOBYTE:
            yield _fail("quotas", f"{text}: it is full", advice)
        else:
            yield _warn("quotas", text, advice)
    if not troubled:
        quota = limits[0][2]
        limit = "no limit" if quota == INFINITE else size(quota * KILOBYTE)
        yield _ok("quotas", f"{size(used)} of {limit} used, no queue is near its own quota")


def _dead_letters(store: Store, queues: Stored, where: str) -> Iterator[Finding]:
    count = sum(
        store.stats(number)[0]
        for number, (_, queue) in queues.items()
        if queue["pathname"].lower().endswith(("system$;deadletter", "system$;deadxact"))
    )
    if count:
        text = f"{counted(count)} could not be delivered"
        yield _warn("dead letters", text, f"`lanner deadletter list {where}`")
    else:
        yield _ok("dead letters", "none")


def _outgoing(store: Store, queues: Stored, where: str, problems: Mapping[str, str]) -> Iterator[Finding]:
    outgoing = [(queue, store.stats(number)[0]) for number, (kind, queue) in queues.items() if kind == "OutgoingQueue"]
    held, stuck = [], []
    for queue, count in outgoing:
        name = queue["destination_format_name"]
        if count and queue["state"] in (OutgoingState.ON_HOLD, OutgoingState.LOCKED):
            held.append(name)
        elif count and name in problems:
            stuck.append(f"{counted(count)} for {name} cannot leave: {problems[name]}")
    if held:
        advice = f"`lanner outgoing resume NAME {where}`; locked ones need security.hardened off"
        yield _warn("outgoing", f"paused or locked with messages in them: {', '.join(held)}", advice)
    for text in stuck:
        yield _warn("outgoing", text, f"`lanner outgoing show NAME {where}` has the history; `lanner doctor COMPUTER`")
    if not held and not stuck:
        yield _ok("outgoing", f"{counted(sum(count for _, count in outgoing))} for other computers")


def _certificates(store: Store, now: dt.datetime) -> Iterator[Finding]:
    directory = EmbeddedDirectory(store.table("directory"))
    count, troubled = 0, False
    result, handle = directory.read_begin("User", None)
    while handle is not None and result is DirectoryOperationResult.SUCCESS:
        result, user = directory.read_next(handle)
        if not isinstance(user, User):
            continue
        for entry in certificates_of(user).certificates:
            count += 1
            certificate = x509.load_der_x509_certificate(entry.certificate)
            ends = certificate.not_valid_after_utc
            if ends < now + _CERTIFICATE_WARN:
                troubled = True
                text = (
                    f"{certificate.subject.rfc4514_string()} {'expired' if ends < now else 'expires'} {ends:%Y-%m-%d}"
                )
                yield _warn("certificates", text, "register a new certificate for this user")
    if handle is not None:
        directory.read_end(handle)
    if not troubled:
        yield _ok("certificates", f"{count} registered, none expires within {_CERTIFICATE_WARN.days} days")
