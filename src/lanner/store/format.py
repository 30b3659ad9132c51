"""The version of the store's format, upgrades from older versions, and the identity of a store.

A change of the on-disk format increments FORMAT and adds the step from the previous version to
MIGRATIONS. All steps that a store needs run in one commit when it is opened. A store of a newer
format is rejected and left untouched.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable
from pathlib import Path

import lmdb

from lanner.model.errors import StoreVersion

__all__ = ["FORMAT", "MIGRATIONS", "ensure_format", "epoch_of", "forget_epoch", "table_key"]

# 2: acknowledged changes may be in the write-ahead log only, which a program of format 1 does not
# read.
FORMAT = 2


def table_key(name: str, key: bytes) -> bytes:
    """Return the key of a table's row in the database of tables."""
    encoded = name.encode()
    return bytes((len(encoded),)) + encoded + key


# From each version the step to the next one. A step gets the environment and the write transaction
# of the upgrade.
MIGRATIONS: dict[int, Callable[[lmdb.Environment, lmdb.Transaction[bytes]], None]] = {
    1: lambda _env, _txn: None,  # the database itself is unchanged
}

_FORMAT_KEY = table_key("store", b"format")
_EPOCH_KEY = table_key("store", b"epoch")
_SEED_KEY = table_key("store", b"seed")
_U64 = struct.Struct(">Q")


def ensure_format(env: lmdb.Environment, path: Path) -> tuple[int, int]:
    """Create or upgrade the store; return its epoch and the seed of the log's checksums.

    Raises StoreVersion for a newer format. Both numbers are random. Readers of the store see the
    epoch. The seed stays secret, so that no sender can craft a message that looks like a log
    record.
    """
    if _stored_format(env) > FORMAT:
        raise StoreVersion(
            f"{path} is in store format {_stored_format(env)}, this version knows formats up to {FORMAT}: "
            "use the newer version of the program that wrote it"
        )
    tables = env.open_db(b"tables")
    with env.begin() as read:
        epoch, seed = (_unpack(read.get(key, db=tables)) for key in (_EPOCH_KEY, _SEED_KEY))
    if epoch and seed and _stored_format(env) == FORMAT:
        return epoch, seed  # nothing is written, so a store opens on a full disk too
    with env.begin(write=True) as txn:
        version = _unpack(txn.get(_FORMAT_KEY, db=tables)) or FORMAT
        while version < FORMAT:
            step = MIGRATIONS.get(version)
            if step is None:
                raise StoreVersion(f"{path} is in store format {version}, from which there is no way to {FORMAT}")
            step(env, txn)
            version += 1
        epoch = epoch or secrets.randbits(64) or 1
        seed = seed or secrets.randbits(32) or 1
        txn.put(_EPOCH_KEY, _U64.pack(epoch), db=tables)
        txn.put(_SEED_KEY, _U64.pack(seed), db=tables)
        txn.put(_FORMAT_KEY, _U64.pack(version), db=tables)
    return epoch, seed


def epoch_of(env: lmdb.Environment) -> int:
    """Return the epoch of a store that another process has open."""
    tables = env.open_db(b"tables", create=False)
    with env.begin() as txn:
        return _unpack(txn.get(_EPOCH_KEY, db=tables))


def forget_epoch(env: lmdb.Environment) -> None:
    """Mark a copy, so that the first opening gives it its own epoch and seed.

    After the copy was made, the original and the copy issue the same numbers for different messages
    and records.
    """
    tables = env.open_db(b"tables")
    with env.begin(write=True) as txn:
        for key in (_EPOCH_KEY, _SEED_KEY):
            txn.put(key, _U64.pack(0), db=tables)


def _stored_format(env: lmdb.Environment) -> int:
    """Return the version without changing anything; 0 for a new store."""
    try:
        tables = env.open_db(b"tables", create=False)
    except lmdb.NotFoundError:
        return 0
    with env.begin() as txn:
        return _unpack(txn.get(_FORMAT_KEY, db=tables))


def _unpack(raw: bytes | None) -> int:
    return 0 if raw is None else int(_U64.unpack(raw)[0])
