"""Runs in the login pod as a user: submits jobs one after the other and prints how long each took to run, in ns.

    python3 - ROUNDS DIRECTORY GPU_OPTIONS… < driver.py

The clock is the submitter's: from before `sbatch` is started until the job's first instruction, which writes its own
time (all nodes of the sandbox share one clock). Plain jobs and GPU jobs alternate.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

DEADLINE_S = 30
SCRIPT = "#!/bin/sh\ndate +%s%N >{path}.part && mv {path}.part {path}\n"


def submitted(directory: pathlib.Path, number: int, options: list[str]) -> dict[str, int]:
    """Submit one job, wait until it has run and has left its node, and return its times."""
    path = directory / str(number)
    command = ["sbatch", "--parsable", "--job-name=latency", "--output=/dev/null", *options]
    before = time.time_ns()
    done = subprocess.run(command, input=SCRIPT.format(path=path), text=True, capture_output=True, check=True)
    answered = time.time_ns()
    identity = done.stdout.strip()
    deadline = time.monotonic() + DEADLINE_S
    while not path.exists() or active(identity):
        if time.monotonic() > deadline:
            raise SystemExit(f"job {identity} ({' '.join(options)}) did not run within {DEADLINE_S} s")
        time.sleep(0.1)
    return {"sbatch_ns": answered - before, "running_ns": int(path.read_text()) - before}


def active(identity: str) -> bool:
    """Return whether a job still is somewhere, its epilogue included."""
    command = ["squeue", "-h", "-j", identity, "-o", "%T"]
    return bool(subprocess.run(command, text=True, capture_output=True, check=True).stdout.strip())


def main() -> None:
    """Alternate, and print one JSON line for each pair."""
    rounds, directory, options = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    directory.mkdir(mode=0o700, parents=True)
    os.chdir(directory)
    try:
        for turn in range(rounds):
            pair = {
                "plain": submitted(directory, 2 * turn, []),
                "bridge": submitted(directory, 2 * turn + 1, options),
            }
            sys.stdout.write(json.dumps(pair) + "\n")
            sys.stdout.flush()
    finally:
        for leftover in directory.iterdir():
            leftover.unlink()
        directory.rmdir()


if __name__ == "__main__":
    main()
