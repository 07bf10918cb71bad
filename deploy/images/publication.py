"""Pushes built images to a registry, skipping those that it has."""

import http.client
from urllib.parse import urlsplit

from deploy.images import catalog, engine

MANIFEST_TYPES = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"
TIMEOUT_S = 10


def push(names: list[str], prefix: str) -> None:
    """Tag each image as PREFIX/NAME:TAG and push it where the registry does not have that tag."""
    for name in names:
        target = f"{prefix}/{name}:{catalog.tag(name)}"
        if _is_plain_local(prefix) and _has(prefix, name):
            continue
        with engine.step(f"push {name}"):
            engine.run(["docker", "tag", catalog.IMAGES[name].local, target], name)
            engine.run(["docker", "push", target], name)


def _is_plain_local(prefix: str) -> bool:
    # Docker itself talks plain HTTP to these hosts only; elsewhere a push of known layers is quick enough.
    return urlsplit(f"//{prefix}").hostname in {"localhost", "127.0.0.1"}


def _has(prefix: str, name: str) -> bool:
    place = urlsplit(f"//{prefix}")
    connection = http.client.HTTPConnection(place.netloc, timeout=TIMEOUT_S)
    try:
        path = f"/v2{place.path}/{name}/manifests/{catalog.tag(name)}"
        connection.request("HEAD", path, headers={"Accept": MANIFEST_TYPES})
        return connection.getresponse().status == http.client.OK
    except OSError as error:
        raise engine.StepError(f"the registry of --prefix {prefix} does not answer: {error}") from error
    finally:
        connection.close()
