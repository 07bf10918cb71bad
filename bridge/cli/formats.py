"""How spans, times and amounts read. Pure."""

from datetime import UTC, datetime, tzinfo

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
PRECISE_BELOW_S = 10
GPU_MS_PER_HOUR = 3_600_000


def span(seconds: float) -> str:
    """Two units at most: "0.4s", "42s", "4m10s", "1h07m", "3d02h"."""
    if seconds < PRECISE_BELOW_S:
        return f"{max(seconds, 0):.1f}s"
    whole = int(seconds)
    if whole < MINUTE_S:
        return f"{whole}s"
    if whole < HOUR_S:
        return f"{whole // MINUTE_S}m{whole % MINUTE_S:02}s"
    if whole < DAY_S:
        return f"{whole // HOUR_S}h{whole % HOUR_S // MINUTE_S:02}m"
    return f"{whole // DAY_S}d{whole % DAY_S // HOUR_S:02}h"


def moment(at_ms: int, *, now_ms: int, zone: tzinfo | None = None) -> str:
    """Clock time to the millisecond, in local time; with its date when that is not today."""
    at = datetime.fromtimestamp(at_ms / 1000, zone).astimezone(zone)
    clock = f"{at:%H:%M:%S}.{at_ms % 1000:03}"
    today = datetime.fromtimestamp(now_ms / 1000, zone).astimezone(zone).date()
    return clock if at.date() == today else f"{at:%Y-%m-%d} {clock}"


def utc(at_ms: int) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    at = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03}Z"


def day(at_ms: int) -> str:
    """Read a moment in UTC to the minute, as a day alone at midnight."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%Y-%m-%d}" if (at.hour, at.minute) == (0, 0) else f"{at:%Y-%m-%d %H:%M}"


def gpu_hours(gpu_ms: int) -> str:
    """GPU-hours with three decimals; JSON output has the exact milliseconds."""
    return f"{gpu_ms / GPU_MS_PER_HOUR:,.3f}"


def ordinal(number: int) -> str:
    """Read as "1st", "2nd", "11th"."""
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def request(gpus: int, nodes: int, flavor: str) -> str:
    """Read as "4 h100", or "2x8 h100" for a gang of equal parts; "-" where neither is known."""
    if not flavor:
        return str(gpus) if gpus else "-"
    if nodes > 1 and gpus % nodes == 0:
        return f"{nodes}x{gpus // nodes} {flavor}"
    return f"{gpus} {flavor}"


def person(user: str) -> str:
    """Shorten a controller's account ("system:serviceaccount:kube-system:job-controller") to what it controls."""
    return user.rpartition(":")[2].removesuffix("-controller") if user.startswith("system:serviceaccount:") else user


def printable(text: str) -> str:
    """Replace control characters: a job's name must not drive the reader's terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
