"""How far each rank of a communicator has come, as NCCL's RAS service counts."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, build_texts, codes_of, mark_valid, read_numbers
from htk.base.columns.groups import Groups
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.spread import BY_GROUP
from htk.base.schema import INT32, INT64, TEXT, table
from htk.quantities.measures.desync import list_ranks

RETURNS = table(
    communicator=(TEXT, "NCCL's hash of the communicator."),
    group_size=(INT32, "Ranks of the communicator."),
    type=(TEXT, "Collective type; null: ranks that did not answer."),
    ranks_heard=(INT32, "Ranks that answered."),
    count_max=(INT64, "Collectives that the furthest rank has enqueued."),
    count_min=(INT64, "By the rank that is furthest behind."),
    lag=(INT64, "Their difference."),
    lagging_ranks=(TEXT, "Ranks of the communicator that are behind, or silent: 0-2,7."),
    status=(TEXT, "What is wrong with them, where the service says."),
)


@analysis(
    returns=RETURNS,
    needs=("comm_counts",),
    spread=BY_GROUP,
)
def comm_progress(comm_counts: pa.Table) -> pa.Table:
    """Which ranks of a communicator are behind the others, or do not answer?

    A rank that is behind in two reports taken apart stands still; in one it may only be slower. Of
    several reports the newest counts of each rank are taken, which are the largest.
    """
    named = mark_valid(comm_counts["comm_hash"])  # of a silent process no communicator is told
    unheard = len(comm_counts.filter(pa.array(~named))["process"].unique().drop_null())
    comm_counts = _select_newest(comm_counts.filter(pa.array(named)))
    kind, _ = codes_of(comm_counts["type"])
    source = read_numbers(comm_counts["comm_hash"], 0)
    hashed = np.unique(source, return_inverse=True)[1].ravel()
    groups = Groups.by_keys([hashed, kind])
    count = read_numbers(comm_counts["count"], -1)
    most = groups.max(count)
    rank = read_numbers(comm_counts["comm_rank"], -1)
    behind = (count < most[groups.group_ids]) | (kind < 0)
    states: list[set[str]] = [set() for _ in range(len(groups))]
    late: list[list[int]] = [[] for _ in range(len(groups))]
    status = comm_counts["status"].to_pylist()
    for row in np.flatnonzero(
        behind & mark_valid(comm_counts["comm_rank"])
    ).tolist():  # a few ranks
        late[groups.group_ids[row]].append(int(rank[row]))
        if status[row]:
            states[groups.group_ids[row]].add(status[row])
    silent = groups.keys[:, 1] < 0
    first = pa.array(groups.first_row)
    columns = {
        "communicator": build_texts(
            [f"{h:#x}" if h else None for h in source[groups.first_row].tolist()]
        ),
        "group_size": comm_counts["group_size"].take(first),
        "type": comm_counts["type"].take(first),
        "ranks_heard": build_numbers(np.where(silent, 0, groups.count), INT32),
        "count_max": build_numbers(most, INT64, ~silent),
        "count_min": build_numbers(groups.min(count), INT64, ~silent),
        "lag": build_numbers(most - groups.min(count), INT64, ~silent),
        "lagging_ranks": build_texts([list_ranks(ranks) or None for ranks in late]),
        "status": build_texts(["; ".join(sorted(s)) or None for s in states]),
    }
    answer = pa.table(columns, schema=RETURNS)
    return with_coverage(answer, processes_unheard=unheard or None)


def _select_newest(comm_counts: pa.Table) -> pa.Table:
    """Return one row for each rank, communicator and type, whatever number of reports there are."""
    kind, _ = codes_of(comm_counts["type"])
    hashed = np.unique(read_numbers(comm_counts["comm_hash"], 0), return_inverse=True)[1].ravel()
    unnamed = np.arange(-comm_counts.num_rows, 0)  # processes whose rank is not told: each is one
    rank = np.where(
        mark_valid(comm_counts["comm_rank"]), read_numbers(comm_counts["comm_rank"], -1), unnamed
    )
    members = Groups.by_keys([hashed, kind, rank])
    count = read_numbers(comm_counts["count"], -1)
    newest = np.flatnonzero(count == members.max(count)[members.group_ids])
    _, first = np.unique(members.group_ids[newest], return_index=True)
    return comm_counts.take(pa.array(np.sort(newest[first])))
