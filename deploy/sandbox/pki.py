"""The sandbox's certificate authority and everything it signs: made once, private keys readable by their owner only."""

import base64
import datetime as dt
import ipaddress
import json
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from deploy.sandbox import layout

VALID_DAYS = 365
API_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")


def ensure(addresses: layout.Addresses) -> None:
    """Make keys, certificates and kubeconfigs under .build/sandbox/pki, unless they are there."""
    complete = layout.PKI_DIR / ".complete"
    if complete.exists():
        return
    layout.PKI_DIR.mkdir(parents=True, exist_ok=True)
    layout.PKI_DIR.chmod(0o700)
    authority = Authority()
    _control_plane(authority, addresses)
    for node in layout.NODES:
        _node(authority, node, addresses)
    admin = authority.kubeconfig("admin", ("system:masters",), addresses.api_url)
    _write(layout.KUBECONFIG, admin)
    complete.touch()


def _control_plane(authority: "Authority", addresses: layout.Addresses) -> None:
    folder = layout.PKI_DIR / "control-plane"
    local = f"https://127.0.0.1:{layout.API_PORT}"
    address = addresses.node(layout.CONTROL)
    names = (*API_NAMES, f"kubernetes.default.svc.{layout.CLUSTER_DOMAIN}", "localhost", layout.CONTROL.container)
    authority.pair(folder / "apiserver", "kube-apiserver", sans=(*names, "127.0.0.1", layout.API_SERVICE_IP, address))
    authority.pair(folder / "kubelet-client", "kube-apiserver-kubelet-client")
    _write(folder / "ca.crt", authority.certificate_pem, 0o644)
    _write(folder / "ca.key", _key_pem(authority.key))
    service_accounts = rsa.generate_private_key(65537, 2048)
    _write(folder / "sa.key", _key_pem(service_accounts))
    public = service_accounts.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(folder / "sa.pub", public, 0o644)
    for component in ("kube-controller-manager", "kube-scheduler"):
        _write(folder / f"{component}.kubeconfig", authority.kubeconfig(f"system:{component}", (), local))


def _node(authority: "Authority", node: layout.Node, addresses: layout.Addresses) -> None:
    folder = layout.PKI_DIR / node.name
    user, group = f"system:node:{node.name}", ("system:nodes",)
    authority.pair(folder / "kubelet", user, group, sans=(node.name, node.container, addresses.node(node)))
    _write(folder / "ca.crt", authority.certificate_pem, 0o644)
    _write(folder / "kubelet.kubeconfig", authority.kubeconfig(user, group, addresses.api_url))
    _write(folder / "kube-proxy.kubeconfig", authority.kubeconfig("system:kube-proxy", (), addresses.api_url))


class Authority:
    """A certificate authority that lives as long as this run; its key is kept for the controller-manager alone."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("slurm-bridge-sandbox-ca")
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=True, path_length=None), True),
            (_key_usage(signs_certificates=True), True),
            (x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), False),
        ]
        self.certificate_pem = self._sign(self._name, self.key.public_key(), extensions)

    def pair(self, path: Path, user: str, groups: tuple[str, ...] = (), sans: tuple[str, ...] = ()) -> None:
        """Write PATH.crt and PATH.key: for a server when it has names, else for a client."""
        certificate, key = self.leaf(user, groups, sans)
        _write(path.with_name(f"{path.name}.crt"), certificate, 0o644)
        _write(path.with_name(f"{path.name}.key"), key)

    def leaf(self, user: str, groups: tuple[str, ...], sans: tuple[str, ...] = ()) -> tuple[bytes, bytes]:
        """Return a certificate and its key, both as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if sans else ExtendedKeyUsageOID.CLIENT_AUTH
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_key_usage(signs_certificates=False), True),
            (x509.ExtendedKeyUsage([usage]), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False),
        ]
        if sans:
            extensions.append((x509.SubjectAlternativeName([_general_name(san) for san in sans]), False))
        return self._sign(_name(user, groups), key.public_key(), extensions), _key_pem(key)

    def kubeconfig(self, user: str, groups: tuple[str, ...], server: str) -> bytes:
        """Return a kubeconfig (JSON is YAML) with a client certificate of this user."""
        certificate, key = self.leaf(user, groups)
        cluster = {"server": server, "certificate-authority-data": _base64(self.certificate_pem)}
        credentials = {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": layout.CONTEXT, "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": layout.CONTEXT, "context": {"cluster": layout.CONTEXT, "user": user}}],
            "current-context": layout.CONTEXT,
        }
        return json.dumps(document, indent=1).encode()

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, extensions: list[tuple[x509.ExtensionType, bool]]
    ) -> bytes:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + dt.timedelta(days=VALID_DAYS))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _name(user: str, groups: tuple[str, ...] = ()) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _general_name(san: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(san))
    except ValueError:
        return x509.DNSName(san)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: PrivateKeyTypes) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _write(path: Path, content: bytes, mode: int = 0o600) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=mode)
    path.chmod(mode)
    path.write_bytes(content)
