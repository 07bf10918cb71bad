"""A plain kubeconfig without the official client: the same way in, and anything else left to it."""

import base64
import datetime as dt
import http.server
import ipaddress
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bridge.errors import InvalidInputError, UnknownStateError
from bridge.kube import kubeconfig


@dataclass(frozen=True)
class Pair:
    """A self-signed certificate for 127.0.0.1 and its key, as PEM."""

    certificate: bytes
    key: bytes


def pair() -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return Pair(made.public_bytes(serialization.Encoding.PEM), pem)


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with the Authorization it was given."""

    def do_GET(self) -> None:
        told = self.headers.get("Authorization", "none").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def own() -> Pair:
    return pair()


@pytest.fixture(scope="module")
def server(own: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve over TLS to those who show the very certificate."""
    folder = tmp_path_factory.mktemp("tls")
    (folder / "tls.pem").write_bytes(own.certificate + own.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=own.certificate.decode())
    context.load_cert_chain(folder / "tls.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    served = http.server.HTTPServer(("127.0.0.1", 0), Echo)
    served.socket = context.wrap_socket(served.socket, server_side=True)
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{served.server_address[1]}"
    served.shutdown()
    served.server_close()
    thread.join(timeout=10)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def written(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [{"name": "other", "context": {}}, {"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(document))
    return file


def test_certificates_in_the_file_open_the_way(server: str, own: Pair, tmp_path: Path) -> None:
    cluster = {"server": server, "certificate-authority-data": encoded(own.certificate)}
    user = {"client-certificate-data": encoded(own.certificate), "client-key-data": encoded(own.key)}
    way = kubeconfig.read(written(tmp_path, cluster, user), connections=1)
    assert way is not None
    assert way.send("GET", "/version").body == b"none"


def test_certificates_and_a_token_in_files_beside_it_open_the_way(server: str, own: Pair, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(own.certificate)
    (tmp_path / "key.pem").write_bytes(own.key)
    (tmp_path / "token").write_text("first\n")
    cluster = {"server": server, "certificate-authority": "ca.pem"}
    user = {"client-certificate": str(tmp_path / "ca.pem"), "client-key": "key.pem", "tokenFile": "token"}
    way = kubeconfig.read(written(tmp_path, cluster, user), connections=1)
    assert way is not None
    assert way.send("GET", "/").body == b"Bearer first"
    (tmp_path / "token").write_text("second")
    assert way.send("GET", "/").body == b"Bearer second"
    (tmp_path / "token").unlink()
    with pytest.raises(UnknownStateError, match="no token"):
        way.send("GET", "/")


def test_a_server_with_another_certificate_gets_nothing(server: str, own: Pair, tmp_path: Path) -> None:
    cluster = {"server": server, "certificate-authority-data": encoded(pair().certificate)}
    user = {"client-certificate-data": encoded(own.certificate), "client-key-data": encoded(own.key), "token": "t"}
    way = kubeconfig.read(written(tmp_path, cluster, user), connections=1)
    assert way is not None
    with pytest.raises(UnknownStateError, match="shows another certificate"):
        way.send("GET", "/")


SERVER = {"server": "https://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        (SERVER, {"exec": {"command": "aws"}}),
        (SERVER, {"token": "t", "as": "root"}),
        ({**SERVER, "proxy-url": "http://p"}, {"token": "t"}),
        ({**SERVER, "tls-server-name": "k"}, {"token": "t"}),
        ({"server": "http://127.0.0.1:1"}, {"token": "t"}),
        (SERVER, {}),
    ],
)
def test_what_is_not_plain_is_left_to_the_official_client(
    cluster: dict[str, Any], user: dict[str, Any], tmp_path: Path
) -> None:
    assert kubeconfig.read(written(tmp_path, cluster, user), connections=1) is None


@pytest.mark.parametrize("text", ["", "[1]", "current-context: {", "contexts: 3\ncurrent-context: one"])
def test_what_is_no_kubeconfig_is_left_to_the_official_client(text: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(text)
    assert kubeconfig.read(tmp_path / "config", connections=1) is None
    assert kubeconfig.read(tmp_path / "none", connections=1) is None


def test_a_broken_certificate_is_one_sentence(tmp_path: Path) -> None:
    file = written(tmp_path, {**SERVER, "certificate-authority-data": "%%%"}, {"token": "t"})
    with pytest.raises(InvalidInputError, match="its certificates do not load"):
        kubeconfig.read(file, connections=1)


def test_the_environment_names_one_file_or_none() -> None:
    assert kubeconfig.path({"KUBECONFIG": "/a/b"}) == Path("/a/b")
    assert kubeconfig.path({"KUBECONFIG": "/a:/b", "HOME": "/root"}) is None
    assert kubeconfig.path({"HOME": "/home/x"}) == Path("/home/x/.kube/config")
    assert kubeconfig.path({}) is None


def test_a_command_does_not_import_the_official_client(tmp_path: Path) -> None:
    file = written(tmp_path, SERVER, {"token": "t"})
    code = "import sys; from bridge.kube import tokens; tokens.proxy(); print('kubernetes' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"KUBECONFIG": str(file)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "False\n"
