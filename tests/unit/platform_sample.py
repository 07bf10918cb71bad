"""A small platform as the API would show it: two teams, three nodes, work of every state."""

from bridge.api.fake import FakeAuthenticator, FakeSource
from bridge.api.identity import Identity
from bridge.api.views import (
    Explain,
    Holder,
    Moment,
    NodeRow,
    Problem,
    QueueRow,
    QuotaRow,
    State,
    StatusView,
    SystemHealth,
)
from bridge.ledger.port import Entry, Usage
from bridge.quota.model import FlavorName, TeamName
from bridge.workloads.model import System, WorkloadId
from bridge.workloads.reasons import Reason

NOW_MS = 1_796_128_800_000
SLURM, KUBERNETES = System.SLURM, System.KUBERNETES
H100 = FlavorName("h100")

TRAIN = "slurm/main/k3f9x2m7q8w1z5b4"
SWEEP = "slurm/main/p0d8s7a6f5g4h3j2_4"
GANG = "slurm/main/q1w2e3r4t5y6u7i8"
SERVE = "pod/5f0c0a3e-6f0b-4f8f-9a55-0d3c6a1f7b11"
FINETUNE = "slurm/main/job-9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"
OLD = "slurm/main/o1l2d3o4l5d6o7l8"

ALICE = Identity(name="alice", slurm_user="alice", kubernetes_user="alice@example.org", teams=frozenset({"vision"}))
BOB = Identity(name="bob", slurm_user="bob", teams=frozenset({"nlp"}))
ADMIN = Identity(name="platform-admin", admin=True)
TOKENS = {"alice-token": ALICE, "bob-token": BOB, "admin-token": ADMIN}


def authenticator() -> FakeAuthenticator:
    """Tokens of alice (vision), bob (nlp) and an admin."""
    return FakeAuthenticator(TOKENS)


def source() -> FakeSource:
    """Return a fresh source; tests may change its lists."""
    return FakeSource(
        status_view=_status(),
        node_rows=_nodes(),
        quota_rows=_quota(),
        queue_rows=[_train(), _sweep(), _serve(), _finetune(), _gang(), _old()],
        explanations={TRAIN: _train_explained(), GANG: _gang_explained()},
        journal=_journal(),
        usage_rows=[
            Usage(TeamName("vision"), SLURM, H100, 7_200_000, "alice"),
            Usage(TeamName("vision"), KUBERNETES, H100, 1_800_500, "alice"),
            Usage(TeamName("nlp"), SLURM, H100, 900_000, "nora"),
        ],
    )


def _status() -> StatusView:
    return StatusView(
        version="0.1.0",
        leader="slurm-bridge-7c9d8b6f5-x2x9k",
        leading=True,
        epoch=3,
        cycles=41_203,
        last_cycle_ms=12,
        last_cycle_age_s=0.4,
        kubernetes=SystemHealth(name="kubernetes", ok=True, age_s=0.2, version="1.37.2"),
        slurm=(SystemHealth(name="main", ok=True, age_s=0.3, version="26.05.5"),),
        ledger_seq=7,
        problems=(
            Problem(about="node g3", text="device plugin advertises 3 GPUs, worker a100-g3 holds 4; it is drained"),
        ),
    )


def _nodes() -> list[NodeRow]:
    return [
        NodeRow(
            node="g1", flavor="h100", total=8, worker=8, pods=0, unmanaged=0, idle=0, unavailable=0,
            holders=(Holder(team="vision", system=SLURM, gpus=6, workloads=2),
                     Holder(team="nlp", system=SLURM, gpus=2, workloads=1)),
            slurm_node="h100-g1", slurm_state="MIXED+DYNAMIC_NORM",
        ),
        NodeRow(
            node="g2", flavor="h100", total=8, worker=0, pods=4, unmanaged=0, idle=4, unavailable=0,
            holders=(Holder(team="vision", system=KUBERNETES, gpus=4, workloads=2),),
        ),
        NodeRow(
            node="g3", flavor="a100", total=4, worker=3, pods=0, unmanaged=0, idle=0, unavailable=1,
            cause="device plugin reports 3 of 4", ready=False,
            slurm_node="a100-g3", slurm_state="IDLE+DRAIN",
            slurm_reason="bridge: device plugin reports 3 of 4 GPUs",
        ),
    ]  # fmt: skip


def _quota() -> list[QuotaRow]:
    return [
        QuotaRow(team="org", flavor="h100", guarantee=16, limit=None, used_slurm=0, used_kubernetes=0,
                 used_total=12, borrowed=0, available=4, pending=16),
        QuotaRow(team="vision", parent="org", flavor="h100", guarantee=8, limit=12, used_slurm=6,
                 used_kubernetes=4, used_total=10, borrowed=2, available=2, pending=16),
        QuotaRow(team="nlp", parent="org", flavor="h100", guarantee=8, limit=None, used_slurm=2,
                 used_kubernetes=0, used_total=2, borrowed=0, available=4, pending=0),
    ]  # fmt: skip


