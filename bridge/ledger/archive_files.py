r"""An archive on disk: one folder per checkpoint, a CSV.gz per table and a manifest that names their digests.

A folder appears whole or not at all: it is written under another name, every file is synced, and then it is renamed.
CSV: a header, RFC 4180 quoting, NULL as \N (a text that begins with a backslash gets one more in front).
"""

import csv
import gzip
import io
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from bridge.errors import InvalidInputError, UnknownStateError

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
_NULL: Final = "\\N"
_CHUNK: Final = 1 << 20


class File(msgspec.Struct, frozen=True):
    """One file of an archive."""

    rows: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What an archive folder holds, and what it left behind in the ledger."""

    format: int
    schema: int
    first_seq: int
    last_seq: int
    digest_before: str  # of the entry before the first one; "" when that is entry 1
    digest: str  # of the last entry
    from_ms: int
    to_ms: int
    files: dict[str, File]
    balances: list[list[Any]]  # team, flavor, system, GPUs: as they stood after the last entry
    gpu_ms: dict[str, int]  # by team, of the spans in this folder
    state_sha256: str  # of what was open after the last entry


@dataclass(slots=True)
class Folder:
    """An archive folder in the making."""

    path: Path
    files: dict[str, File]

    def table(self, name: str, columns: Sequence[str], values: Iterable[Sequence[Any]]) -> None:
        """Write one table."""
        count, path = 0, self.path / f"{name}.csv.gz"
        with path.open("wb") as raw:
            with (
                gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as packed,
                io.TextIOWrapper(packed, encoding="utf-8", newline="") as text,
            ):
                writer = csv.writer(text)
                writer.writerow(columns)
                for row in values:
                    writer.writerow([_text(value) for value in row])
                    count += 1
            raw.flush()
            os.fsync(raw.fileno())
        self.files[path.name] = File(count, file_digest(path))


def begin(directory: Path, name: str) -> Folder:
    """Start a folder; what a killed run left of it is removed, the ledger still has all of it."""
    partial = directory / f"{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise InvalidInputError(f"--to {directory}: {error.strerror}; give a folder that can be written") from error
    return Folder(partial, {})


def finish(folder: Folder, manifest: Manifest) -> tuple[Path, str]:
    """Add the manifest, sync, and give the folder its name; return it and the manifest's digest."""
    path = folder.path / MANIFEST
    with path.open("wb") as raw:
        raw.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
        raw.flush()
        os.fsync(raw.fileno())
    final = folder.path.with_suffix("")
    _sync(folder.path)
    if final.exists():  # of a run that was killed before its checkpoint: the ledger still has all of it
        shutil.rmtree(final)
    folder.path.rename(final)
    _sync(final.parent)
    return final, file_digest(final / MANIFEST)


def manifest(folder: Path) -> Manifest:
    """Read a manifest."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except OSError as error:
        told = f"archive {folder}: {error.strerror}; give the folder that the archive was written to"
        raise InvalidInputError(told) from error
    except msgspec.DecodeError as error:
        raise UnknownStateError(f"archive {folder}: its manifest cannot be read: {error}") from error


def table(folder: Path, name: str) -> Iterator[list[str | None]]:
    """Read one table's rows as text, without the header."""
    with gzip.open(folder / f"{name}.csv.gz", "rt", encoding="utf-8", newline="") as text:
        reader = csv.reader(text)
        next(reader, None)
        for row in reader:
            yield [_value(cell) for cell in row]


def file_digest(path: Path) -> str:
    """Return the sha256 of a file."""
    running = sha256()
    with path.open("rb") as raw:
        while chunk := raw.read(_CHUNK):
            running.update(chunk)
    return running.hexdigest()


def _text(value: Any) -> str:
    if value is None:
        return _NULL
    text = str(value)
    return f"\\{text}" if text.startswith("\\") else text


def _value(cell: str) -> str | None:
    if cell == _NULL:
        return None
    return cell.removeprefix("\\")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
