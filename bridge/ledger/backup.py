"""Backup and restore. One format whatever database the ledger is in: a backup is itself a ledger, in one SQLite file.

So it can be opened, verified and restored into SQLite or PostgreSQL. It is one consistent snapshot, taken while the
bridge writes; the file appears whole or not at all. A restore goes into an empty database only, in one transaction
that is committed after the copy has been verified.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Table, func, select

from bridge.errors import BrokenInvariantError, InvalidInputError
from bridge.ledger import database, rows, schema, verify
from bridge.ledger.store import Store, open_store

_CHUNK: Final = 2_000
_KEPT: Final = tuple(table for table in schema.metadata.sorted_tables if table is not schema.meta)


def backup(url: str, path: Path) -> int:
    """Write a snapshot of the ledger to a new file; return its newest entry's number.

    A ledger that does not add up is backed up all the same, for its evidence; restore refuses it.
    """
    if path.exists():
        raise InvalidInputError(f"backup: {path} exists already; give a new file name")
    partial = path.with_name(f"{path.name}.partial")
    _remove(partial)
    try:
        partial.touch()
    except OSError as error:
        raise InvalidInputError(f"backup: {path}: {error.strerror}; give a file that can be written") from error
    try:
        source = open_store(url, None, migrate=False)
        try:
            newest = _copied(source, f"sqlite:///{partial.absolute()}", "backup", proven=False)
        finally:
            source.close()
        _sync(partial)
        partial.rename(path)
        _sync(path.parent)
    finally:
        _remove(partial)
    return newest


def restore(path: Path, url: str) -> int:
    """Copy a backup into an empty database and verify it there; return its newest entry's number."""
    if not path.is_file():
        raise InvalidInputError(f"restore: {path} is not there; give the file that backup wrote")
    with tempfile.TemporaryDirectory(prefix="ledger-restore-") as folder:
        copy = Path(folder) / "ledger.db"  # one of an older version is led forward; the backup stays as it is
        shutil.copyfile(path, copy)
        source = open_store(f"sqlite:///{copy}", None)
        try:
            return _copied(source, url, "restore", proven=True)
        finally:
            source.close()


def _copied(source: Store, url: str, verb: str, *, proven: bool) -> int:
    """Copy every table into an empty ledger: all of it, or nothing."""
    target = open_store(url, None)
    try:
        with source.read() as reading, target.exclusively(verb) as writing:
            for table in _KEPT:
                if writing.scalar(select(func.count()).select_from(table)):
                    raise InvalidInputError(
                        f"{verb}: {database.shown(url)} is not empty (its table {table.name} has rows); give an empty "
                        "database"
                    )
            schema.drop_triggers(writing)  # archived checkpoints have no entry any more that they could be checked by
            for table in _KEPT:
                _copy(table, reading, writing)
            schema.create_triggers(writing)
            found = verify.problems(writing) if proven else ()
            if found:
                raise BrokenInvariantError(
                    f"{verb}: what is in the file does not add up ({len(found)} problems), nothing is restored; "
                    f"{found[0].text}"
                )
            return int(writing.scalar(select(func.max(schema.entries.c.seq))) or 0)
    finally:
        target.close()


def _copy(table: Table, reading: Connection, writing: Connection) -> None:
    statement = rows.insertion(table, writing.dialect.name)
    for chunk in _chunks(table, reading):
        writing.exec_driver_sql(statement, chunk)


def _chunks(table: Table, reading: Connection) -> Iterator[list[tuple[Any, ...]]]:
    query = select(table).order_by(*table.primary_key)
    found = reading.execute(query, execution_options={"yield_per": _CHUNK})
    chunk: Sequence[Any]
    for chunk in found.partitions():
        yield [tuple(row) for row in chunk]


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
