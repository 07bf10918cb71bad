"""The sandbox's rendered parts: certificates, node files, layout; and the images' tags."""

import ipaddress
import json
import shlex
from pathlib import Path

import pytest
from cryptography import x509

from deploy.images import catalog
from deploy.sandbox import layout, node_files, pki

ADDRESSES = layout.Addresses("172.30.0.0/24")


def rendered(node: layout.Node) -> dict[str, str]:
    return node_files.render(node, ADDRESSES, "localhost:5000/x/pause:1", memory_mib=24000)


def command(files: dict[str, str], service: str) -> list[str]:
    return shlex.split(files[f"services/{service}"].splitlines()[1].removeprefix("exec "))


def test_no_two_parts_of_the_sandbox_share_an_address_or_a_pod_subnet() -> None:
    hosts = [ADDRESSES.registry, *(ADDRESSES.node(node) for node in layout.NODES)]
    assert len(set(hosts)) == len(hosts)
    subnets = [ipaddress.IPv4Network(node.pod_subnet) for node in layout.NODES]
    assert len(set(subnets)) == len(subnets)
    assert all(subnet.subnet_of(ipaddress.IPv4Network(layout.POD_NETWORK)) for subnet in subnets)


def test_only_the_control_node_runs_a_control_plane() -> None:
    for node in layout.NODES:
        assert ("services/20-kube-apiserver" in rendered(node)) is node.is_control


def test_nobody_anonymous_gets_in() -> None:
    control = rendered(layout.CONTROL)
    assert "--anonymous-auth=false" in command(control, "20-kube-apiserver")
    assert "--authorization-mode=Node,RBAC" in command(control, "20-kube-apiserver")
    kubelet = json.loads(control["kubelet.yaml"])
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}
    assert kubelet["authorization"] == {"mode": "Webhook"}


def test_the_nodes_together_promise_no_more_memory_than_the_machine_has() -> None:
    offered = 0
    for node in layout.NODES:
        reserved = json.loads(rendered(node)["kubelet.yaml"])["systemReserved"]["memory"]
        offered += 24000 - int(reserved.removesuffix("Mi"))
    assert offered <= 24000


def test_a_gpu_node_registers_with_its_product_and_the_control_node_with_none() -> None:
    g1 = next(node for node in layout.NODES if node.name == "g1")
    assert "--node-labels=nvidia.com/gpu.product=H100" in command(rendered(g1), "60-kubelet")
    assert not any("node-labels" in flag for flag in command(rendered(layout.CONTROL), "60-kubelet"))


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(layout, "PKI_DIR", tmp_path / "pki")
    monkeypatch.setattr(layout, "KUBECONFIG", tmp_path / "kubeconfig")
    pki.ensure(ADDRESSES)
    return tmp_path


def test_private_keys_are_readable_by_their_owner_only(keys: Path) -> None:
    secret = [*keys.rglob("*.key"), *keys.rglob("*.kubeconfig"), keys / "kubeconfig"]
    assert len(secret) > 10
    assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}


def test_every_certificate_is_signed_by_the_sandbox_s_own_authority(keys: Path) -> None:
    authority = x509.load_pem_x509_certificate((keys / "pki/control-plane/ca.crt").read_bytes())
    leaves = [path for path in keys.rglob("*.crt") if path.name != "ca.crt"]
    assert leaves
    for path in leaves:
        x509.load_pem_x509_certificate(path.read_bytes()).verify_directly_issued_by(authority)


def test_a_kubelet_is_known_as_its_node_and_serves_under_its_address(keys: Path) -> None:
    certificate = x509.load_pem_x509_certificate((keys / "pki/g1/kubelet.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert ipaddress.ip_address("172.30.0.11") in names.get_values_for_type(x509.IPAddress)
    assert "CN=system:node:g1" in certificate.subject.rfc4514_string()


def test_keys_are_made_once(keys: Path) -> None:
    before = (keys / "kubeconfig").read_bytes()
    pki.ensure(ADDRESSES)
    assert (keys / "kubeconfig").read_bytes() == before


def test_an_image_s_tag_follows_its_parent_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BASE_IMAGE", raising=False)
    catalog.tag.cache_clear()
    before = catalog.tag("slurm"), catalog.tag("pause")
    monkeypatch.setenv("BASE_IMAGE", "debian:forky-slim")
    catalog.tag.cache_clear()
    after = catalog.tag("slurm"), catalog.tag("pause")
    catalog.tag.cache_clear()
    assert before[0] != after[0]
    assert before[1] == after[1], "pause stands on nothing"


def test_every_image_has_a_dockerfile_among_its_inputs() -> None:
    for image in catalog.IMAGES.values():
        assert image.directory / "Dockerfile" in catalog.files(image)
