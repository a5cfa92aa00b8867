"""A link is slower than its like: all groups that use it are slow, and no others."""

import numpy as np
import pyarrow as pa

from htk.analyses.comm.slow_links import expected_rate, names_of
from htk.base.core.humanize import format_int_ranges, pluralize_count
from htk.quantities.measures.link_paces import LinkPaces
from htk.quantities.measures.slow_links import Alike, NcclRecords, find_slow_links, logged_paces
from htk.quantities.measures.transfer_times import LinkRates
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import expected_transfers
from htk.verdicts.causes.exposed_communication import costliest_call
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "a link is slow"
_LIKELY = 0.5  # probability of what is named


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    calls = recorded.calls
    split = recorded.split
    names = ("collectives", "collective_facts", "comm_transports", "comm_inits")
    records = NcclRecords(*(recorded[name] for name in names))
    paces = logged_paces(calls, LinkRates.from_calls(calls, None, None), records)
    classes, nothing = find_slow_links(paces, calls.hosts.of_rank)
    if not classes or nothing >= _LIKELY or classes[0].probability < _LIKELY:
        return []
    slow = classes[0]
    uses = paces.calls_of(calls, slow.groups)
    transfer = np.where(uses[split.rows], split.exposed_transfer, 0)
    tools = recorded.program.name_tools(
        "nvidia-smi nvlink -s; NCCL_DEBUG=INFO for the path that NCCL chose"
    )
    cause = Cause(
        FINDING,
        _in_words(paces, slow),
        "htk slow-links says what would decide it; look at adapters and cables (ibstat, ethtool), "
        f"links between the devices of a host, PCIe width{tools}",
        int(transfer.sum() * (1 - 1 / slow.slowdown)),
        "slow_links",
        example=costliest_call(recorded, split.rows, transfer),
        change=expected_transfers(calls.table.filter(pa.array(uses)), slow.slowdown),
    )
    return [cause]


def _in_words(paces: LinkPaces, slow: Alike) -> str:
    """Return what is slow, whose transfers show it, and at what rate."""
    pace, expected, basis = expected_rate(paces, slow.groups)
    against = f", where {expected:.3g} are expected ({basis})" if expected and basis else ""
    groups = [f"ranks {format_int_ranges(paces.members[k])}" for k in slow.groups.tolist()]
    if len(groups) > 2:
        groups = [*groups[:2], pluralize_count(len(groups) - 2, "other group")]
    logged = all(paces.hops[k] is not None for k in slow.groups.tolist()) if paces.hops else False
    rings = "; by the rings and trees of NCCL's log" if logged else ""
    return (
        f"{names_of(slow.suspects)}: transfers among {'; '.join(groups)} at {pace:.3g} GB/s"
        f"{against}{rings}"
    )
