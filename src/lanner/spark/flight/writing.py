"""Staged writes: rows are written under tokens, and one commit makes all tokens of a batch visible.

Each task writes under a token of its own. A publication has a writer (a streaming query, or the
writeId of a batch job) and a batch number, and happens once. The writer's last batch is recorded:
to publish it again has no effect, and to publish it with other messages is refused. Unpublished
messages are dropped by the task that gives up, or after a day.

The name of a writer belongs to the user: writers of the same name of two users are independent.
Anonymous callers have no writers.

Tables: "pipeline_stages", token -> JSON of `_StageRow`; "pipeline_user_writers", digest of the user
and the writer's name -> JSON of `_WriterRow`; "pipeline_user_writer_expiry", seconds since 1970 and
that digest -> nothing, for writers that are kept for a limited time. Older stores have
"pipeline_writers" and "pipeline_writer_expiry", with a digest of the name alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final

import pyarrow as pa

from lanner.host.operations import Operations
from lanner.host.runtime import Runtime
from lanner.model.enums import QueueAccessType
from lanner.model.errors import AccessDenied, InsufficientResources, InvalidParameter, StatusError
from lanner.model.live import OpenQueueDescriptor
from lanner.spark.flight.errors import PublicationDiffers, StageUnknown
from lanner.spark.flight.settings import FlightSettings
from lanner.spark.flight.staged_parts import Contents, parts
from lanner.spark.flight.staged_room import StagedRoom

STAGES: Final = "pipeline_stages"
WRITERS: Final = "pipeline_user_writers"
WRITER_EXPIRY: Final = "pipeline_user_writer_expiry"
OLD_WRITERS: Final = "pipeline_writers"
OLD_WRITER_EXPIRY: Final = "pipeline_writer_expiry"
# Not in the specification: expired writers that one publication removes at most.
FORGET_AT_ONCE: Final = 100
_EXPIRES: Final = struct.Struct(">I")
_LATEST: Final = 0xFFFF_FFFF
# Not in the specification: bytes of bodies between two commits. Until the commit, staged messages
# are in memory.
SYNC_EVERY: Final = 8 << 20
MAX_TOKEN_BYTES: Final = 64
MAX_WRITER_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Publication:
    """The result of `publish`. `is_new` is False if the batch had been published before."""

    is_new: bool
    contents: Contents


@dataclass(frozen=True, slots=True)
class _StageRow:
    owner: str  # SID
    writer: str
    batch: int
    is_whole: bool
    messages: int = 0
    bytes: int = 0
    digest: int = 0

    @property
    def contents(self) -> Contents:
        return Contents(self.messages, self.bytes, self.digest)

    def with_contents(self, contents: Contents) -> _StageRow:
        return dataclasses.replace(self, **dataclasses.asdict(contents))


@dataclass(frozen=True, slots=True)
class _WriterRow:
    owner: str
    batch: int
    messages: int
    bytes: int
    digest: int


class StagedWrites:
    """The stages and publications of the pipeline.

    Methods take the lock themselves, and return when everything is durable.
    """

    def __init__(self, runtime: Runtime, settings: FlightSettings | None = None) -> None:
        self._runtime = runtime
        self._engine = runtime.engine
        self._store = runtime.store
        self._settings = FlightSettings() if settings is None else settings
        with runtime.lock:
            self._stages = self._store.table(STAGES)
            self._writers = self._store.table(WRITERS)
            self._expiry = self._store.table(WRITER_EXPIRY)
            self._room = StagedRoom(self._engine.queue_manager, self._settings)
            self._adopt_old_writers()
            self._forget_dropped_stages()
            self._forget_writers()
            # The number of writers of each user.
            self._writers_of = Counter(json.loads(raw)["owner"] for _, raw in self._writers.items())

    def _adopt_old_writers(self) -> None:
        """Assign writers of the older tables, where all users shared the names, to their owners."""
        old, old_expiry = self._store.table(OLD_WRITERS), self._store.table(OLD_WRITER_EXPIRY)
        expires = {key[_EXPIRES.size :]: key[: _EXPIRES.size] for key, _ in old_expiry.items()}
        for digest, raw in list(old.items()):
            row = _WriterRow(**json.loads(raw))
            key = _owned(row.owner, digest)
            self._writers.put(key, raw)
            if digest in expires:
                self._expiry.put(expires[digest] + key, b"")
                old_expiry.delete(expires[digest] + digest)
            # The row itself records that the batch was published.
            self._store.forget_publication(_publication_of(digest, row.batch))
            old.delete(digest)

    def _forget_dropped_stages(self) -> None:
        """Drop stages that a restart left unfinished, and those that the engine has dropped.

        The engine drops stages that were not written to for a day.
        """
        for token, raw in list(self._stages.items()):
            row = _StageRow(**json.loads(raw))
            if not row.is_whole or (row.messages and not self._store.staged([token])):
                self._drop(token)
            else:
                self._room.add(token, row.owner, row.messages, row.bytes)

    def _check_token(self, operations: Operations) -> None:
        """Refuse another stage for a user who has too many.

        Stages that the engine has dropped because of their age are removed first, and do not count.
        """
        owner = str(operations.identity.sid)
        if not self._room.has_token(owner):
            for token in self._room.tokens_of(owner):
                row = self._row(token)
                if row is not None and row.is_whole and row.messages and not self._store.staged([token]):
                    self._drop(token)
        self._room.check_token(owner, operations.identity.name)

    def _forget_writers(self) -> None:
        """Remove some of the writers whose time to be kept is over."""
        now = int(self._engine.clock())
        for key in [key for key, _ in islice(self._expiry.items(), FORGET_AT_ONCE)]:
            if _EXPIRES.unpack_from(key)[0] > now:
                return
            self._expiry.delete(key)
            digest = key[_EXPIRES.size :]
            raw = self._writers.get(digest)
            if raw is not None:
                row = _WriterRow(**json.loads(raw))
                self._store.forget_publication(_publication_of(digest, row.batch))
                self._writers.delete(digest)
                self._writers_of[row.owner] -= 1

    # Staging
    # ----------------------------------------------------------------------------------------------

    def stage(
        self,
        operations: Operations,
        token: bytes,
        writer: str,
        batch: int,
        queue: str | None,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
    ) -> Contents:
        """Write the rows of Arrow batches under a new token.

        If an exception occurs, everything written under the token is dropped.
        """
        _check_user(operations)
        _check(token, writer, batch)
        found_parts = parts(schema, operations.names, queue, batches)
        row = _StageRow(str(operations.identity.sid), writer, batch, is_whole=False)
        with self._runtime.lock:
            if self._stages.get(token) is not None:
                raise InvalidParameter(f"token {token.hex()} is in use: each attempt to write needs one of its own")
            self._check_token(operations)
            self._put(token, row)
            self._room.add(token, row.owner, 0, 0)
        contents = Contents()
        try:
            with ExitStack() as stack:
                handles: dict[str, OpenQueueDescriptor] = {}
                unsynced = 0
                for part in found_parts:
                    name = part.queue
                    if name not in handles:
                        with _naming(lambda row=part.first: row):  # type: ignore[misc]
                            handles[name] = operations.open(operations.names.format_name(name), QueueAccessType.SEND)
                        stack.callback(operations.close, handles[name])
                    with self._runtime.change() as change, _naming(lambda part=part: part.row):  # type: ignore[misc]
                        found = part.stage(self._engine, handles[name], token)
                        contents += found
                        self._check_size(contents, writer, batch)
                        self._room.check(row.owner, operations.identity.name, found.messages, found.bytes)
                        self._room.add(token, row.owner, found.messages, found.bytes)
                    unsynced += found.bytes
                    if unsynced >= SYNC_EVERY:
                        change.wait()
                        unsynced = 0
                with self._runtime.change() as change:
                    self._put(token, dataclasses.replace(row, is_whole=True).with_contents(contents))
            change.wait()
        except BaseException:
            with self._runtime.change() as change:
                self._drop(token)
            change.soon()
            raise
        return contents

    # Publishing
    # ----------------------------------------------------------------------------------------------

    def publish(
        self, operations: Operations, writer: str, batch: int, tokens: list[bytes], *, keep: int | None = None
    ) -> Publication:
        """Make the messages of some tokens visible in one commit, once per writer and batch.

        `keep`: the seconds for which this is recorded at least; None: for ever. After that the
        writer counts as new. A batch that is not above the writer's last one is already published,
        so its tokens are dropped. All other tokens of the batch are dropped too.
        """
        owner = _check_user(operations)
        for token in tokens or [b"none"]:
            _check(token, writer, batch)
        tokens = list(dict.fromkeys(tokens))
        with self._runtime.change() as change:
            self._forget_writers()
            before = self._writer(owner, writer)
            rows = {token: self._stage(operations, token, writer, batch) for token in tokens}
            if before is not None and batch <= before.batch:
                publication = self._again(writer, batch, before, rows)
            else:
                publication = self._publish(operations, writer, batch, before, rows)
                if keep is not None:
                    expires = int(self._engine.clock()) + keep
                    self._expiry.put(_EXPIRES.pack(min(expires, _LATEST)) + _writer_key(owner, writer), b"")
            for token in self._of(owner, writer, batch):
                self._drop(token)
        change.wait()
        return publication

    def _publish(
        self,
        operations: Operations,
        writer: str,
        batch: int,
        before: _WriterRow | None,
        rows: dict[bytes, _StageRow | None],
    ) -> Publication:
        contents = Contents()
        for token, row in rows.items():
            if row is None or not row.is_whole:
                raise StageUnknown(
                    f"token {token.hex()} of {writer}, batch {batch}: never written to its end, dropped, or published "
                    "already"
                )
            contents += row.contents
        self._check_size(contents, writer, batch)
        owner = str(operations.identity.sid)
        if before is None and self._writers_of[owner] >= self._settings.max_writers:
            raise InsufficientResources(
                f"{operations.identity.name} has {self._writers_of[owner]} writers (flight.max_writers): "
                "publish with keep_seconds, so that they are forgotten"
            )
        # A stage without rows has nothing to publish.
        staged = [token for token, row in rows.items() if row is not None and row.messages]
        if staged:
            self._engine.publish_stages(_publication_of(_writer_key(owner, writer), batch), staged)
        for token in rows:
            self._stages.delete(token)
            self._room.remove(token)
        if before is not None:
            # The writer's row covers all batches before this one.
            self._store.forget_publication(_publication_of(_writer_key(owner, writer), before.batch))
        else:
            self._writers_of[owner] += 1
        after = _WriterRow(owner, batch, contents.messages, contents.bytes, contents.digest)
        self._writers.put(_writer_key(owner, writer), json.dumps(dataclasses.asdict(after)).encode())
        return Publication(is_new=True, contents=contents)

    @staticmethod
    def _again(writer: str, batch: int, before: _WriterRow, rows: dict[bytes, _StageRow | None]) -> Publication:
        first = Contents(before.messages, before.bytes, before.digest)
        found = [row.contents for row in rows.values() if row is not None]
        # Missing tokens were published the first time. Only the contents of the last batch are
        # recorded.
        if batch == before.batch and len(found) == len(rows) and sum(found, Contents()) != first:
            again = sum(found, Contents())
            raise PublicationDiffers(
                f"batch {batch} of {writer} was published with {first.messages} messages of {first.bytes} bytes, and "
                f"now it has {again.messages} of {again.bytes}, or others: nothing was done"
            )
        return Publication(is_new=False, contents=first if batch == before.batch else Contents())

    def drop(self, operations: Operations, tokens: list[bytes]) -> int:
        """Drop what was staged under some tokens; return how many of them existed."""
        _check_user(operations)
        with self._runtime.change() as change:
            found = [token for token in tokens if self._stages.get(token) is not None]
            for token in found:
                self._check_owner(operations, self._row(token), token.hex())
                self._drop(token)
        change.wait()
        return len(found)

    def drop_batch(self, operations: Operations, writer: str, batch: int) -> int:
        """Drop everything that is staged for a batch; return the number of tokens."""
        with self._runtime.lock:
            tokens = self._of(_check_user(operations), writer, batch)
        return self.drop(operations, tokens)

    def last_published(self, operations: Operations, writer: str) -> tuple[int, Contents] | None:
        """Return the last batch of a writer and its contents, or None."""
        with self._runtime.lock:
            row = self._writer(_check_user(operations), writer)
        return None if row is None else (row.batch, Contents(row.messages, row.bytes, row.digest))

    # Rows
    # ----------------------------------------------------------------------------------------------

    def _row(self, token: bytes) -> _StageRow | None:
        raw = self._stages.get(token)
        return None if raw is None else _StageRow(**json.loads(raw))

    def _put(self, token: bytes, row: _StageRow) -> None:
        self._stages.put(token, json.dumps(dataclasses.asdict(row)).encode())

    def _drop(self, token: bytes) -> None:
        self._stages.delete(token)
        self._room.remove(token)
        self._engine.drop_stage(token)

    def _of(self, owner: str, writer: str, batch: int) -> list[bytes]:
        rows = ((token, _StageRow(**json.loads(raw))) for token, raw in self._stages.items())
        return [token for token, row in rows if (row.owner, row.writer, row.batch) == (owner, writer, batch)]

    def _check_size(self, contents: Contents, writer: str, batch: int) -> None:
        """Refuse a publication as soon as it is too large."""
        most, size = self._settings.max_publication_messages, self._settings.max_publication_mb << 20
        if contents.messages > most or contents.bytes > size:
            raise InsufficientResources(
                f"batch {batch} of {writer} has more than {most} messages or {size} bytes "
                "(flight.max_publication_messages, flight.max_publication_mb)"
            )

    def _stage(self, operations: Operations, token: bytes, writer: str, batch: int) -> _StageRow | None:
        row = self._row(token)
        if row is not None:
            self._check_owner(operations, row, token.hex())
            if (row.writer, row.batch) != (writer, batch):
                raise InvalidParameter(
                    f"token {token.hex()} was written for {row.writer}, batch {row.batch}, not for {writer}, batch "
                    f"{batch}"
                )
        return row

    def _writer(self, owner: str, writer: str) -> _WriterRow | None:
        raw = self._writers.get(_writer_key(owner, writer))
        return None if raw is None else _WriterRow(**json.loads(raw))

    @staticmethod
    def _check_owner(operations: Operations, row: _StageRow | None, what: str) -> None:
        identity = operations.identity
        if row is not None and row.owner != str(identity.sid) and not identity.is_administrator:
            raise AccessDenied(f"{what} belongs to another user than {identity.name}")


@contextmanager
def _naming(row: Callable[[], int]) -> Iterator[None]:
    """Add the number of the row to errors of sending."""
    try:
        yield
    except StatusError as error:
        raise type(error)(f"row {row()}: {error.args[0]}") from None


def _check(token: bytes, writer: str, batch: int) -> None:
    if not 0 < len(token) <= MAX_TOKEN_BYTES:
        raise InvalidParameter(f"a token has 1 to {MAX_TOKEN_BYTES} bytes, not {len(token)}")
    if not 0 < len(writer.encode()) <= MAX_WRITER_BYTES:
        raise InvalidParameter(f"a writer's name has 1 to {MAX_WRITER_BYTES} bytes, not {len(writer.encode())}")
    if not 0 <= batch < 1 << 63:
        raise InvalidParameter(f"batch {batch}: a number from 0 on")


def _check_user(operations: Operations) -> str:
    """Return the SID of the caller.

    Raises AccessDenied for anonymous callers: all of them would share their writers.
    """
    if operations.identity.is_anonymous:
        raise AccessDenied("log on to publish: stages of anonymous users would belong to all of them")
    return str(operations.identity.sid)


def _writer_key(owner: str, writer: str) -> bytes:
    return _owned(owner, hashlib.sha256(writer.encode()).digest())


def _owned(owner: str, digest: bytes) -> bytes:
    return hashlib.sha256(owner.encode() + digest).digest()


def _publication_of(digest: bytes, batch: int) -> bytes:
    return b"pipeline" + digest[:24] + batch.to_bytes(8, "big")
