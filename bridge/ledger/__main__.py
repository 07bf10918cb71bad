"""The ledger's administration: `python -m bridge.ledger verify | archive | backup | restore`, beside its database.

These need the database itself, so they run where it can be reached: in the bridge's pod, whose database they take
(`kubectl -n slurm-bridge exec deploy/slurm-bridge -- python -m bridge.ledger verify`), or anywhere with `--url`.
The bridge may go on meanwhile; only a restore wants an empty database.

Exit codes: 0 done, and clean · 1 it does not add up, or refused · 2 bad usage · 5 the database cannot be reached.
"""

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bridge.clock import Clock, SystemClock
from bridge.errors import BridgeError, InvalidInputError, OutcomeUnknownError, UnknownStateError
from bridge.ledger import archive, backup, verify
from bridge.ledger.store import open_store

OK, REFUSED, USAGE, UNREACHABLE = 0, 1, 2, 5
URL: Final = "SBRIDGE_LEDGER_URL"
DEFAULT_URL: Final = "sqlite:////var/lib/slurm-bridge/ledger.db"
"""The bridge's own (bridge.controller.config); a test compares them."""

_DAY_MS: Final = 86_400_000


def main(arguments: Sequence[str], environment: Mapping[str, str], clock: Clock) -> int:
    """Run one verb; return the exit code. What went wrong is one sentence on stderr."""
    asked = _parser().parse_args(arguments)
    url = asked.url or environment.get(URL) or DEFAULT_URL
    try:
        return _run(asked, url, clock)
    except BridgeError as error:
        sys.stderr.write(f"ledger: {error}\n")
        return _code(error)


def _code(error: BridgeError) -> int:
    if isinstance(error, InvalidInputError):
        return USAGE
    return UNREACHABLE if isinstance(error, UnknownStateError | OutcomeUnknownError) else REFUSED


def moment(text: str, *, now_ms: int) -> int:
    """Read a day (00:00 UTC), a time, or an age in days such as "90d", as Unix milliseconds."""
    if age := re.fullmatch(r"([0-9]{1,5})d", text):
        return now_ms - int(age[1]) * _DAY_MS
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(f"--before={text!r} is no time: write a day (2026-12-01), a time, or 90d") from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _run(asked: argparse.Namespace, url: str, clock: Clock) -> int:
    if asked.verb != "restore":
        _check_there(url)
    match asked.verb:
        case "verify":
            return _verify(url, asked.archive)
        case "archive":
            before_ms = moment(asked.before, now_ms=clock.now_ms())
            made = archive.archive(url, before_ms=before_ms, directory=asked.to, clock=clock)
            for each in made:
                _say(f"entries {each.first_seq} to {each.last_seq} are in {each.folder}")
            if not made:
                _say("nothing to archive: no entry is older")
        case "backup":
            _say(f"{asked.file} has the ledger up to entry {backup.backup(url, asked.file)}")
        case "restore":
            _say(f"restored up to entry {backup.restore(asked.file, url)}, verified")
    return OK


def _check_there(url: str) -> None:
    """Refuse a file that is not there: SQLite would make it, and the backup of nothing would look like a good one."""
    prefix, _, path = url.partition(":///")
    if prefix.startswith("sqlite") and path and not Path(path.partition("?")[0]).is_file():
        raise InvalidInputError(f"there is no ledger at {url}: give the bridge's with --url, or set {URL}")


def _verify(url: str, folder: Path | None) -> int:
    store = open_store(url, None, migrate=False)
    try:
        with store.read() as connection:
            found = verify.problems(connection, archive=folder)
    finally:
        store.close()
    for problem in found:
        _say(f"- {problem.text}")
    since = "entry 1" if folder is not None else "the newest checkpoint, or entry 1"
    _say(f"NOT CLEAN: {len(found)} differences" if found else f"clean: everything adds up from {since}")
    return REFUSED if found else OK


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bridge.ledger", description="Administer the ledger's database.")
    parser.add_argument("--url", default="", help=f"the database; by default {URL}, else {DEFAULT_URL}")
    verbs = parser.add_subparsers(dest="verb", required=True)
    proof = verbs.add_parser("verify", help="recompute everything; exit code 1 when something differs")
    proof.add_argument("--archive", type=Path, metavar="DIR", help="prove archived history too, from entry 1")
    away = verbs.add_parser("archive", help="move closed history to files; balances and sums stay")
    away.add_argument("--before", required=True, metavar="TIME", help="a day (00:00 UTC), a time, or an age (90d)")
    away.add_argument("--to", required=True, type=Path, metavar="DIR", help="where the folders go; keep all of them")
    kept = verbs.add_parser("backup", help="write a consistent snapshot to a new file, while the bridge works")
    kept.add_argument("file", type=Path)
    again = verbs.add_parser("restore", help="copy a backup into an empty database, and verify it there")
    again.add_argument("file", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ, SystemClock()))
