"""All-reduces one after another on two nodes of four, as `CollectiveCalls`."""

from typing import Any

from htk.quantities.derived.match import collective_matches
from htk.quantities.measures.collective_calls import CollectiveCalls
from tests.tables import make

HOSTS = {rank: f"h{rank // 4}" for rank in range(8)}


def calls_of(
    transfers: list[tuple[tuple[int, ...], int, int]], device: str | None = None, **more: Any
) -> CollectiveCalls:
    """All-reduces of (members, bytes, ns), one after another; ranks start 1 us apart."""
    rows, clock = [], dict.fromkeys(HOSTS, 0)
    for number, (members, size, transfer) in enumerate(transfers):
        begin = max(clock[r] for r in members)
        last = begin + 1000 * (len(members) - 1)
        for k, rank in enumerate(members):
            rows.append({
                "rank": rank, "source": "kineto", "timing": "gpu", "group": str(members),
                "group_ranks": str(list(members)).replace(" ", ""), "group_size": len(members),
                "type": "all_reduce", "in_bytes": size, "seq": number, "seq_kind": "collective",
                "start_ns": begin + 1000 * k, "end_ns": last + transfer,
            } | more)  # fmt: skip
            clock[rank] = last + transfer + 500
    collectives = make("collectives", rows)
    ranks = make("ranks", [{"rank": r, "host": h, "device_name": device} for r, h in HOSTS.items()])
    matches = collective_matches(collectives, make("rank_windows", []), ranks)
    return CollectiveCalls.from_tables(collectives, matches, ranks)
