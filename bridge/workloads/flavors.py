"""Flavors as the translation needs them: from a gres type or a pod's resource to a flavor's name, and back."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bridge.quota.model import FlavorName


@dataclass(frozen=True, slots=True)
class FlavorSpec:
    """One kind of GPU: `resource` on nodes carrying `node_selector` = Slurm's `gpu:<gres_type>`."""

    name: FlavorName
    resource: str
    node_selector: Mapping[str, str]
    gres_type: str
    default: bool = False


@dataclass(frozen=True, slots=True)
class Flavors:
    """All flavors of the platform."""

    specs: tuple[FlavorSpec, ...]

    @classmethod
    def of(cls, specs: Iterable[FlavorSpec]) -> "Flavors":
        """Sort by name so that every answer is deterministic."""
        return cls(tuple(sorted(specs, key=lambda spec: spec.name)))

    @property
    def names(self) -> frozenset[FlavorName]:
        """Every flavor's name."""
        return frozenset(spec.name for spec in self.specs)

    @property
    def resources(self) -> frozenset[str]:
        """Every extended resource that some flavor counts."""
        return frozenset(spec.resource for spec in self.specs)

    def named(self, name: FlavorName) -> FlavorSpec | None:
        """Look a flavor up by its name."""
        return next((spec for spec in self.specs if spec.name == name), None)

    def for_gres(self, gres_type: str) -> FlavorSpec | None:
        """Return the flavor of `gpu:<gres_type>`; the default flavor for an untyped request ("")."""
        if not gres_type:
            return self._default(self.specs)
        return next((spec for spec in self.specs if spec.gres_type == gres_type), None)

    def for_node(self, labels: Mapping[str, str]) -> FlavorSpec | None:
        """Return the flavor whose selector the node's labels match (the most specific one)."""
        matching = [spec for spec in self.specs if _matches(spec.node_selector, labels)]
        return max(matching, key=lambda spec: (len(spec.node_selector), spec.name), default=None)

    def for_pod(self, resource: str, node_selector: Mapping[str, str]) -> FlavorSpec | None:
        """Return the flavor that a pod means: one that its own selector names, else the default of its resource."""
        of_resource = [spec for spec in self.specs if spec.resource == resource]
        named = [spec for spec in of_resource if _names(node_selector, spec.node_selector)]
        if named:
            return named[0]
        compatible = [spec for spec in of_resource if not _contradicts(node_selector, spec.node_selector)]
        return self._default(compatible)

    @staticmethod
    def _default(specs: Iterable[FlavorSpec]) -> FlavorSpec | None:
        ordered = list(specs)
        chosen = [spec for spec in ordered if spec.default]
        if chosen:
            return chosen[0]
        return ordered[0] if len(ordered) == 1 else None


def _matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def _names(own: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    return bool(selector) and _matches(selector, own)


def _contradicts(own: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    return any(key in own and own[key] != value for key, value in selector.items())
