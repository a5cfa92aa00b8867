"""Collectives some of whose members were not recorded: waiting and transfer cannot be told apart.

Until the last recorded member has come a rank waits for sure. Beyond that it transfers for as long
as the network needs at least, and the rest is undetermined: the members that were not recorded may
have come late, or the network may have been slow.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import mark_valid, read_keys
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Floats, Ints, Mask, fill_none
from htk.physics.bandwidth import compute_traffic
from htk.physics.link_rates import scale_up_gbps
from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.derived.recorded import unrecorded_ranks
from htk.quantities.derived.waits import Waits, global_root


def short_of_members(rows: CollectiveRows, present: Ints, ranks: pa.Table) -> Mask:
    """Matched rows of collectives that lack members. A group of unknown size may lack some as soon
    as the job does."""
    expected = rows.expected
    lacks = unrecorded_ranks(ranks) > 0
    return np.asarray((present > 0) & np.where(expected > 0, present < expected, lacks))


def depends_on_all(rows: CollectiveRows) -> Mask:
    """Rows that wait for every member: a broadcast waits for its root, a message for its peer."""
    is_root = global_root(rows) == rows.rank
    apart = rows.is_type("broadcast", "scatter", "send", "recv")
    depends: Mask = ~apart & (~rows.is_type("reduce", "gather") | is_root)
    return depends


def with_undetermined(
    rows: CollectiveRows, waited: Waits, lacking: Mask, short: Mask, ranks: pa.Table
) -> Waits:
    """The waits, with transfer of what lacks members cut to what the network needs at least."""
    if not (lacking.any() or short.any()):
        return waited
    pace = np.ceil(least_transfer_ns(rows, ranks)).astype(np.int64)
    group = rows.group
    complete = np.flatnonzero(waited.has_wait & ~short)
    size = [read_keys(rows.table[c]) for c in ("in_bytes", "out_bytes")]
    codes = Groups.by_keys([group, rows.type, *size])
    seen = Groups.by_keys(codes.group_ids[complete])
    if len(seen):
        fast = fill_none(len(codes))
        fast[seen.keys.ravel()] = seen.min(waited.transfer[complete])
        fastest = fast[codes.group_ids]
        pace = np.where(fastest >= 0, fastest, pace)
    transfer = np.where(lacking, np.minimum(waited.transfer, pace), waited.transfer)
    return replace(
        waited,
        transfer=transfer,
        undetermined=waited.transfer - transfer,
        span=np.where(short, NONE, waited.span),
    )


def least_transfer_ns(rows: CollectiveRows, ranks: pa.Table) -> Floats:
    """Return what each call takes at least, in ns: its bytes at the full rate of a GPU's links.

    A switch may reduce on the way, so that an all-reduce sends its bytes once.
    """
    rate = max(
        (r for r in map(scale_up_gbps, set(ranks["device_name"].to_pylist())) if r), default=None
    )
    if rate is None:
        return np.zeros(len(rows.rank))
    size = np.where(rows.group_size > 0, rows.group_size, 2)
    into = read_keys(rows.table["in_bytes"])
    out = read_keys(rows.table["out_bytes"])
    kept = fill_none(len(size))
    moved, factor = compute_traffic(rows.type, rows.types, into, out, size, kept)
    sent = np.nan_to_num(moved * np.minimum(factor, 1.0))
    return np.where(mark_valid(rows.table["in_split"]), 0.0, sent / rate)
