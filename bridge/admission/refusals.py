"""What cannot be admitted however long it waits. Pure: it depends on the quota tree and the nodes, not on who holds."""

from bridge.admission.queues import Group, Shape
from bridge.admission.section import Section
from bridge.workloads.reasons import Reason


def of_group(section: Section, group: Group) -> Reason | None:
    """Return why no workload of the group can ever be admitted; None when it can. Remembered until quotas change."""
    if group.judged != section.reorganised:
        group.judged, group.refused = section.reorganised, _by_quota(section, group.shape)
    return group.refused or _by_nodes(section, group.shape)


def refusal(section: Section, shape: Shape) -> Reason | None:
    """Return the same for a shape that need not be in a queue."""
    return _by_quota(section, shape) or _by_nodes(section, shape)


def most(section: Section, shape: Shape) -> int:
    """Most devices that a workload of the shape could ever be granted by quota."""
    ceiling = section.ceiling(shape.team)
    if shape.preemptible:
        return ceiling
    return min(ceiling, section.tree.share(shape.team, section.flavor).own)


def _by_quota(section: Section, shape: Shape) -> Reason | None:
    if shape.nodes < 1 or shape.gpus_per_node < 1:
        return Reason.UNSUPPORTED
    if not section.known:
        return Reason.NO_SUCH_FLAVOR
    if shape.team not in section.tree:
        return Reason.UNKNOWN_TEAM
    if not section.tree.opens(shape.team, section.flavor):
        return Reason.FLAVOR_CLOSED
    if shape.gpus > most(section, shape):
        return Reason.NEVER_FITS_QUOTA
    return None


def _by_nodes(section: Section, shape: Shape) -> Reason | None:
    fits = section.racks.large(shape.gpus_per_node, shape.within_nodes) >= shape.nodes
    return None if fits else Reason.NEVER_FITS_NODES
