"""The planner bench's figures as people read them, with the aims beside them."""

from collections.abc import Iterator
from typing import Any, Final

AIM_A_PER_S: Final = 3_000
AIM_B_PER_S: Final = 2_000
AIM_B_TO_A: Final = 1.5
AIM_REST_MS: Final = 20
AIM_CHANGED_MS: Final = 100
AIM_MB: Final = 600
NAMES: Final = {"a": "(a) 30 teams", "b": "(b) 1,000 teams", "c": "(c) standing queue"}
CONTEXT: Final = (
    "For scale, not the same thing: Kueue 0.17.0's own benchmark of the shape of (a) did 41.0 workloads/s on 2 cores,\n"
    "with a kube-apiserver and etcd in the loop, which this bench does not have."
)


def table(result: dict[str, Any]) -> str:
    """Return everything as text."""
    machine = result["machine"]
    told = f"machine: {machine['cpus']} CPUs, Python {machine['python']}"
    lines = [f"{told}, 4 KiB to disk for good in {machine['disk_sync_ms']} ms (median)", ""]
    if "a" in result or "b" in result:
        lines += _throughput(result)
    if "c" in result:
        lines += _standing(result["c"])
    lines += ["AIMS", *_aims(result), "", CONTEXT]
    return "\n".join(lines)


def _throughput(result: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{'':<28}{'DECISIONS':>10}{'/s':>9}{'us each':>9}{'cpu':>8}{'CYCLE p50':>11}{'p99':>9}{'max':>9} ms"
        f"{'MB':>7}{'victims':>9}"
    )
    for part in ("a", "b"):
        for size, figures in result.get(part, {}).items():
            cycle = figures["cycle"]
            yield (
                f"{NAMES[part] + ', ' + size:<28}{figures['decisions']:>10,}{figures['decisions_per_s']:>9,.0f}"
                f"{1e6 / figures['decisions_per_s']:>9,.0f}"
                f"{1e6 * figures['cpu_s'] / figures['decisions']:>8,.0f}{cycle['p50_ms']:>11.1f}{cycle['p99_ms']:>9.1f}"
                f"{cycle['max_ms']:>9.1f}   {figures['peak_mb']:>7.0f}{figures['preemptions']:>9,}"
            )
        if part in result:
            ratio = result[part]["quarter"]["decisions_per_s"] / result[part]["whole"]["decisions_per_s"]
            yield f"{'':<28}a decision costs {ratio:.2f} x from a quarter to the whole"
    yield ""


def _standing(sizes: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{'':<28}{'NODES':>7}{'WAITING':>9}{'HOLDING':>9}"
        f"{'CYCLE p50':>11}{'p99':>9}{'max':>9}{'cpu p99':>9} ms{'MB':>7}"
    )
    for size, figures in sizes.items():
        for kind, name in (("unchanged", "no change"), ("changed", "100 changes")):
            cycle = figures[kind]
            yield (
                f"{f'(c) {name}, {size}':<28}{figures['nodes']:>7,}{figures['waiting']:>9,}{figures['holding']:>9,}"
                f"{cycle['p50_ms']:>11.1f}{cycle['p99_ms']:>9.1f}{cycle['max_ms']:>9.1f}{cycle['cpu_p99_ms']:>9.1f}"
                f"   {figures['peak_mb']:>7.0f}"
            )
        fill = figures["fill"]
        yield f"{'':<28}filled by {fill['decisions']:,} decisions in {fill['seconds']:.1f} s"
    for kind, name in (("unchanged", "no change"), ("changed", "100 changes")):
        ratio = sizes["whole"][kind]["p50_ms"] / sizes["quarter"][kind]["p50_ms"]
        yield f"{'':<28}{name}: p50 grows {ratio:.2f} x from a quarter to the whole"
    yield ""


def _aims(result: dict[str, Any]) -> Iterator[str]:
    whole = {part: sizes["whole"] for part, sizes in result.items() if part != "machine"}
    if "a" in whole:
        yield _aim(whole["a"]["decisions_per_s"], AIM_A_PER_S, "(a) decisions/s, durable", least=True)
    if "b" in whole:
        yield _aim(whole["b"]["decisions_per_s"], AIM_B_PER_S, "(b) decisions/s, durable", least=True)
    if "a" in whole and "b" in whole:
        ratio = whole["a"]["decisions_per_s"] / whole["b"]["decisions_per_s"]
        yield _aim(ratio, AIM_B_TO_A, "(b) cost of a decision, in those of (a)")
    if "c" in whole:
        yield _aim(whole["c"]["unchanged"]["p99_ms"], AIM_REST_MS, "(c) p99 of a cycle with no change, ms")
        yield _aim(whole["c"]["changed"]["p99_ms"], AIM_CHANGED_MS, "(c) p99 of a cycle with 100 changes, ms")
        yield _aim(whole["c"]["peak_mb"], AIM_MB, "(c) peak memory, MB")


def _aim(figure: float, aim: float, what: str, *, least: bool = False) -> str:
    met = figure >= aim if least else figure <= aim
    return f"{'met    ' if met else 'NOT MET'}  {what}: {figure:,.2f}, aim at {'least' if least else 'most'} {aim:,}"
