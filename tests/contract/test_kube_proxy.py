"""The way through a real API server to a Service: what passes, what the backend says, what the API server refuses."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bridge.errors import NotFoundError, RejectedError, UnknownStateError
from bridge.kube import port
from bridge.kube.port import Gateway, Kind
from bridge.kube.tokens import ServiceProxy
from tests import kubebox
from tests.kubewait import wait

SLICES = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", namespaced=True)


class Backend(BaseHTTPRequestHandler):
    """Says back what it got; /absent is a problem of its own."""

    def do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        told = {"path": self.path, "method": self.command, "body": body, "headers": dict(self.headers)}
        content = json.dumps(told).encode()
        self.send_response(404 if self.path.startswith("/absent") else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do  # noqa: N815 -- the names that the library calls

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def proxy(kube_box: kubebox.KubeBox) -> Iterator[ServiceProxy]:
    """Yield a proxy to the Service n/web:8080, whose backend runs on this host."""
    server = ThreadingHTTPServer(("0.0.0.0", 0), Backend)  # noqa: S104 -- the container comes from outside
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    gateway = kube_box.gateway()
    gateway.create(port.NAMESPACES, {"metadata": {"name": "n"}})
    for name in ("web", "empty"):
        ports = [{"name": "http", "port": 8080, "targetPort": server.server_address[1]}]
        gateway.create(port.SERVICES, {"metadata": {"name": name}, "spec": {"ports": ports}}, namespace="n")
    backed(gateway, "web", kube_box.host_address(), server.server_address[1])
    made = ServiceProxy(kube_box.transport())
    try:
        wait("the backend is reached", lambda: reached(made))
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def backed(gateway: Gateway, name: str, address: str, number: int) -> None:
    """Say that a ready pod at this address is behind a Service: only to pods does the API server pass on."""
    pod = kubebox.pod(name)
    pod["spec"]["nodeName"] = "none"
    made = gateway.create(port.PODS, pod, namespace="n")
    status = {"phase": "Running", "podIPs": [{"ip": address}], "conditions": [{"type": "Ready", "status": "True"}]}
    gateway.patch(port.PODS, name, {"status": {"podIP": address, **status}}, namespace="n", subresource="status")
    target = {"kind": "Pod", "name": name, "namespace": "n", "uid": made["metadata"]["uid"]}
    endpoint = {"addresses": [address], "conditions": {"ready": True}, "targetRef": target}
    told = {"addressType": "IPv4", "endpoints": [endpoint], "ports": [{"name": "http", "port": number}]}
    meta = {"name": name, "labels": {"kubernetes.io/service-name": name}}
    gateway.create(SLICES, {"metadata": meta, **told}, namespace="n")


def reached(proxy: ServiceProxy) -> bool:
    try:
        return proxy.through_service("GET", "n/web:8080", "/", headers={}, body=None)[0] == 200
    except UnknownStateError:
        return False


def test_path_query_body_and_our_header_pass(proxy: ServiceProxy) -> None:
    headers = {"X-Slurmbridge-Token": "t", "Content-Type": "application/json"}
    status, body = proxy.through_service("POST", "n/web:8080", "/v1/x?a=1&a=2", headers=headers, body=b'{"b":1}')
    told = json.loads(body)
    assert (status, told["method"], told["path"], told["body"]) == (200, "POST", "/v1/x?a=1&a=2", '{"b":1}')
    assert told["headers"]["X-Slurmbridge-Token"] == "t"


def test_what_the_backend_refuses_is_its_own_answer(proxy: ServiceProxy) -> None:
    status, body = proxy.through_service("GET", "n/web:8080", "/absent", headers={}, body=None)
    assert status == 404
    assert json.loads(body)["path"] == "/absent"


def test_an_absent_service_is_not_found(proxy: ServiceProxy) -> None:
    with pytest.raises(NotFoundError, match="absent"):
        proxy.through_service("GET", "n/absent:8080", "/", headers={}, body=None)


def test_a_service_with_nobody_behind_it_is_unknown(proxy: ServiceProxy) -> None:
    with pytest.raises(UnknownStateError, match="no endpoints"):
        proxy.through_service("GET", "n/empty:8080", "/", headers={}, body=None)


@pytest.mark.usefixtures("proxy")
def test_who_may_not_use_it_is_refused(kube_box: kubebox.KubeBox) -> None:
    with pytest.raises(RejectedError, match="mallory"):
        ServiceProxy(kube_box.transport("mallory")).through_service("GET", "n/web:8080", "/", headers={}, body=None)
