"""A mutation: one rule broken on purpose, in the source of one module, as Python imports it. No file is changed."""

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Mutation:
    """Break `rule` by replacing `old`, which stands in the module exactly once, with `new`; and `also` likewise.

    `why` says what the broken product does. The rule's tests must fail, or one of `tests`.
    """

    name: str
    rule: str
    module: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...] = ()
    also: tuple[tuple[str, str], ...] = ()

    @property
    def path(self) -> Path:
        """Return the module's file."""
        return ROOT.joinpath(*self.module.split(".")).with_suffix(".py")

    def applied(self, source: str) -> str:
        """Return the broken source; ValueError when the catalog does not know this source any more."""
        for old, new in ((self.old, self.new), *self.also):
            found = source.count(old)
            if found != 1:
                raise ValueError(f"mutation {self.name}: {old!r} stands {found} times in {self.module}, not once")
            source = source.replace(old, new)
        return source


class _Loader(SourceFileLoader):
    """Loads one module with the mutation in it; compiled files are neither read nor written."""

    def __init__(self, mutation: Mutation) -> None:
        super().__init__(mutation.module, str(mutation.path))
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        source = self._mutation.applied(self._mutation.path.read_text(encoding="utf-8"))
        code = compile(source, str(self._mutation.path), "exec", dont_inherit=True)
        assert fullname == self._mutation.module
        return code


class Finder(PathFinder):
    """Stands before Python's own finders for one module."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(  # type: ignore[override]
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != self._mutation.module:
            return None
        return importlib.util.spec_from_file_location(fullname, self._mutation.path, loader=_Loader(self._mutation))


def install(mutation: Mutation) -> None:
    """Break the product for the rest of this process; the module must not be imported yet."""
    if mutation.module in sys.modules:
        raise RuntimeError(f"mutation {mutation.name}: {mutation.module} is imported already")
    sys.meta_path.insert(0, Finder(mutation))
