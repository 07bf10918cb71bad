"""Slurm as its users see it and as its administrator does, both in the login pod."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.e2e import kube, shell
from tests.e2e.waiting import until

_FIELD = re.compile(r"(?:^|\s)(\w+(?:[:/]\w+)*)=(\S*)")
_ADMIN_COMMENT = re.compile(r"\sAdminComment=(.*?)\s+(?:SystemComment|Comment|StdErr|StdIn|StdOut|Power|TresPer\w+)=")
_GPUS = re.compile(r"gres/gpu=(\d+)")
_JOB_GRES = re.compile(r"\sJOB_GRES=(\S+)")
_ITEM = re.compile(r"gpu(?::[^:,()]+)?:(\d+)")


@dataclass(frozen=True, slots=True)
class Job:
    """One record of `scontrol -d -o show job`."""

    id: str  # "12", or "12_3" of an array
    name: str
    user: str
    account: str
    state: str
    reason: str
    nodes: str
    gpus: int  # allocated: AllocTRES, else JOB_GRES of `-d`; 0 where Slurm shows none
    started_ms: int | None
    ended_ms: int | None
    restarts: int
    exit_code: str
    admin_comment: str

    @property
    def over(self) -> bool:
        """Whether it ended for good."""
        return self.state in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "DEADLINE", "OUT_OF_MEMORY")

    @property
    def holds(self) -> bool:
        """Whether devices are allocated to it."""
        return self.state in ("RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING", "STOPPED")


def parse(line: str) -> Job:
    """Read one line of `scontrol -d -o show job`."""
    fields: dict[str, str] = {}
    for match in _FIELD.finditer(line):
        fields.setdefault(match[1], match[2])
    comment = _ADMIN_COMMENT.search(line)
    task = fields.get("ArrayTaskId")
    return Job(
        id=f"{fields['ArrayJobId']}_{task}" if task else fields["JobId"],
        name=fields["JobName"],
        user=fields["UserId"].partition("(")[0],
        account=fields["Account"],
        state=fields["JobState"],
        reason=fields["Reason"],
        nodes="" if fields.get("NodeList", "") == "(null)" else fields.get("NodeList", ""),
        gpus=_gpus(fields.get("AllocTRES", "")) or _job_gres(line),
        started_ms=_ms(fields.get("StartTime", "")),
        ended_ms=_ms(fields.get("EndTime", "")),
        restarts=int(fields["Restarts"]),
        exit_code=fields.get("ExitCode", ""),
        admin_comment=comment[1] if comment else "",
    )


def parse_all(text: str) -> list[Job]:
    """Read the answer of `scontrol -d -o show job`."""
    return [parse(line) for line in text.splitlines() if line.startswith("JobId=")]


def _gpus(tres: str) -> int:
    found = _GPUS.search(tres)
    return int(found[1]) if found else 0


def _job_gres(line: str) -> int:
    """Read the devices of `-d`: without an accounting database AllocTRES leaves GPUs out."""
    return sum(int(count) for gres in _JOB_GRES.findall(line) for count in _ITEM.findall(gres))


def _ms(text: str) -> int | None:
    """Read a time of a container, which is in UTC."""
    if not text or text in ("Unknown", "N/A"):
        return None
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def as_user(user: str, command: str, *, timeout_s: float = 60) -> str:
    """Run a command in the login pod as one of its users."""
    return shell.run(_login(user, command), timeout_s=timeout_s)


def attempt(user: str, command: str, *, timeout_s: float = 60) -> shell.Completed:
    """Run a command in the login pod where a refusal is an answer too."""
    return shell.attempt(_login(user, command), timeout_s=timeout_s)


def _login(user: str, command: str) -> list[str]:
    return ["kubectl", "-n", "slurm", "exec", "deploy/login", "--", "su", user, "-c", f"cd && {command}"]


def root(*command: str, timeout_s: float = 60) -> str:
    """Run a command in the login pod as Slurm's administrator."""
    return kube.kubectl("-n", "slurm", "exec", "deploy/login", "--", *command, timeout_s=timeout_s)


def beside_slurmctld(script: str) -> shell.Completed:
    """Run a shell script in slurmctld's own container, which may end with it."""
    return kube.attempt("-n", "slurm", "exec", "slurmctld-0", "--", "sh", "-c", script)


def sbatch(user: str, options: str, script: str = "sleep 600") -> str:
    """Submit and return the JobId."""
    said = as_user(user, f"sbatch --parsable {options} --wrap {shlex.quote(script)}")
    return said.strip().partition(";")[0]


def jobs() -> list[Job]:
    """Return every record that slurmctld has."""
    return parse_all(root("scontrol", "-d", "-o", "show", "job"))


def job(identity: str) -> Job:
    """Return one job or array task."""
    found = parse_all(root("scontrol", "-d", "-o", "show", "job", identity))
    if len(found) != 1:
        raise shell.CommandError(f"job {identity} has {len(found)} records")
    return found[0]


def reaches(identity: str, state: str, timeout_s: float = 60) -> Job:
    """Wait until a job has a state."""

    def seen() -> Job | None:
        found = job(identity)
        assert not found.over or found.state == state, f"job {identity} is {found.state}, not {state}: {found}"
        return found if found.state == state else None

    return until(f"job {identity} is {state}", seen, timeout_s)


def nodes() -> dict[str, dict[str, str]]:
    """Return the fields of every Slurm node by its name."""
    answer = root("scontrol", "-o", "show", "node")
    found = {}
    for line in answer.splitlines():
        if line.startswith("NodeName="):
            fields = {match[1]: match[2] for match in reversed(list(_FIELD.finditer(line)))}
            reason = re.search(r"\sReason=(.*?)(?:\s\[|$)", line)
            fields["Reason"] = reason[1] if reason else ""
            found[fields["NodeName"]] = fields
    return found


def usable(name: str, found: Mapping[str, Mapping[str, str]] | None = None) -> bool:
    """Whether a worker is registered, answers, and takes jobs."""
    state = (nodes() if found is None else found).get(name, {}).get("State", "")
    words = set(state.rstrip("*").split("+"))
    unusable = {"DRAIN", "DOWN", "NOT_RESPONDING", "INVALID_REG"}
    return not state.endswith("*") and bool(words & {"IDLE", "MIXED", "ALLOCATED"}) and not words & unusable
