"""`make replay`: jobs of the Philly trace and pods of the openb trace on the sandbox, with an independent witness.

    python -m tests.e2e.replay [--jobs FILE --pods FILE] [--count-jobs N --count-pods N] [--span S] [--longest S]

FILE is a trace with the columns of tests/data/README.md. The exit code is 1 when something did not hold.
"""
# ruff: noqa: T201 -- it talks to a person in a terminal

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.e2e import kube, sbridge, shell, slurm
from tests.e2e.apiserver import ApiServer
from tests.e2e.replay import outcome, trace, witness
from tests.e2e.replay.outcome import Verdict
from tests.e2e.replay.submission import RUN_LABEL, Submission
from tests.e2e.waiting import until

DATA = Path(__file__).resolve().parents[2] / "data"
TELL_EVERY_S = 10
SETTLE_S = 30


@dataclass(slots=True)
class Record:
    """What the witness saw over the whole replay."""

    samples: int = 0
    peak: int = 0
    both: int = 0  # samples in which both systems held GPUs
    violations: Counter[str] = field(default_factory=Counter)
    gpus: dict[str, int] = field(default_factory=dict)  # most that was seen allocated to a job, by JobId
    jobs: list[slurm.Job] = field(default_factory=list)
    pods: list[kube.Object] = field(default_factory=list)


def main() -> int:
    """Run the replay and print what held and what did not."""
    arguments = _arguments()
    try:
        return replay(arguments)
    except (shell.CommandError, shell.PlatformMissingError, AssertionError) as error:
        print(f"replay: {error}", file=sys.stderr)
        return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=Path, default=DATA / "philly_60.csv", help="trace of jobs")
    parser.add_argument("--pods", type=Path, default=DATA / "openb_25.csv", help="trace of pods")
    parser.add_argument("--count-jobs", type=int, default=60, help="at most so many rows, the first ones")
    parser.add_argument("--count-pods", type=int, default=25)
    parser.add_argument("--span", type=float, default=120, help="seconds over which the work arrives")
    parser.add_argument("--shortest", type=int, default=3, help="seconds that the shortest runs")
    parser.add_argument("--longest", type=int, default=30, help="seconds that the longest runs")
    parser.add_argument("--within", type=float, default=480, help="seconds after which it counts as failed")
    return parser.parse_args()


def replay(arguments: argparse.Namespace) -> int:
    """Submit, watch, and judge."""
    run = f"r{int(time.time()):x}"
    scale = trace.Scale(arguments.span, arguments.shortest, arguments.longest)
    jobs = trace.jobs(trace.read(arguments.jobs)[: arguments.count_jobs], scale, run)
    pods = trace.pods(trace.read(arguments.pods)[: arguments.count_pods], scale, run)
    asked_s = sum(work.gpus * work.run_s for work in (*jobs, *pods))
    print(f"replay {run}: {len(jobs)} jobs and {len(pods)} pods over {scale.span_s:.0f} s, {asked_s} GPU·s in all")
    until("no GPU work is left from before", lambda: not sbridge.queue(), 60)
    seq, from_ms, started = sbridge.newest(), time.time_ns() // 1_000_000, time.monotonic()
    submission = Submission(run, jobs, pods)
    try:
        seen = _watch(run, submission, len(jobs), len(pods), started + arguments.within)
        took_s = time.monotonic() - started
        until("the ledger has seen every end", lambda: not sbridge.queue(), SETTLE_S)
        usage = sbridge.call("usage", "--from", str(from_ms), "--to", "now")
        entries = sbridge.entries(seq)
        ran = _ran(run)
    finally:
        submission.stop()
        _clean(run)
    ledger = outcome.ledger_gpu_ms(usage)
    itself = outcome.job_gpu_ms(jobs, seen.jobs) + outcome.pod_gpu_ms(pods, seen.pods)
    print(f"\n{seen.samples} samples in {took_s:.0f} s; at most {seen.peak} GPUs held at a time; both systems held "
          f"GPUs in {seen.both} samples\n")  # fmt: skip
    _table(ledger, itself)
    verify = sbridge.attempt("ledger", "verify")
    within = f"all of it ran within {arguments.within:.0f} s"
    verdicts = [
        Verdict(within, () if took_s <= arguments.within else (f"it took {took_s:.0f} s",)),
        Verdict("no node and no team was ever above what it has", tuple(
            f"{text} (in {count} samples)" for text, count in seen.violations.items())),
        outcome.once(jobs, seen.jobs, ran),
        outcome.pods_once(pods, seen.pods),
        outcome.one_grant(len(jobs) + len(pods), entries),
        outcome.equal(ledger, itself),
        Verdict("sbridge ledger verify is clean", () if verify.code == 0 else (verify.said,)),
    ]  # fmt: skip
    for verdict in verdicts:
        print(f"{'PASS' if verdict.passed else 'FAIL'}  {verdict.name}")
        for objection in verdict.objections:
            print(f"        {objection}")
    return 0 if all(verdict.passed for verdict in verdicts) else 1