def _train() -> QueueRow:
    return QueueRow(
        id=TRAIN, name="train-resnet", user="alice", team="vision", system=SLURM, flavor="h100", gpus=4,
        state=State.RUNNING, submitted_ms=NOW_MS - 250_000, waited_s=1.2, started_ms=NOW_MS - 248_800,
        where="123", refs=("123",),
    )  # fmt: skip


def _sweep() -> QueueRow:
    return QueueRow(
        id=SWEEP, name="sweep", user="bob", team="nlp", system=SLURM, flavor="h100", gpus=2,
        state=State.RUNNING, submitted_ms=NOW_MS - 100_000, waited_s=0.4, started_ms=NOW_MS - 99_600,
        where="124_4", refs=("124_4", "131"),
    )  # fmt: skip


def _serve() -> QueueRow:
    where = "pod/team-vision/llm-server-7d9f8b6c5d-x2x9k"
    return QueueRow(
        id=SERVE, name="llm-server-7d9f8b6c5d-x2x9k",
        user="system:serviceaccount:kube-system:replicaset-controller",
        team="vision", system=KUBERNETES, flavor="h100", gpus=2, state=State.GRANTED, reason=Reason.MOVING,
        text="worker h100-g2 is being drained for it", submitted_ms=NOW_MS - 9_000, waited_s=9.0,
        where=where, refs=(where,),
    )  # fmt: skip


def _finetune() -> QueueRow:
    return QueueRow(
        id=FINETUNE, name="finetune", user="alice", team="vision", system=SLURM, flavor="h100", gpus=2,
        state=State.ENDING, submitted_ms=NOW_MS - 5_000_000, waited_s=0.9, started_ms=NOW_MS - 4_999_100,
        where="job/team-vision/finetune", refs=("job/team-vision/finetune", "125"),
    )  # fmt: skip


def _gang() -> QueueRow:
    return QueueRow(
        id=GANG, name="pretrain", user="alice", team="vision", system=SLURM, flavor="h100", gpus=16, nodes=2,
        state=State.WAITING, reason=Reason.QUOTA,
        text="team vision holds 10 of its limit 12 h100 and asks for 16",
        submitted_ms=NOW_MS - 4_000_000, waited_s=4_000.0, where="126", refs=("126",),
    )  # fmt: skip


def _old() -> QueueRow:
    return QueueRow(
        id=OLD, name="train-resnet", user="alice", team="vision", system=SLURM, flavor="h100", gpus=4,
        state=State.ENDED, submitted_ms=NOW_MS - 9_000_000, waited_s=3.0, started_ms=NOW_MS - 8_997_000,
        ended_ms=NOW_MS - 8_000_000, where="99", refs=("99",),
    )  # fmt: skip


def _train_explained() -> Explain:
    return Explain(
        workload=_train(),
        attempt=1,
        placement={"g1": 4},
        timeline=(
            Moment(at_ms=NOW_MS - 250_000, what="submitted", text="sbatch as alice, account vision"),
            Moment(at_ms=NOW_MS - 249_900, what="reserved", text="4 h100 on g1, attempt 1"),
            Moment(at_ms=NOW_MS - 248_800, what="running", text="AllocTRES gres/gpu:h100=4"),
        ),
    )


def _gang_explained() -> Explain:
    return Explain(
        workload=_gang(),
        numbers={"held": 10, "limit": 12, "asked": 16},
        binding="vision",
        earliest_ms=NOW_MS + 3_600_000,
        holders=(
            Holder(team="vision", system=SLURM, flavor="h100", gpus=6, workloads=2),
            Holder(team="vision", system=KUBERNETES, flavor="h100", gpus=4, workloads=2),
        ),
        timeline=(Moment(at_ms=NOW_MS - 4_000_000, what="submitted"),),
    )


def _journal() -> list[Entry]:
    def entry(seq: int, step: str, workload: str | None, team: str | None, gpus: int, **detail: object) -> Entry:
        return Entry(
            seq=seq, at_ms=NOW_MS - 10_000 + seq * 1_000, epoch=3, step=step,
            workload=WorkloadId(workload) if workload else None, attempt=1 if workload else None,
            team=TeamName(team) if team else None, flavor=H100, system=SLURM if workload else None, gpus=gpus,
            detail=detail,
        )  # fmt: skip

    return [
        entry(1, "capacity", None, None, 0, node="g1", total=8, idle=8),
        entry(2, "reserve", TRAIN, "vision", 4, placement={"g1": 4}),
        entry(3, "run", TRAIN, "vision", 0, placement={"g1": 4}),
        entry(4, "reserve", SWEEP, "nlp", 2, placement={"g1": 2}),
        entry(5, "run", SWEEP, "nlp", 0),
        entry(6, "release", OLD, "vision", -4, note="COMPLETED"),
        entry(7, "note", SWEEP, None, 0, text="seen running"),
    ]
