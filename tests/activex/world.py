"""A queue manager with a stopped clock, and direct calls of the members of its coclasses.

`World.call` is one call from a client: arguments that are not given are MISSING, and a coroutine is
run to its end. `World.start` is a call that may wait. The store's lock is free meanwhile; the
harness is used inside `World.held`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal
from uuid import UUID

import pytest

from lanner.activex.environment import ActivexSettings, Environment
from lanner.com.automation.values import MISSING
from lanner.com.constants import E_NOTIMPL
from lanner.com.members import InterfaceTable, Member
from lanner.com.objects import ComCall, ComError, ComObject, Success
from lanner.host.committer import Committer
from lanner.model.errors import StatusError
from lanner.rpc.pdu import AuthLevel
from lanner.security.identity import SYSTEM, Identity
from lanner.security.internal_certificates import InternalCertificates
from tests.engine.harness import Harness


class World:
    """`settings` are those of the engine."""

    def __init__(self, path: Path, *, timeout: Literal["null", "error"] = "null", **settings: object) -> None:
        self._harness = Harness(path / "store", **settings)  # type: ignore[arg-type]  # the test's own choice
        self._harness.store.lock.release()
        self.engine = self._harness.engine
        self.loop = asyncio.new_event_loop()
        self._committer = Committer(self._harness.store, self.loop)
        self.environment = Environment(
            self.engine,
            self._committer,
            certificates=InternalCertificates(path / "certificates.json"),
            settings=ActivexSettings(timeout=timeout),
        )
        # Objects whose `released` is called at the end.
        self.objects: list[ComObject] = []

    def close(self) -> None:
        async def release() -> None:
            for thing in self.objects:
                thing.released()

        self.run(release())
        self.run_ready()
        self._committer.close()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self._harness.close()

    @contextmanager
    def held(self) -> Iterator[Harness]:
        """The harness, with the store's lock."""
        with self._harness.store.lock:
            yield self._harness

    def tick(self, seconds: float) -> None:
        """Advance the clock, run due timers, and wake waiting callers."""
        with self.held() as h:
            h.tick(seconds)
        self.run_ready()

    def run_ready(self) -> None:
        """Let everything run that can run now."""
        for _ in range(10):
            self.run(asyncio.sleep(0))

    def run(self, coroutine: Any) -> Any:  # noqa: ANN401 (whatever it returns)
        return self.loop.run_until_complete(coroutine)

    # Calls
    # ----------------------------------------------------------------------------------------------

    def call(self, thing: ComObject, name: str, *arguments: object, by: Identity = SYSTEM, revision: int = 0) -> Any:  # noqa: ANN401
        """Call a member by its Python name.

        The call goes through the interface with number `revision`, by default the newest.
        """
        return self.run(invoke(thing, name, *arguments, by=by, revision=revision))

    def start(
        self, thing: ComObject, name: str, *arguments: object, by: Identity = SYSTEM, revision: int = 0
    ) -> asyncio.Task[Any]:
        """A call that may wait."""
        task: asyncio.Task[Any] = self.loop.create_task(invoke(thing, name, *arguments, by=by, revision=revision))
        self.run_ready()
        return task

    def status(self, thing: ComObject, name: str, *arguments: object, by: Identity = SYSTEM, revision: int = 0) -> int:
        """The HRESULT of a call."""
        try:
            result = self.call(thing, name, *arguments, by=by, revision=revision)
        except (StatusError, ComError) as error:
            return status_of(error)
        return result.hresult if isinstance(result, Success) else 0


def status_of(error: BaseException | None) -> int:
    assert isinstance(error, (StatusError, ComError)), repr(error)
    return error.status if isinstance(error, StatusError) else error.hresult & 0xFFFF_FFFF


def find_member(thing: ComObject, name: str, revision: int = 0) -> tuple[InterfaceTable, Member]:
    every = (*thing.interfaces, *thing.extra_interfaces())
    tables = [table for table in every if not revision or _revision(table) == revision]
    for table in reversed(tables):
        for member in table.members:
            if member.python == name:
                return table, member
    pytest.fail(f"{type(thing).__name__} has no member {name} in {[table.name for table in tables]}")


def _revision(table: InterfaceTable) -> int:
    digit = table.name[-1]
    return int(digit) if digit.isdigit() else 1


async def invoke(thing: ComObject, name: str, *arguments: object, by: Identity = SYSTEM, revision: int = 0) -> Any:  # noqa: ANN401 (whatever it returns)
    table, member = find_member(thing, name, revision)
    wanted = [parameter for parameter in member.parameters if parameter.direction != "out"]
    assert len(arguments) <= len(wanted), f"{member.name} takes {len(wanted)} arguments"
    assert all(parameter.optional for parameter in wanted[len(arguments) :]), f"{member.name}: arguments are missing"
    given = [*arguments, *[MISSING] * (len(wanted) - len(arguments))]
    method = getattr(thing, name, None)
    for one, other in (("put_", "putref_"), ("putref_", "put_")):
        if method is None and name.startswith(one):
            method = getattr(thing, name.replace(one, other, 1), None)
    if method is None:
        raise ComError(E_NOTIMPL, f"{member.name} is not implemented")
    result = method(_call(by, table, member), *given)
    return await result if inspect.isawaitable(result) else result


def called_by(thing: ComObject, name: str, by: Identity) -> ComCall:
    """A call of a member, for what takes one."""
    return _call(by, *find_member(thing, name))


class _NoWire:
    """Where nothing is exported, because nothing comes from outside."""

    def marshal(self, obj: ComObject, iid: UUID, public_refs: int = 5) -> object:
        raise NotImplementedError

    async def unmarshal(self, objref: object) -> ComObject | None:
        raise NotImplementedError

    def discard(self, obj: ComObject) -> None:
        raise NotImplementedError

    def require_room(self) -> None:
        """There is always room."""


NO_WIRE: Final = _NoWire()


def _call(by: Identity, table: InterfaceTable, member: Member) -> ComCall:
    return ComCall(
        identity=by,
        auth_level=AuthLevel.PKT_INTEGRITY,
        peer="test",
        exporter=NO_WIRE,
        interface=table,
        member=member,
    )
