"""Error numbers to faults, and a session process that is lost or cannot start."""

import stat
from pathlib import Path

import pytest

from bridge.errors import BridgeError, NotFoundError, OutcomeUnknownError, RejectedError, UnknownStateError
from bridge.slurm import adapter, failures, signer
from bridge.slurm.adapter import PyslurmAdapter
from bridge.slurm.port import JobRef


class LibslurmError(Exception):
    """An exception with libslurm's error number."""

    def __init__(self, number: int) -> None:
        super().__init__("Some words of Slurm")
        self.errno = number


READS = [
    (2017, NotFoundError),
    (2018, NotFoundError),
    (2002, UnknownStateError),  # access denied to a read says nothing about the jobs
    (5004, UnknownStateError),
    (1800, UnknownStateError),
    (-1, UnknownStateError),
]
WRITES = [
    (2017, NotFoundError),
    (2002, RejectedError),
    (2014, RejectedError),
    (111, UnknownStateError),  # nobody listened, so nothing was sent
    (1001, UnknownStateError),
    (2027, UnknownStateError),  # standby
    (2037, UnknownStateError),  # reconfiguring
    (1802, OutcomeUnknownError),
    (5004, OutcomeUnknownError),
    (1000, OutcomeUnknownError),
    (-1, OutcomeUnknownError),
]


def failing(number: int) -> None:
    """Fail as libslurm does."""
    raise LibslurmError(number)


@pytest.mark.parametrize(("number", "fault"), READS)
def test_a_read_that_fails_is_unknown_unless_slurmctld_said_not_found(number: int, fault: type[BridgeError]) -> None:
    """N1."""
    with pytest.raises(fault, match=rf"Some words of Slurm \(error {number}\)"):
        failures.reading(lambda: failing(number))


@pytest.mark.parametrize(("number", "fault"), WRITES)
def test_a_write_that_fails_is_told_by_whether_it_may_have_been_done(number: int, fault: type[BridgeError]) -> None:
    with pytest.raises(fault, match=rf"error {number}"):
        failures.writing(lambda: failing(number))


def test_ending_what_has_ended_is_fine_and_nothing_else_is() -> None:
    failures.ending(lambda: failing(2021))
    with pytest.raises(OutcomeUnknownError):
        failures.ending(lambda: failing(5004))


def test_without_a_configuration_slurm_is_unknown(tmp_path: Path) -> None:
    with PyslurmAdapter(tmp_path / "slurm.conf") as slurm, pytest.raises(UnknownStateError, match="there is no"):
        slurm.jobs()


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Offer a configuration and a stand-in for sackd, which makes its socket and waits."""
    sackd = tmp_path / "sackd"
    sackd.write_text(
        "#!/usr/bin/env python3\n"
        "import os, socket, time\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.bind(os.environ['RUNTIME_DIRECTORY'] + '/sack.socket')\n"
        "time.sleep(60)\n"
    )
    sackd.chmod(sackd.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(signer, "SACKD", str(sackd))
    monkeypatch.setattr(signer, "RUN", str(tmp_path))
    (tmp_path / "slurm.conf").write_text("ClusterName=x\n")
    return tmp_path / "slurm.conf"


def session_that(conf: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let sessions run this instead of pyslurm; `connection` is theirs."""
    program = conf.parent / "session.py"
    program.write_text(
        "import os, sys, time\nfrom multiprocessing.connection import Connection\n"
        f"connection = Connection(int(sys.argv[1]))\n{code}\n"
    )
    monkeypatch.setattr(adapter, "SESSION", (str(program),))
    monkeypatch.setattr(adapter, "START_BOUND_S", 2.0)


def test_a_session_that_ends_in_a_read_is_unknown_and_in_a_write_of_unknown_outcome(
    conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When libslurm ends its process on a bad configuration, the bridge lives on and has its words."""
    session_that(conf, monkeypatch, "connection.recv(); print('fatal: bad configuration', flush=True); os._exit(1)")
    with PyslurmAdapter(conf) as slurm:
        with pytest.raises(UnknownStateError, match="fatal: bad configuration"):
            slurm.jobs()
        with pytest.raises(OutcomeUnknownError, match="fatal: bad configuration"):
            slurm.hold(JobRef(1, "k"))


def test_a_session_that_hangs_is_bounded_and_replaced(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hang_once = (
        "first = not os.path.exists(os.environ['SLURM_CONF'] + '.seen')\n"
        "open(os.environ['SLURM_CONF'] + '.seen', 'w').close()\n"
        "connection.recv()\n"
        "if first: time.sleep(60)\n"
        "connection.send(('ok', []))\n"
    )
    session_that(conf, monkeypatch, hang_once)
    monkeypatch.setattr(adapter, "START_BOUND_S", 1.0)
    with PyslurmAdapter(conf, read_bound_s=0.5) as slurm:
        with pytest.raises(UnknownStateError, match="did not answer jobs within"):
            slurm.jobs()
        assert slurm.jobs() == []


def test_a_fault_of_the_session_arrives_as_what_it_was(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session_that(conf, monkeypatch, "connection.recv(); connection.send(('RejectedError', 'no such account'))")
    with PyslurmAdapter(conf) as slurm, pytest.raises(RejectedError, match=r"^no such account$"):
        slurm.cancel(JobRef(1, "k"))


def test_our_own_slurm_variables_do_not_reach_the_session(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JWT", "stolen")
    monkeypatch.setenv("SBATCH_ACCOUNT", "other")
    names = "sorted(n for n in os.environ if n.startswith(('SLURM', 'SBATCH')))"
    session_that(conf, monkeypatch, f"connection.recv(); connection.send(('ok', {names}))")
    with PyslurmAdapter(conf) as slurm:
        assert list(map(str, slurm.jobs())) == ["SLURM_CONF", "SLURM_SACK_SOCKET"]


def test_a_sackd_that_does_not_start_says_why(conf: Path) -> None:
    Path(signer.SACKD).write_text("#!/bin/sh\necho 'fatal: no key here'\nexit 1\n")
    with PyslurmAdapter(conf) as slurm, pytest.raises(UnknownStateError, match="fatal: no key here"):
        slurm.ping()
