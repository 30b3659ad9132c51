"""JSON documents that every user may request: about their account, their queues and their tokens.

One of them is a ticket, which logs the user on once through another connection. The content of a
document depends on the user's rights. `Documents` has the documents for administrators.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from lanner.host.administrators import is_administrator
from lanner.host.history import INTERVAL, SPANS, History
from lanner.host.name_patterns import MAX_PATTERN, name_pattern
from lanner.model.enums import QueueAccessType
from lanner.model.errors import AccessDenied, InvalidParameter, QueueNotFound, UnsupportedOperation
from lanner.security.access_masks import QueueAccess
from lanner.security.roles import Role, role_of
from lanner.security.scopes import READ
from lanner.services.oldest import oldest_arrival
from lanner.wire.sid import LOCAL_SYSTEM, Sid

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.directory_objects import Queue
    from lanner.security.identity import Identity
    from lanner.security.tokens import TokenFile
    from lanner.services.log_on import Tickets

Document = dict[str, Any]
Request = Mapping[str, Any]

# Not in the specification: the maximum number of queues in one answer.
MAX_PAGE: Final = 1000
# The seconds for which an overview is reused for the same identity.
OVERVIEW_LIFE: Final = 1.0
_MAX_OVERVIEWS: Final = 256

COLUMNS: Final[dict[str, Callable[[Queue], object]]] = {
    "name": lambda queue: queue.pathname,
    "label": lambda queue: queue.label,
    "messages": lambda queue: queue.message_count,
    "bytes": lambda queue: queue.total_bytes,
    "journal_messages": lambda queue: 0 if queue.journal_queue is None else queue.journal_queue.message_count,
    # The number of messages that arrived since the queue manager started, plus those found at its
    # start. The difference between two answers gives the rate.
    "arrivals": lambda queue: queue.message_count + queue.removed_count,
    "readers": lambda queue: sum(
        one.access_type is QueueAccessType.RECEIVE for one in queue.open_queue_descriptors.values()
    ),
    "subqueues": lambda queue: {name: one.message_count for name, one in queue.subqueues.items()},
    "transactional": lambda queue: queue.transactional,
    "journaling": lambda queue: queue.journaling,
    "authentication": lambda queue: queue.authentication,
    "quota_kb": lambda queue: queue.quota,
    "identifier": lambda queue: str(queue.identifier),
    "created": lambda queue: queue.create_time,
    "modified": lambda queue: queue.modify_time,
    "kind": lambda queue: queue.queue_type.value.lower(),
}
# The arrival time of the oldest message. It is looked up in the store, and so only on request, and
# for a limited number of queues.
OLDEST: Final = "oldest"
MAX_OLDEST: Final = 100


class UserDocuments:
    """The documents of one queue manager."""

    def __init__(
        self,
        engine: Engine,
        tokens: TokenFile | None = None,
        tickets: Tickets | None = None,
        revoked: Callable[[str], object] = lambda _: None,
        history: History | None = None,
    ) -> None:
        """Create the documents.

        `revoked` is called with the identifier of a revoked token. Only a service has a `history`.
        """
        self._engine = engine
        self._tokens = tokens
        self._tickets = tickets
        self._revoked = revoked
        self._history = history
        self._overviews: dict[Identity, tuple[float, Document]] = {}
        self.handlers: dict[str, Callable[[Identity, Request], object]] = {
            "who am i": self._who_am_i,
            "overview": self._overview,
            "queue page": self._queue_page,
            "history": self._show_history,
            "ticket": self._ticket,
        }
        # These handlers do disk I/O and do not hold the store's lock.
        self.slow: dict[str, Callable[[Identity, Request], object]] = {
            "create token": self._create_token,
            "tokens": self._list_tokens,
            "revoke token": self._revoke_token,
        }

    def _who_am_i(self, identity: Identity, request: Request) -> Document:
        del request
        return {
            "user": identity.name,
            "sid": str(identity.sid),
            "role": self._role(identity).value,
            # Whether the user sees everything that an administrator sees, by role and scope.
            "sees_all": is_administrator(self._engine, identity, READ),
            "administrator": self._role(identity) is Role.ADMINISTRATOR,
            "scope": None if identity.scope is None else sorted(identity.scope),
            "queue_manager": self._engine.queue_manager.computer_name,
        }

    def _role(self, identity: Identity) -> Role:
        resolve = self._engine.settings.resolve_identity
        current = identity if resolve is None or identity.sid == LOCAL_SYSTEM else resolve(identity.sid)
        return Role.USER if current is None else role_of(current)

    # Queues
    # ----------------------------------------------------------------------------------------------

    def _visible(self, identity: Identity, names: set[str] | None = None) -> list[Queue]:
        """Return the queues that the user may see; of those that are named, if any are."""
        found = []
        for queue in self._engine.local_queues():
            if names is not None and queue.pathname.lower() not in names:
                continue
            try:
                self._engine.check_queue_access(queue, identity, QueueAccess.GET_QUEUE_PROPERTIES)
            except AccessDenied:
                continue
            found.append(queue)
        return found

    def _overview(self, identity: Identity, request: Request) -> Document:
        """Return totals of the queues that the user may see.

        Consoles poll it, so an answer is reused for a second.
        """
        del request
        now = time.monotonic()
        when, document = self._overviews.get(identity, (-OVERVIEW_LIFE, {}))
        if now - when < OVERVIEW_LIFE:
            return document
        qm, queues = self._engine.queue_manager, self._visible(identity)
        document = {
            **self._who_am_i(identity, {}),
            "identifier": str(qm.identifier),
            "queues": len(queues),
            "messages": sum(queue.message_count for queue in queues),
            "bytes": sum(queue.total_bytes for queue in queues),
        }
        if document["sees_all"]:
            outgoing = list(self._engine.outgoing_queues())
            dead = (qm.system_deadletter_queue, qm.system_transactional_deadletter_queue)
            document |= {
                "outgoing_queues": len(outgoing),
                "outgoing_messages": sum(queue.message_count for queue in outgoing),
                "dead_letters": sum(0 if queue is None else queue.message_count for queue in dead),
                "quota_kb": qm.queue_manager_quota,
                "total_bytes": qm.total_bytes,
            }
        if len(self._overviews) >= _MAX_OVERVIEWS:
            self._overviews.clear()
        self._overviews[identity] = (now, document)
        return document

    def _queue_page(self, identity: Identity, request: Request) -> Document:
        """Return one page of the queues that the user may see."""
        page, size = _number(request, "page", 1), _number(request, "page_size", 100)
        if size > MAX_PAGE:
            raise InvalidParameter(f"a page of {size} queues, at most {MAX_PAGE}")
        pattern, sort = str(request.get("name") or ""), str(request.get("sort") or "name")
        wanted = pattern.lower() if any(sign in pattern for sign in "*?") else f"*{pattern.lower()}*"
        fits = name_pattern(wanted)
        columns = _columns(request.get("columns"))
        if OLDEST in columns and size > MAX_OLDEST:
            raise InvalidParameter(f"a page of {size} queues with the column `{OLDEST}`, at most {MAX_OLDEST}")
        is_backwards, key = sort.startswith("-"), sort.removeprefix("-")
        if key not in COLUMNS:
            raise InvalidParameter(f"unknown column {key[:80]!r} of queues to sort by: one of {', '.join(COLUMNS)}")
        queues = self._visible(identity, _names(request.get("names")))
        if pattern:
            queues = [queue for queue in queues if _is_named(queue.pathname.lower(), fits)]
        queues.sort(key=lambda queue: queue.pathname.lower())
        if key != "name":
            queues.sort(key=lambda queue: _sortable(COLUMNS[key](queue)), reverse=is_backwards)
        elif is_backwards:
            queues.reverse()
        shown = queues[(page - 1) * size : page * size]
        return {
            "page": page,
            "page_size": size,
            "total": len(queues),
            "items": self._items(shown, columns),
        }

    def _items(self, queues: list[Queue], columns: list[str]) -> list[Document]:
        given = [column for column in columns if column != OLDEST]
        items = [{column: COLUMNS[column](queue) for column in given} for queue in queues]
        if OLDEST in columns:
            with self._engine.store.lock:
                for item, queue in zip(items, queues, strict=True):
                    item[OLDEST] = oldest_arrival(self._engine.store, queue)
        return items

    def _show_history(self, identity: Identity, request: Request) -> Document:
        """Return the history of one visible queue, or of all if the user sees everything."""
        span, path = request.get("seconds", min(SPANS)), request.get("queue")
        if type(span) is not int or span not in SPANS:
            raise InvalidParameter(f"`seconds` of a history is one of {', '.join(map(str, SPANS))}")
        if self._history is None:
            raise UnsupportedOperation("a history is kept while `lanner serve` runs")
        number = None
        if path is None:
            if not is_administrator(self._engine, identity, READ):
                raise AccessDenied(f"{identity.name} does not see all queues: ask for one of them")
        else:
            number = self._named(identity, str(path)).number
        points = self._history.points(span, number)
        return {"interval": INTERVAL * SPANS[span], "points": points}

    def _named(self, identity: Identity, path: str) -> Queue:
        if path.startswith(".\\"):
            path = self._engine.queue_manager.computer_name + path[1:]
        for queue in self._engine.local_queues():
            if queue.pathname.lower() == path.lower():
                self._engine.check_queue_access(queue, identity, QueueAccess.GET_QUEUE_PROPERTIES)
                return queue
        raise QueueNotFound(f"there is no queue {path[:200]}")

    # Tokens
    # ----------------------------------------------------------------------------------------------

    def _token_file(self) -> TokenFile:
        if self._tokens is None:
            raise UnsupportedOperation("this queue manager keeps no tokens")
        return self._tokens

    def _create_token(self, identity: Identity, request: Request) -> Document:
        """Create a token for the user, or for another user if an administrator requests it."""
        _refuse_token(identity, "make tokens")
        name, scope, lifetime = request.get("user"), request.get("scope"), request.get("lifetime")
        if not isinstance(scope, list) or not all(isinstance(one, str) for one in scope):
            raise InvalidParameter("a request needs the list of texts `scope`")
        if lifetime is not None and type(lifetime) not in (int, float):
            raise InvalidParameter("`lifetime` of a token is a number of seconds")
        sid = identity.sid if name is None else self._sid_of(str(name))
        if identity.is_anonymous:
            raise AccessDenied("the anonymous user has no tokens")
        if sid != identity.sid and not is_administrator(self._engine, identity):
            raise AccessDenied(f"{identity.name} is not an administrator, and cannot create tokens of {name}")
        details = {"user": identity.name if name is None else name, "scope": scope}
        with self._engine.audit.change("create token", identity, details):
            token, text = self._token_file().create(sid, scope, lifetime, str(request.get("description") or ""))
            details["token"] = token.id
        return {**self._shown(token.document()), "token": text}

    def _list_tokens(self, identity: Identity, request: Request) -> list[Document]:
        """Return the user's tokens; for an administrator, those of all users."""
        del request
        everybody = is_administrator(self._engine, identity, READ)
        found = self._token_file().tokens_of(None if everybody else identity.sid)
        return [self._shown(token.document()) for token in found]

    def _revoke_token(self, identity: Identity, request: Request) -> None:
        _refuse_token(identity, "revoke tokens")
        wanted = str(request.get("id"))
        token = self._token_file().find(wanted)
        if token.sid != str(identity.sid) and not is_administrator(self._engine, identity):
            raise AccessDenied(f"{identity.name} is no administrator, and token {wanted} belongs to another user")
        self._token_file().revoke(wanted)
        self._engine.audit.done("revoke token", identity, token=wanted)
        self._revoked(wanted)

    def _ticket(self, identity: Identity, request: Request) -> Document:
        """Return a ticket that logs the user on once, within a minute."""
        del request
        _refuse_token(identity, "log on a browser")
        if self._tickets is None:
            raise UnsupportedOperation("there is no service to log on to")
        return {"ticket": self._tickets.issue(identity)}

    def _sid_of(self, name: str) -> Sid:
        return self._engine.settings.accounts.sid_of(name)

    def _shown(self, document: Document) -> Document:
        name = self._engine.settings.accounts.name_of(Sid.parse(document["sid"]))
        return {**document, "scope": list(document["scope"]), "user": name}


