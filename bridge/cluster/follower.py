"""Runs in a mirror pod: prints a job's output file as it grows, ends with the job's exit code.

    python3 follower.py OUTPUT_FILE ENDED_FILE

ENDED_FILE holds the exit code once the job has ended (an annotation, through the downward API). The file may
appear late, on another machine's clock, or never; it may begin anew when the job is requeued. Only modules of
python3-minimal are used, because the worker's image has no more.
"""

import os
import sys
import time

POLL_S = 0.1
QUIET_S = 1.0  # after the end, a network file system may still show the last bytes late
CHUNK = 65536


def follow(path: str, ended_path: str, out: int = 1) -> int:
    """Copy `path` to the descriptor `out` until the job has ended and nothing more comes; return its code."""
    offset, inode, quiet_since, code = 0, 0, time.monotonic(), None
    while True:
        if code is None:
            code = exit_code(ended_path)
        offset, inode, copied = copy_new(path, offset, inode, out)
        now = time.monotonic()
        if copied or code is None:
            quiet_since = now
        elif now - quiet_since >= QUIET_S:
            if inode == 0:
                os.write(out, f"(the job ended without output: {path} does not exist)\n".encode())
            return code
        if not copied:
            time.sleep(POLL_S)


def copy_new(path: str, offset: int, inode: int, out: int) -> tuple[int, int, bool]:
    """Copy what came after `offset`; a file that shrank or was replaced is printed again from its start."""
    try:
        source = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return offset, inode, False
    try:
        status = os.fstat(source)
        if inode and (status.st_ino != inode or status.st_size < offset):
            os.write(out, b"(the output begins anew: the job was started again)\n")
            offset = 0
        os.lseek(source, offset, os.SEEK_SET)
        data = os.read(source, CHUNK)
        written = 0
        while written < len(data):
            written += os.write(out, data[written:])
        return offset + len(data), status.st_ino, bool(data)
    finally:
        os.close(source)


def exit_code(ended_path: str) -> "int | None":
    """Read the job's exit code; None while the job has not ended."""
    try:
        with open(ended_path) as file:  # noqa: PTH123 -- pathlib is not in python3-minimal
            text = file.read().strip().strip('"')
    except FileNotFoundError:
        return None
    return max(0, min(int(text), 255)) if text else None


if __name__ == "__main__":
    sys.exit(follow(sys.argv[1], sys.argv[2]))
