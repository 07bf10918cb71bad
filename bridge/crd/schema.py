"""From a pydantic model to the structural OpenAPI schema that a CustomResourceDefinition wants.

Structural means: no $ref, no anyOf with null, no `additionalProperties: false`, no titles. Unknown fields are
refused by the API server's strict field validation (kubectl's default) and by our own parser.
"""

from typing import Any

from bridge.crd.model import Definition, Model, rules

Schema = dict[str, Any]

# Keywords that may pass as they are; any other belongs to a model that this translation does not know.
_KEPT = frozenset(
    {"type", "enum", "pattern", "format", "minimum", "maximum", "minLength", "maxLength",
     "minItems", "maxItems", "minProperties", "maxProperties", "required", "x-kubernetes-validations",
     "x-kubernetes-list-type", "x-kubernetes-list-map-keys"}
)  # fmt: skip
_DROPPED = frozenset({"title", "$defs"})


def of_model(model: type[Model]) -> Schema:
    """Return the structural schema of one model."""
    whole = model.model_json_schema(by_alias=True)
    return _structural(whole, whole.get("$defs", {}))


def of_definition(definition: Definition) -> Schema:
    """Return the schema of the whole object: its frame, spec and status."""
    result: Schema = {
        "type": "object",
        "description": (definition.spec.__doc__ or "").strip(),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": of_model(definition.spec),
            "status": of_model(definition.status),
        },
    }
    if definition.rules:
        result |= rules(*definition.rules)
    return result


def _structural(node: Schema, definitions: dict[str, Schema]) -> Schema:
    merged = _resolved(node, definitions)
    result: Schema = {}
    for keyword, value in merged.items():
        if keyword not in _DROPPED and not (keyword == "additionalProperties" and value is False):
            result[keyword] = _value(keyword, value, definitions)
    if result.get("type") == "integer":
        result["format"] = "int64"
    first = [key for key in ("description", "type", "default") if key in result]
    return {key: result[key] for key in [*first, *(key for key in result if key not in first)]}


def _value(keyword: str, value: Any, definitions: dict[str, Schema]) -> Any:
    match keyword:
        case "properties":
            return {name: _structural(child, definitions) for name, child in value.items()}
        case "items" | "additionalProperties":
            return _structural(value, definitions)
        case "description":
            return " ".join(value.split())
        case "default":
            return _without_null(value)
        case _ if keyword in _KEPT:
            return value
        case _:
            raise TypeError(f"schema keyword {keyword!r} has no structural form; write the model without it")


def _without_null(value: Any) -> Any:
    """Leave absent fields out of a default: in Kubernetes null is not a value of a string."""
    if isinstance(value, dict):
        return {key: _without_null(child) for key, child in value.items() if child is not None}
    return value


def _resolved(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """Inline a $ref and unwrap `X | None`; what stands beside the reference (description, default) wins."""
    own = dict(node)
    if "anyOf" in own:
        options = [option for option in own.pop("anyOf") if option.get("type") != "null"]
        if len(options) != 1:
            raise TypeError("a union of types has no structural form; use one type, or X | None")
        own = {**options[0], **own}
        if own.get("default", ...) is None:
            del own["default"]
    if "$ref" in own:
        target = definitions[own.pop("$ref").rpartition("/")[2]]
        return {**_resolved(target, definitions), **own}
    return own
