"""The login pod as a person enters it."""

from tests.e2e import kube


def test_a_login_shell_knows_sbridge_and_where_the_bridge_is() -> None:
    """`su - alice` begins with a clean environment: sbridge works there all the same, as alice."""
    told = kube.kubectl("-n", "slurm", "exec", "deploy/login", "--", "su", "-", "alice", "-c", "sbridge quota")
    assert "vision" in told
