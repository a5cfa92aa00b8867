"""Findings on what transfers take: a link that is slower than its like, bytes that are exposed."""

import numpy as np

from htk.analyses.comm.slow_links import expected_rate, names_of
from htk.base.columns.groups import Groups
from htk.base.columns.types import Ints, Mask
from htk.base.core.humanize import format_duration, format_int_ranges, pluralize
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.quantities.measures.link_paces import LinkPaces, LinkRates
from htk.quantities.measures.slow_links import Alike, NcclRecords, logged_paces, suspected
from htk.verdicts.causes.advice.finding import Advice, Example
from htk.verdicts.causes.advice.waiting import COMM, BlamedWaits, Exposed

SLOW_LINK = "a link is slow"
EXPOSED = "communication is exposed"
_LIKELY = 0.5  # probability of what is named


def transfer_findings(
    exposed: Exposed, waits: BlamedWaits, totals: tuple[int, int], gpus: int, records: NcclRecords
) -> tuple[list[Advice], Mask]:
    """Return findings on exposed transfers, and the waits that they explain: for ranks that a slow
    link held up. `totals`: exposed communication, and all of it."""
    exposed_ns, comm = totals
    calls, split = exposed.calls, exposed.split
    transfer = np.zeros(calls.rows.length, np.int64)
    transfer[split.rows] = split.exposed_transfer
    rest = max(exposed_ns - int(split.exposed_wait.sum() + split.exposed_undetermined.sum()), 0)
    paces = logged_paces(calls, LinkRates.of(calls, None, None), records)
    classes, nothing = suspected(paces, calls.hosts.of_rank)
    held_up = np.zeros(len(waits.row), bool)
    findings = []
    if classes and nothing < _LIKELY <= classes[0].probability:
        uses = _uses(calls, [paces.members[k] for k in classes[0].groups.tolist()])
        held_up = np.isin(waits.rank, calls.rows.rank[uses]) & (waits.kind == COMM)
        wait = int(waits.wait_ns[held_up].sum())
        finding = _slow_link(calls, paces, classes[0], np.where(uses, transfer, 0), wait)
        findings.append(finding)
        rest = max(rest + wait - (finding.gain_ns or 0), 0)
    if exposed_ns and rest:
        hidden = 100 * (comm - exposed_ns) / max(comm, 1)
        findings.append(
            Advice(
                EXPOSED,
                f"{format_duration(rest / gpus)} of transfers; of communication "
                f"({format_duration(comm / gpus)}) {hidden:.0f} % is hidden",
                "prefetch (FSDP), larger or smaller buckets (DDP), overlap with compute, "
                "fewer bytes (sharding within the node, lower precision)",
                rest,
                "comm_compute_overlap",
                example=_worst(calls, transfer),
            )
        )
    return findings, held_up


def _uses(calls: CollectiveCalls, groups: list[tuple[int, ...]]) -> Mask:
    """Return the rows of collectives of these groups of ranks."""
    of_group = Groups.by_keys([calls.rows.group, calls.rows.rank]).keys
    members: dict[int, list[int]] = {}
    for group, rank in of_group.tolist():  # a few groups
        members.setdefault(group, []).append(rank)
    chosen = [group for group, ranks in members.items() if tuple(ranks) in set(groups)]
    return np.isin(calls.rows.group, chosen)


def _slow_link(
    calls: CollectiveCalls, paces: LinkPaces, alike: Alike, transfer: Ints, wait: int
) -> Advice:
    pace, expected, basis = expected_rate(paces, alike.groups)
    against = f", where {expected:.3g} are expected ({basis})" if expected and basis else ""
    groups = [f"ranks {format_int_ranges(paces.members[k])}" for k in alike.groups.tolist()]
    if len(groups) > 2:
        groups = [*groups[:2], pluralize(len(groups) - 2, "other group")]
    logged = all(paces.hops[k] is not None for k in alike.groups.tolist()) if paces.hops else False
    rings = "; by the rings and trees of NCCL's log" if logged else ""
    return Advice(
        SLOW_LINK,
        f"{names_of(alike.suspects)}: transfers among {'; '.join(groups)} at {pace:.3g} GB/s"
        f"{against}{rings}",
        "htk slow-links says what would decide it; look at adapters and cables (ibstat, ethtool), "
        "NVLink (nvidia-smi nvlink -s), PCIe width, NCCL_DEBUG=INFO for the path that NCCL chose",
        int(transfer.sum() * (1 - 1 / alike.slowdown)) + wait,
        "slow_links",
        example=_worst(calls, transfer),
    )


def _worst(calls: CollectiveCalls, cost: Ints) -> Example | None:
    if not len(cost) or not cost.max():
        return None
    row = int(cost.argmax())
    return Example(int(calls.rows.rank[row]), int(calls.rows.start[row]), int(calls.rows.end[row]))