def _watch(run: str, submission: Submission, jobs: int, pods: int, deadline: float) -> Record:
    """Sample once a second until everything has ended, or the deadline."""
    at, side, api, record = witness.ground(), witness.SlurmSide(), ApiServer(), Record()
    submission.start()
    next_s, started, told_s = time.monotonic(), time.monotonic(), float("-inf")
    try:
        while time.monotonic() < deadline:
            submission.check()
            sample, all_jobs, all_pods = witness.look(at, side, api)
            record.samples += 1
            record.peak = max(record.peak, sample.slurm + sample.pods)
            record.both += bool(sample.slurm and sample.pods)
            record.violations.update(sample.violations)
            for job in all_jobs:
                record.gpus[job.id] = max(record.gpus.get(job.id, 0), job.gpus)
            # A job that has ended shows no devices any more; what it was seen with stays its allocation.
            own = [job for job in all_jobs if job.name.startswith(f"{run}-")]
            record.jobs = [replace(job, gpus=record.gpus[job.id]) for job in own]
            record.pods = [pod for pod in all_pods if (pod["metadata"].get("labels") or {}).get(RUN_LABEL) == run]
            over = sum(job.over for job in record.jobs), sum(_over(pod) for pod in record.pods)
            now = time.monotonic()
            if now - told_s >= TELL_EVERY_S:
                told_s = now
                wrong = f"  VIOLATIONS {len(record.violations)}" if record.violations else ""
                print(
                    f"  {now - started:4.0f} s  submitted {submission.submitted:2}  ended {over[0]:2} jobs "
                    f"{over[1]:2} pods  held {sample.slurm:2} in Slurm {sample.pods:2} in pods{wrong}",
                    flush=True,
                )
            if submission.done and over == (jobs, pods):
                return record
            next_s = max(next_s + 1, now)
            time.sleep(max(0.0, next_s - now))
    finally:
        side.close()
    return record


def _over(pod: kube.Object) -> bool:
    return pod["status"].get("phase") in witness.TERMINAL


def _ran(run: str) -> Counter[str]:
    """Count the lines that the scripts left."""
    ran: Counter[str] = Counter()
    for tenant in trace.TENANTS:
        ran.update(slurm.as_user(tenant.user, f"cat replay-{run}.ran 2>/dev/null || true").split())
    return ran


def _clean(run: str) -> None:
    """Remove what is left; nothing when all went well but pods that ended and a file for each user."""
    for tenant in trace.TENANTS:
        slurm.as_user(tenant.user, f"rm -f replay-{run}.ran; squeue -h -a -u {tenant.user} -o '%A %j' "
                      f"| awk '$2 ~ /^{run}-/ {{print $1}}' | xargs -r scancel")  # fmt: skip
        kube.kubectl("-n", tenant.team, "delete", "pods", "-l", f"{RUN_LABEL}={run}", "--timeout=60s", timeout_s=90)


def _table(ledger: Counter[outcome.Key], itself: Counter[outcome.Key]) -> None:
    print(f"{'TEAM':<10}{'SYSTEM':<12}{'LEDGER GPU·s':>14}{'SYSTEM GPU·s':>14}{'DIFFERENCE':>12}")
    for team, system in sorted(set(ledger) | set(itself)):
        mine, theirs = ledger[team, system], itself[team, system]
        difference = f"{(mine - theirs) / theirs:+.2%}" if theirs else "-"
        print(f"{team:<10}{system:<12}{mine / 1000:>14.1f}{theirs / 1000:>14.1f}{difference:>12}")
    print()


if __name__ == "__main__":
    sys.exit(main())