def _refuse_token(identity: Identity, what: str) -> None:
    if identity.scope is not None:
        raise AccessDenied(f"a token of {identity.name} cannot {what}: log on with the password")


def _is_named(path: str, fits: Callable[[str], object]) -> bool:
    """Return whether a pattern fits a queue's path name, or its end after a backslash."""
    parts = path.split("\\")
    return any(fits("\\".join(parts[begin:])) for begin in range(len(parts)))


def _names(wanted: object) -> set[str] | None:
    """Check names of queues, and return them in lower case; None if there are none."""
    if wanted is None:
        return None
    if not isinstance(wanted, list) or not all(isinstance(one, str) for one in wanted):
        raise InvalidParameter("`names` is a list of path names")
    if len(wanted) > MAX_PAGE:
        raise InvalidParameter(f"{len(wanted)} names of queues, at most {MAX_PAGE}")
    return {one.lower() for one in wanted if len(one) <= MAX_PATTERN}


def _columns(wanted: object) -> list[str]:
    """Check column names; without any, return all."""
    if not isinstance(wanted, list | None):
        raise InvalidParameter("`columns` is a list of names")
    known = [*COLUMNS, OLDEST]
    if wanted and len(wanted) > len(known):
        raise InvalidParameter(f"{len(wanted)} columns were requested, and there are only {len(known)}")
    for one in wanted or ():
        if not isinstance(one, str) or one not in known:
            raise InvalidParameter(f"unknown column {str(one)[:80]!r} of queues: one of {', '.join(known)}")
    return wanted or list(COLUMNS)


def _sortable(value: object) -> Any:  # noqa: ANN401 (numbers or texts)
    if isinstance(value, dict):
        return sum(value.values())
    return value.lower() if isinstance(value, str) else value


def _number(request: Request, key: str, default: int) -> int:
    value = request.get(key, default)
    if type(value) is not int or value < 1:
        raise InvalidParameter(f"`{key}` must be a whole number, 1 or more")
    return value
