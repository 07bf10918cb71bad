"""A plain kubeconfig read without the official client, whose import alone costs a command 0.8 s of CPU.

Plain: one file, a client certificate or a token, a CA or none. What has anything else in it (exec plugins, auth
providers, a proxy, several files) is left to the official client: `read` returns None, it never guesses.
"""

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import urllib3
import yaml

from bridge.errors import InvalidInputError, UnknownStateError
from bridge.kube.transport import Transport, socket_options

_CLUSTER: Final = frozenset(
    {"server", "certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify", "extensions"}
)
_USER: Final = frozenset(
    {
        "client-certificate", "client-certificate-data", "client-key", "client-key-data", "token", "tokenFile",
        "extensions",
    }
)  # fmt: skip


def path(environment: Mapping[str, str]) -> Path | None:
    """Return the one kubeconfig that the environment names; None when there are several or none."""
    named = environment.get("KUBECONFIG", "")
    if os.pathsep in named.strip(os.pathsep):
        return None
    if named.strip(os.pathsep):
        return Path(named.strip(os.pathsep))
    home = environment.get("HOME", "")
    return Path(home) / ".kube" / "config" if home else None


def read(file: Path, *, connections: int) -> Transport | None:
    """Return the way to the current context's cluster; None when the file is not plain, or is not there.

    A certificate or key that does not load raises InvalidInputError.
    """
    try:
        document = yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - safe
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None  # the official client tells what is wrong with it
    chosen = _named(document, "contexts", "context", _text(document, "current-context"))
    cluster = _named(document, "clusters", "cluster", _text(chosen, "cluster"))
    user = _named(document, "users", "user", _text(chosen, "user"))
    if not (chosen and cluster and user and cluster.keys() <= _CLUSTER and user.keys() <= _USER):
        return None
    server = _text(cluster, "server")
    if not server.startswith("https://"):
        return None
    try:
        context = _tls(cluster, user, file.parent)
    except (OSError, ssl.SSLError, binascii.Error, ValueError) as error:
        raise InvalidInputError(f"kubeconfig {file}: its certificates do not load ({error}); get a new one") from error
    pool = urllib3.PoolManager(maxsize=connections, ssl_context=context, socket_options=socket_options())
    return Transport(server, pool, lambda: _credentials(user, file.parent))


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    authority = _content(cluster, "certificate-authority", folder)
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify") is True:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = (_content(user, name, folder) for name in ("client-certificate", "client-key"))
    if certificate and key:
        with tempfile.NamedTemporaryFile() as both:  # the ssl module takes files only; this one is ours alone
            both.write(certificate + b"\n" + key)
            both.flush()
            context.load_cert_chain(both.name)
    return context


def _credentials(user: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Return the header of a token; a token's file is read each time, for it may be renewed."""
    token = _text(user, "token")
    if named := _text(user, "tokenFile"):
        try:
            token = (folder / named).read_text().strip()
        except OSError as error:
            raise UnknownStateError(f"no token: {error}") from error
    return {"authorization": f"Bearer {token}"} if token else {}


def _content(record: Mapping[str, Any], name: str, folder: Path) -> bytes:
    """Return what stands in the file itself, else in the file it names, relative to its own folder."""
    if data := _text(record, f"{name}-data"):
        return base64.b64decode(data, validate=True)
    named = _text(record, name)
    return (folder / named).read_bytes() if named else b""


def _named(document: object, plural: str, singular: str, name: str) -> dict[str, Any]:
    entries = document.get(plural) if isinstance(document, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(singular), dict):
            found: dict[str, Any] = entry[singular]
            return found
    return {}


def _text(record: object, name: str) -> str:
    value = record.get(name) if isinstance(record, dict) else None
    return value if isinstance(value, str) else ""
