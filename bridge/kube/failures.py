"""What goes wrong around one call of the in-memory API server: being down, failures that tests ask for, the hook."""

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from bridge.errors import OutcomeUnknownError, UnknownStateError

Hook = Callable[[str], None]


@dataclass(slots=True)
class Failure:
    """The next `times` calls of a verb on a resource fail, before or after they took effect."""

    verb: str
    plural: str
    times: int
    applied: bool
    error: Exception | None


class Failures:
    """The failures to come, and what was written so far."""

    def __init__(self, hook: Hook | None) -> None:
        self.hook = hook or (lambda _site: None)
        self.down = False
        self.writes: list[str] = []
        self._pending: list[Failure] = []

    def add(self, failure: Failure) -> None:
        """Let the next matching calls fail."""
        self._pending.append(failure)

    def take(self, verb: str, plural: str) -> Failure | None:
        """Return the failure that this call must show, if any."""
        for failure in self._pending:
            if failure.verb == verb and failure.plural in ("", plural) and failure.times > 0:
                failure.times -= 1
                return failure
        return None

    def read(self, verb: str, plural: str) -> "Call":
        """Return the frame of a read."""
        return Call(self, verb, plural, "", write=False)

    def write(self, verb: str, plural: str, subresource: str = "") -> "Call":
        """Return the frame of a write."""
        return Call(self, verb, plural, subresource, write=True)


class Call:
    """Around one call: the hook, then what fails before it, the call, what fails after it, the hook."""

    def __init__(self, failures: Failures, verb: str, plural: str, subresource: str, *, write: bool) -> None:
        self._failures = failures
        self._site = f"kube.{verb}.{plural}" + (f"/{subresource}" if subresource else "")
        self._write = write
        self._failure = failures.take(verb, plural)

    def __enter__(self) -> None:
        if self._write:
            self._failures.hook(f"{self._site}.before")
        if self._failures.down:
            raise UnknownStateError("cannot connect to the fake: it is down")
        if self._failure is not None and not self._failure.applied:
            raise self._error(self._failure)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None or not self._write:
            return
        self._failures.writes.append(self._site.removeprefix("kube."))
        if self._failure is not None:
            raise self._error(self._failure)
        self._failures.hook(f"{self._site}.after")

    def _error(self, failure: Failure) -> Exception:
        return failure.error or (OutcomeUnknownError("lost") if self._write else UnknownStateError("lost"))
