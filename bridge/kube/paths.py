"""Paths of the API: resources, subresources, queries."""

from urllib.parse import quote, urlencode

from bridge.errors import InvalidInputError
from bridge.kube.port import Kind


def collection(kind: Kind, namespace: str | None) -> str:
    """Return the path of a kind's collection; namespace None is all namespaces."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if namespace is not None and kind.namespaced:
        root += f"/namespaces/{_segment(namespace)}"
    return f"{root}/{kind.plural}"


def one(kind: Kind, name: str, namespace: str | None, subresource: str = "") -> str:
    """Return the path of one object. A namespaced kind needs its namespace here."""
    if kind.namespaced and not namespace:
        raise InvalidInputError(f"{kind.kind} {name!r} is in a namespace: name it")
    path = f"{collection(kind, namespace)}/{_segment(name)}"
    return f"{path}/{subresource}" if subresource else path


def with_query(path: str, **query: str | int | bool | None) -> str:
    """Append what is set."""
    told = {k: str(v).lower() if isinstance(v, bool) else v for k, v in query.items() if v not in (None, "")}
    return f"{path}?{urlencode(told)}" if told else path


def _segment(name: str) -> str:
    if not name or name in (".", "..") or "/" in name:
        raise InvalidInputError(f"{name!r} is no name of an object")
    return quote(name, safe="")
