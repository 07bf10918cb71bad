#!/usr/bin/python3
"""Brings the configuration mounted at /conf into /etc/slurm, and every later change of it to the running slurmctld.

    config_follow.py --first    copy it, before slurmctld starts
    config_follow.py --watch    follow it, beside slurmctld

A bad configuration kills slurmctld while `scontrol reconfigure` says that all is well. So a new one is first tried by
a scratch slurmctld: on another port, on a copy of the state (saved nodes may refer to what the change removes), and
with a random key of its own, so that no worker obeys it. Only modules of python3-minimal are used.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time

SOURCE = "/conf"
TARGET = "/etc/slurm"
STATE = "/var/spool/slurmctld"
RUN = "/run/slurm"
SCRATCH = f"{RUN}/scratch"
APPLIED = f"{RUN}/config-applied"
REFUSED = f"{RUN}/config-refused"

LIVE = ("job_submit.lua", "bridge-members.lua")  # slurmctld reads these again by itself
TRIED = ("slurm.conf", "gres.conf", "cgroup.conf", "topology.yaml")
GRES_LOCAL = "gres-local.conf"  # what gres.conf includes; empty on slurmctld

SCRATCH_PORT = 6917
SCRATCH_BOUND_S = 30
SETTLED_S = 1.0
RECONFIGURE_BOUND_S = 60
LOOK_S = 0.5

# Parameters that would let a scratch slurmctld act on the world, or that tie it to the real one's place.
REPLACED = (
    "AuthInfo", "SlurmctldHost", "SlurmctldPort", "SlurmctldAddr", "SlurmctldPidFile", "SlurmctldLogFile",
    "StateSaveLocation",
    "ResumeProgram", "SuspendProgram", "ResumeFailProgram", "PrologSlurmctld", "EpilogSlurmctld", "MailProg",
    "RebootProgram", "SlurmctldPrimaryOnProg", "SlurmctldPrimaryOffProg",
)  # fmt: skip

Files = dict[str, bytes]


def say(text: str) -> None:
    """Write one line to the container's log."""
    sys.stderr.write(f"config-follow: {text}\n")
    sys.stderr.flush()


def read(directory: str) -> Files:
    """Read the files of one version: a mounted ConfigMap changes as a whole, by one symbolic link."""
    while True:
        version = _version(directory)
        found = {}
        for name in (*LIVE, *TRIED):
            try:
                with open(f"{directory}/{name}", "rb") as file:  # noqa: PTH123 -- pathlib may be missing here
                    found[name] = file.read()
            except FileNotFoundError:
                continue
        if _version(directory) == version:
            return found


def _version(directory: str) -> str:
    link = f"{directory}/..data"
    return os.readlink(link) if os.path.islink(link) else ""  # noqa: PTH114, PTH115


def put(name: str, content: "bytes | None", directory: str = TARGET) -> None:
    """Replace a file at once, or remove it."""
    path = f"{directory}/{name}"
    if content is None:
        if os.path.exists(path):  # noqa: PTH110
            os.remove(path)  # noqa: PTH107
        return
    with open(f"{path}.new", "wb") as file:  # noqa: PTH123
        file.write(content)
    os.rename(f"{path}.new", path)  # noqa: PTH104


def digest(files: Files) -> str:
    """Return the hash of the files, by name."""
    return hashlib.sha256(b"".join(files[name] for name in sorted(files))).hexdigest()


def scratch_conf(text: str) -> str:
    """Return slurm.conf for the scratch slurmctld."""
    dropped = {name.lower() for name in REPLACED}
    kept = [line for line in text.splitlines() if _parameter(line) not in dropped]
    own = [
        f"SlurmctldHost={os.uname().nodename.partition('.')[0]}(127.0.0.1)",
        f"SlurmctldPort={SCRATCH_PORT}",
        f"SlurmctldPidFile={SCRATCH}/slurmctld.pid",
        f"StateSaveLocation={SCRATCH}/state",
        # Every slurmctld offers its host's clients the same socket: this one would take the real one's place.
        "AuthInfo=disable_sack",
    ]
    return "\n".join([*kept, *own, ""])


def _parameter(line: str) -> str:
    match = re.match(r"\s*([A-Za-z][A-Za-z0-9]*)\s*=", line)
    return match.group(1).lower() if match else ""


