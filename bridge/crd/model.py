"""What the four kinds share: strict camelCase models, metadata, conditions, and the frame of a definition."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from bridge import wellknown

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"

Name = Annotated[str, Field(pattern=NAME_PATTERN, min_length=1, max_length=63)]
"""An object's or a flavor's name: it goes into label values, so it is one DNS label."""

Amount = Annotated[int, Field(ge=0, le=1_000_000)]
"""Whole devices."""

Quantity = Annotated[str, Field(pattern=QUANTITY_PATTERN, max_length=32)]
"""A Kubernetes quantity, always written as a string."""

Labels = Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=16)]
"""Node labels that must all match."""


class Model(BaseModel):
    """A value that people type: unknown fields are refused, names are camelCase, instances are frozen."""

    model_config = ConfigDict(
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        use_attribute_docstrings=True,
    )


class Metadata(BaseModel):
    """The part of metadata that the bridge reads; the rest is the API server's business."""

    model_config = ConfigDict(extra="ignore", alias_generator=to_camel, populate_by_name=True, frozen=True)

    name: str = Field(max_length=63)
    namespace: str = ""
    uid: str = ""
    generation: int = 0


class ConditionStatus(StrEnum):
    """Kubernetes' three-valued truth."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Model):
    """One fact about the object, as in every Kubernetes API."""

    type: str = Field(max_length=316)
    """What the condition is about, e.g. Ready."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: str = Field(max_length=1024)
    """One word for machines."""
    message: str = Field(default="", max_length=32768)
    """One sentence for people, with the numbers."""
    observed_generation: int = 0
    """Generation of the spec that this was seen with."""
    last_transition_time: str = Field(json_schema_extra={"format": "date-time"})
    """When `status` last changed (RFC 3339)."""


def keyed_by(key: str) -> dict[str, Any]:
    """Return the schema extension of a list whose entries are told apart by `key`, each value once."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


Conditions = Annotated[
    tuple[Condition, ...],
    Field(max_length=32, json_schema_extra=keyed_by("type")),
]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`. `wide` columns show with -o wide only."""

    name: str
    type: str
    path: str
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Definition:
    """Everything of a CustomResourceDefinition that is not in the models."""

    kind: str
    plural: str
    short: str
    namespaced: bool
    spec: type[Model]
    status: type[Model]
    columns: tuple[Column, ...]
    rules: "tuple[Rule, ...]" = ()  # over the whole object
    scale: tuple[str, str] | None = None  # (path of the wanted, of the actual number)

    @property
    def crd_name(self) -> str:
        """Name of the CustomResourceDefinition object."""
        return f"{self.plural}.{wellknown.GROUP}"


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL rule inside a schema: `json_schema_extra=rules(Rule(...), ...)`.

    `field` is the one to blame, for rules over several. The values cannot be told: the API server bounds the cost
    of a message by the longest number there could be.
    """

    rule: str
    message: str
    field: str = ""


def rules(*given: Rule) -> dict[str, Any]:
    """Return the schema extension that carries CEL rules."""
    return {
        "x-kubernetes-validations": [
            {"rule": r.rule, "message": r.message, **({"fieldPath": f".{r.field}"} if r.field else {})} for r in given
        ]
    }
