"""Why a workload waits, in one sentence with its numbers. Pure; the numbers are those the decision was made on."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from bridge.admission.model import Earmark
from bridge.admission.supply import NodeSupply, eligible
from bridge.quota.model import FlavorName, TeamName
from bridge.quota.tree import Balances, Binding, Bound, Tree
from bridge.workloads.model import System, Workload
from bridge.workloads.reasons import Reason, Waiting

HeldBySystem = Mapping[tuple[TeamName, FlavorName, System], int]

SHOWN = 3  # holders and causes named in a sentence; the rest is a click away


def malformed(workload: Workload) -> Waiting:
    """Refuse a request for nothing."""
    text = f"asks {workload.nodes} nodes with {workload.gpus_per_node} GPUs each; both must be 1 or more"
    return Waiting(
        Reason.UNSUPPORTED, text, {"nodes": workload.nodes, "gpus_per_node": workload.gpus_per_node}, final=True
    )


def unknown_team(workload: Workload) -> Waiting:
    """Refuse a team that is not in the tree."""
    text = f"team {workload.team} does not exist or has a fault; ask a platform admin to look at the Team object"
    return Waiting(Reason.UNKNOWN_TEAM, text, {"team": workload.team})


def no_such_flavor(workload: Workload, flavors: Collection[FlavorName]) -> Waiting:
    """Refuse a flavor that the platform does not have."""
    known = ", ".join(sorted(flavors)) or "none"
    text = f"there is no GPU flavor {workload.flavor}; there is: {known}"
    return Waiting(Reason.NO_SUCH_FLAVOR, text, {"flavor": workload.flavor}, final=True)


def flavor_closed(workload: Workload, tree: Tree) -> Waiting:
    """Refuse a flavor that the team does not list."""
    listed = ", ".join(sorted(tree.spec(workload.team).quotas)) or "none"
    text = f"team {workload.team} may not use {workload.flavor}; open to it: {listed}"
    return Waiting(Reason.FLAVOR_CLOSED, text, {"team": workload.team, "flavor": workload.flavor}, final=True)


def exceeds_quota(workload: Workload, ceiling: int, most: int) -> Waiting:
    """Refuse what the team could not hold were everyone else idle, or (`most`) not without borrowing."""
    if workload.gpus <= ceiling:
        return _exceeds_guarantee(workload, most)
    text = (
        f"asks {workload.gpus} {workload.flavor}, team {workload.team} can never hold more than {ceiling}; "
        f"ask for {ceiling} or fewer"
    )
    return Waiting(Reason.NEVER_FITS_QUOTA, text, {"asks": workload.gpus, "ceiling": ceiling}, final=True)


def _exceeds_guarantee(workload: Workload, own: int) -> Waiting:
    """Refuse work that cannot be preempted and is larger than what its team can always get back."""
    text = (
        f"asks {workload.gpus} {workload.flavor} and cannot be preempted, so it may not borrow; team {workload.team} "
        f"is guaranteed {own}: ask for {own} or fewer, or let it be preemptible"
    )
    return Waiting(Reason.NEVER_FITS_QUOTA, text, {"asks": workload.gpus, "ceiling": own}, final=True)


def exceeds_nodes(workload: Workload, nodes: Sequence[NodeSupply]) -> Waiting:
    """Say that the nodes there are could not hold it even when empty; a larger one may be added, so not final."""
    fits = len(eligible(workload, nodes))
    allowed = [n for n in nodes if workload.within_nodes is None or n.name in workload.within_nodes]
    largest = max((node.total for node in allowed), default=0)
    where = "" if workload.within_nodes is None else " that it may use"
    text = (
        f"asks {_request(workload)}; of the {len(allowed)} {workload.flavor} nodes{where}, {fits} are that large "
        f"(the largest has {largest})"
    )
    numbers = {
        "asks_nodes": workload.nodes,
        "asks_gpus_per_node": workload.gpus_per_node,
        "nodes": len(allowed),
        "nodes_large_enough": fits,
        "largest": largest,
    }
    return Waiting(Reason.NEVER_FITS_NODES, text, numbers)


def quota(workload: Workload, balances: Balances, binding: Binding, systems: HeldBySystem) -> Waiting:
    """Name the tree node that binds, and who holds what of it."""
    flavor, team = workload.flavor, workload.team
    slurm, pods = (systems.get((binding.node, flavor, system), 0) for system in System)
    holder = f"team {team}" if binding.node == team else f"{binding.node}, above team {team},"
    if binding.kind is Bound.LIMIT:
        text = f"{holder} holds {binding.held} of its limit {binding.bound} {flavor} ({slurm} slurm, {pods} kubernetes)"
    elif balances.tree.path(team) == (team,) and not balances.tree.children(team):
        text = f"{holder} holds {binding.held} of its {binding.bound} {flavor} ({slurm} slurm, {pods} kubernetes)"
    else:
        own, free = balances.total(team, flavor), max(0, binding.room)
        text = (
            f"team {team} holds {own} {flavor} and {free} more are free to it; {binding.held} of the {binding.bound} "
            f"shared in {binding.node} are held ({holders(balances, binding.node, flavor)})"
        )
    numbers: dict[str, int | str] = {
        "team": team,
        "flavor": flavor,
        "binding": binding.node,
        "bound": binding.kind.value,
        "held": binding.held,
        "of": binding.bound,
        "available": balances.available(team, flavor),
        "asks": workload.gpus,
        "slurm": slurm,
        "kubernetes": pods,
    }
    return Waiting(Reason.QUOTA, f"waits for quota: {text}, asks {workload.gpus}", numbers)


def capacity(workload: Workload, nodes: Sequence[NodeSupply]) -> Waiting:
    """Count what is in the way on the nodes that are large enough."""
    large = eligible(workload, nodes)
    fitting = [node for node in large if node.room(workload.system) >= workload.gpus_per_node]
    rest = [node for node in large if node.room(workload.system) < workload.gpus_per_node]
    usable = [node for node in rest if node.usable]
    sums = {
        "held by slurm": sum(node.slurm for node in usable),
        "held by kubernetes": sum(node.pods for node in usable),
        "held by unmanaged pods": sum(node.unmanaged for node in usable),
    }
    causes = [f"{gpus} {cause}" for cause, gpus in sums.items() if gpus] + _unusable(rest, workload.system)
    text = (
        f"waits for free GPUs: asks {_request(workload)}, {len(fitting)} of {len(large)} nodes have room "
        f"({'; '.join(causes) or 'nothing is in the way'})"
    )
    numbers = {
        "asks_nodes": workload.nodes,
        "asks_gpus_per_node": workload.gpus_per_node,
        "nodes_with_room": len(fitting),
        "nodes_large_enough": len(large),
        "slurm": sums["held by slurm"],
        "kubernetes": sums["held by kubernetes"],
        "unmanaged": sums["held by unmanaged pods"],
        "nodes_unusable": len([node for node in rest if not node.usable]),
    }
    return Waiting(Reason.CAPACITY, text, numbers)


def behind(workload: Workload, first: Workload) -> Waiting:
    """Say for whom the free GPUs are kept."""
    text = (
        f"waits behind {called(first, workload)} of team {first.team}, which comes first and asks {_request(first)}: "
        "what is free is kept for that"
    )
    numbers: dict[str, int | str] = {
        "behind": first.id,
        "behind_team": first.team,
        "behind_asks": first.gpus,
        "asks": workload.gpus,
    }
    return Waiting(Reason.BEHIND_GANG, text, numbers)


def called(other: Workload, reader: Workload) -> str:
    """Name other work to the owner of `reader`: by its own name inside the team, and as work to everybody else."""
    return other.name or other.id if other.team == reader.team else "work"


def guarantee_only(workload: Workload, balances: Balances) -> Waiting:
    """Say what its team holds of its guarantee, for work that may not borrow."""
    team, flavor = workload.team, workload.flavor
    held, own = balances.used(team, flavor), balances.tree.share(team, flavor).own
    text = (
        f"waits for its team's guarantee: it cannot be preempted, so it may not borrow; team {team} holds {held} of "
        f"the {own} {flavor} guaranteed to it, asks {workload.gpus}"
    )
    numbers: dict[str, int | str] = {
        "team": team,
        "flavor": flavor,
        "binding": team,
        "bound": "guarantee",
        "held": held,
        "of": own,
        "asks": workload.gpus,
        "available": own - held,
    }
    return Waiting(Reason.GUARANTEE_ONLY, text, numbers)


def reclaiming(workload: Workload, earmark: Earmark) -> Waiting:
    """Say from whom it is being taken back, and how long it is kept."""
    teams: dict[str, int] = {}
    for victim in earmark.victims:
        teams[victim.team] = teams.get(victim.team, 0) + victim.gpus
    named = ", ".join(f"{team} {gpus}" for team, gpus in sorted(teams.items(), key=lambda each: (-each[1], each[0])))
    text = (
        f"{workload.flavor} that it is guaranteed are being taken back for it ({named}); asks {_request(workload)}, "
        f"kept for it on {', '.join(sorted(earmark.placement)[:SHOWN])}{' and more' * (len(earmark.placement) > SHOWN)}"
    )
    numbers: dict[str, int | str] = {
        "asks": workload.gpus,
        "from": named,
        "victims": len(earmark.victims),
        "since_ms": earmark.since_ms,
        "lapses_ms": earmark.lapses_ms,
    }
    return Waiting(Reason.RECLAIMING, text, numbers)


def next_pass(workload: Workload) -> Waiting:
    """Say that what was in the way has gone since the last pass."""
    text = f"there is room for its {_request(workload)} now: the next pass decides"
    return Waiting(Reason.CAPACITY, text, {"asks": workload.gpus})


def granted(workload: Workload, attempt: int) -> Waiting:
    """Say that the ledger has granted it already: nothing is granted twice."""
    text = f"granted already (attempt {attempt}), not yet started"
    return Waiting(Reason.STARTING, text, {"attempt": attempt, "asks": workload.gpus})


def _request(workload: Workload) -> str:
    if workload.nodes == 1:
        return f"{workload.gpus_per_node} {workload.flavor} on one node"
    return f"{workload.nodes} nodes with {workload.gpus_per_node} {workload.flavor} each"


def holders(balances: Balances, root: TeamName, flavor: FlavorName) -> str:
    """List the largest holders right below the root (and the root itself), largest first."""
    held = {child: balances.total(child, flavor) for child in balances.tree.children(root)}
    held[root] = balances.used(root, flavor)
    ranked = sorted(((gpus, name) for name, gpus in held.items() if gpus), key=lambda pair: (-pair[0], pair[1]))
    named = [f"{name} {gpus}" for gpus, name in ranked[:SHOWN]]
    rest = sum(gpus for gpus, _ in ranked[SHOWN:])
    return ", ".join([*named, f"others {rest}"] if rest else named)


def _unusable(nodes: Iterable[NodeSupply], system: System) -> list[str]:
    """Nodes out of service by cause, e.g. `n3: node cordoned`."""
    out = [n for n in nodes if not n.usable or (system is System.SLURM and not n.slurm_ok)]
    named = [f"{node.name}: {node.cause or 'not usable'}" for node in sorted(out, key=lambda n: n.name)]
    return [*named[:SHOWN], f"{len(named) - SHOWN} more nodes out of service"] if len(named) > SHOWN else named