def refusal(files: Files) -> "str | None":
    """Try a configuration; return slurmctld's own last words when it does not come up with it."""
    shutil.rmtree(SCRATCH, ignore_errors=True)
    shutil.copytree(STATE, f"{SCRATCH}/state", ignore=_vanished)
    os.chmod(f"{SCRATCH}/state", 0o700)  # noqa: PTH101
    for name in (*LIVE, *TRIED):
        if name in files:
            put(name, files[name], SCRATCH)
    put("slurm.conf", scratch_conf(files.get("slurm.conf", b"").decode()).encode(), SCRATCH)
    put("slurm.key", os.urandom(1024), SCRATCH)
    os.chmod(f"{SCRATCH}/slurm.key", 0o600)  # noqa: PTH101
    with open(f"{SCRATCH}/log", "wb") as log:  # noqa: PTH123
        daemon = subprocess.Popen(
            ["/usr/sbin/slurmctld", "-D", "-f", f"{SCRATCH}/slurm.conf"],
            stdout=log,
            stderr=log,
            env={**os.environ, "SLURM_CONF": f"{SCRATCH}/slurm.conf"},
        )
    try:
        return _outcome(daemon)
    finally:
        daemon.kill()
        daemon.wait()
        shutil.rmtree(SCRATCH, ignore_errors=True)


def _vanished(directory: str, names: "list[str]") -> "list[str]":
    """Leave out what slurmctld is writing at this moment."""
    return [name for name in names if name.endswith(".new") or not os.path.exists(f"{directory}/{name}")]  # noqa: PTH110


def _outcome(daemon: "subprocess.Popen[bytes]") -> "str | None":
    """Wait until it says that it is the primary, and does not end within a second after that."""
    deadline = time.monotonic() + SCRATCH_BOUND_S
    up_since = None
    while time.monotonic() < deadline:
        if daemon.poll() is not None:
            return _last_words(f"slurmctld ended with code {daemon.returncode}")
        if up_since is None and any("Running as primary controller" in line for line in _log()):
            up_since = time.monotonic()
        if up_since is not None and time.monotonic() - up_since > SETTLED_S:
            return None
        time.sleep(LOOK_S / 5)
    return _last_words(f"slurmctld did not come up within {SCRATCH_BOUND_S} s")


def _log() -> "list[str]":
    with open(f"{SCRATCH}/log", errors="replace") as log:  # noqa: PTH123
        return [line.strip() for line in log]


def _last_words(otherwise: str) -> str:
    lines = _log()
    told = [line for line in lines if "fatal:" in line] or [line for line in lines if "error:" in line][-3:]
    return " / ".join(told) or otherwise


def first() -> None:
    """Put everything in place before slurmctld starts."""
    files = read(SOURCE)
    put(GRES_LOCAL, b"")
    for name in (*LIVE, *TRIED):
        put(name, files.get(name))
    put("config-applied", f"{digest(files)}\n".encode(), RUN)
    put("config-refused", None, RUN)


def follow(current: Files, wanted: Files) -> Files:
    """Bring one change in; return what slurmctld runs on afterwards. A refused configuration changes nothing."""
    applied = dict(current)
    for name in LIVE:
        if wanted.get(name) != current.get(name) and name in wanted:
            put(name, wanted[name])
            applied[name] = wanted[name]
            say(f"{name} is new")
    if any(wanted.get(name) != current.get(name) for name in TRIED):
        told = refusal(wanted)
        if told is not None:
            say(f"the new configuration is refused, the old one stays: {told}")
            put("config-refused", f"{told}\n".encode(), RUN)
            return applied
        for name in TRIED:
            put(name, wanted.get(name))
        applied = {**{n: c for n, c in applied.items() if n in LIVE}, **{n: wanted[n] for n in TRIED if n in wanted}}
        _reconfigure()
    put("config-refused", None, RUN)
    put("config-applied", f"{digest(applied)}\n".encode(), RUN)
    return applied


def _reconfigure() -> None:
    done = subprocess.run(["scontrol", "reconfigure"], capture_output=True, check=False, timeout=RECONFIGURE_BOUND_S)
    say(f"reconfigured: code {done.returncode} {done.stderr.decode(errors='replace').strip()}".rstrip())


def watch() -> None:
    """Follow for ever. A configuration that was refused is tried again when it changes, not before."""
    current, tried = read(TARGET), None
    while True:
        time.sleep(LOOK_S)
        wanted = read(SOURCE)
        if wanted == tried:
            continue
        if wanted == current:
            put("config-refused", None, RUN)  # what was refused was taken back
            tried = wanted
            continue
        try:
            current = follow(current, wanted)
            tried = wanted
        except (OSError, subprocess.SubprocessError) as problem:
            say(f"the new configuration could not be brought in, trying again: {problem}")


if __name__ == "__main__":
    {"--first": first, "--watch": watch}[sys.argv[1]]()
