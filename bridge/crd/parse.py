"""From an object of the API server to its model, or one sentence about what is wrong with it."""

from typing import Any, TypeVar

from pydantic import ValidationError

from bridge.crd.flavor import Flavor
from bridge.crd.model import Model
from bridge.crd.nodeset import NodeSet
from bridge.crd.slurmcluster import SlurmCluster
from bridge.crd.team import Team
from bridge.errors import InvalidInputError

Object = dict[str, Any]
AnyModel = TypeVar("AnyModel", bound=Model)

_WAYS_OUT = {
    "extra_forbidden": "there is no such field; remove it or correct its name",
    "missing": "it is required; add it",
}


def flavor(obj: Object) -> Flavor:
    """Read a Flavor; InvalidInputError names the first bad field."""
    return _read(Flavor, obj)


def team(obj: Object) -> Team:
    """Read a Team; InvalidInputError names the first bad field."""
    return _read(Team, obj)


def cluster(obj: Object) -> SlurmCluster:
    """Read a SlurmCluster; InvalidInputError names the first bad field."""
    return _read(SlurmCluster, obj)


def nodeset(obj: Object) -> NodeSet:
    """Read a NodeSet; InvalidInputError names the first bad field."""
    return _read(NodeSet, obj)


def _read(model: type[AnyModel], obj: Object) -> AnyModel:
    """Validate what people wrote (spec); status is ours and is not read back."""
    body = {"metadata": obj.get("metadata") or {}, "spec": obj.get("spec") or {}}
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise InvalidInputError(f"{model.__name__} {_named(body['metadata'])}: {_sentence(error)}") from error


def _named(metadata: Object) -> str:
    parts = [metadata.get("namespace"), metadata.get("name") or "(unnamed)"]
    return "/".join(str(part) for part in parts if part)


def _sentence(error: ValidationError) -> str:
    """Tell the first problem; one at a time is what a person can act on."""
    first = error.errors(include_url=False)[0]
    where, kind = _path(first["loc"]), first["type"]
    if kind == "missing":
        return f"{where} is missing: {_WAYS_OUT[kind]}"
    if kind == "extra_forbidden":
        return f"{where}={first['input']!r}: {_WAYS_OUT[kind]}"
    if kind == "value_error":
        return f"{where}: {first['ctx']['error']}"
    told = first["msg"][:1].lower() + first["msg"][1:]
    for words, sign in (("greater than or equal to", ">="), ("less than or equal to", "<=")):
        told = told.replace(words, sign)
    return f"{where}={first['input']!r} is not valid: {told}; correct it"


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")
