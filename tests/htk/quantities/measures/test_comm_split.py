"""Parts of collectives in a device's time, against counting every instant."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.base.schema import TEXT
from htk.quantities.derived.exposure import collective_shares
from htk.quantities.derived.match import collective_matches
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.quantities.measures.comm_split import comm_split, kept_split
from tests.tables import make

# Rank, start, end of one all-reduce: rank 1 comes 6 later, both move from 16 to 30.
REDUCE = [(0, 10, 30), (1, 16, 30)]
# Rank, start and end of compute.
COMPUTE = [(0, 0, 12), (0, 20, 23), (1, 0, 16), (1, 25, 40)]


def calls(**more: object) -> CollectiveCalls:
    rows = [
        {"rank": r, "source": "kineto", "timing": "gpu", "group": "0", "type": "all_reduce",
         "group_ranks": "[0,1]", "group_size": 2, "in_bytes": 8, "seq": 1, "stream": 7,
         "seq_kind": "collective", "start_ns": start, "end_ns": end} | more
        for r, start, end in REDUCE
    ]  # fmt: skip
    table, ranks = make("collectives", rows), make("ranks", [{"rank": 0}, {"rank": 1}])
    return CollectiveCalls.from_tables(
        table, collective_matches(table, make("rank_windows", []), ranks), ranks
    )


def activities() -> object:
    return make("activities", [
        {"rank": r, "kind": "compute", "start_ns": s, "end_ns": e} for r, s, e in COMPUTE
    ])  # fmt: skip


def exposed(rank: int, start: int, end: int) -> int:
    """Instants of these without compute on that rank."""
    return sum(not any(r == rank and s <= t < e for r, s, e in COMPUTE) for t in range(start, end))


def test_waiting_and_moving_while_nothing_computes() -> None:
    split = comm_split(calls(), activities())
    assert split.rows.tolist() == [0, 1]
    assert split.exposed_wait.tolist() == [exposed(0, 10, 16), 0] == [4, 0]
    assert split.exposed_transfer.tolist() == [exposed(0, 16, 30), exposed(1, 16, 30)] == [11, 9]
    assert split.exposed_undetermined.tolist() == split.undetermined.tolist() == [0, 0]
    assert split.shared.tolist() == [20, 14], "alone on its device: its whole time"
    assert split.transfer.tolist() == [14, 14]
    assert split.exposed.tolist() == [15, 9] and split.on_gpu.tolist() == [1, 1]


def test_without_the_other_rank_wait_and_transfer_are_undetermined() -> None:
    alone = calls(group_ranks="[0,1,2]", group_size=3)
    split = comm_split(alone, activities())
    assert split.exposed_wait.tolist() == [4, 0], "for rank 1 it waited at least"
    assert (split.exposed_undetermined + split.exposed_transfer).tolist() == [11, 9]
    assert (split.undetermined + split.transfer).tolist() == [14, 14]
    assert split.undetermined.tolist() != [0, 0]


def test_what_ran_on_no_gpu_has_no_part_of_its_time() -> None:
    split = comm_split(calls(stream=None, device=None, timing="cpu"), activities())
    assert not np.any([split.shared, split.exposed, split.transfer, split.on_gpu])


def test_the_kept_split_is_that_of_the_source_that_counts() -> None:
    """The same calls, of which a log tells other times, too."""
    alone = calls()
    log = alone.table.set_column(
        alone.table.schema.get_field_index("source"),
        alone.table.schema.field("source"),
        pa.array(["nccl_debug"] * 2).cast(TEXT),
    )
    late = pc.add(log["start_ns"], 3)
    log = log.set_column(log.schema.get_field_index("start_ns"), log.schema.field("start_ns"), late)
    both = pa.concat_tables([log, alone.table])
    matches = collective_matches(both, make("rank_windows", []), alone.ranks)
    of_both = CollectiveCalls.of_one_source(both, matches, alone.ranks)
    assert of_both.table.equals(alone.table)
    kept = kept_split(of_both, lambda: collective_shares(both, matches, activities()))
    assert kept.exposed_wait.tolist() == [exposed(0, 10, 16), 0]
    assert kept.exposed_transfer.tolist() == [exposed(0, 16, 30), exposed(1, 16, 30)]
    assert kept.shared.tolist() == [20, 14] and not kept.exposed_undetermined.any()
    assert (kept.transfer.tolist(), kept.on_gpu.tolist()) == ([14, 14], [1, 1])
    of_log = CollectiveCalls.from_tables(both.slice(0, 2), matches.slice(0, 2), alone.ranks)
    shares = collective_shares(both, matches, activities()).slice(0, 2)
    assert kept_split(of_log, lambda: shares).shared.tolist() == [17, 11]


def test_a_group_of_one_rank_has_nobody_to_wait_for() -> None:
    split = comm_split(calls(group_size=1, group_ranks=None), activities())
    assert split.exposed_undetermined.tolist() == [0, 0]
    assert split.exposed_wait.tolist() == [0, 0]
    assert split.exposed_transfer.tolist() == [exposed(0, 10, 30), exposed(1, 16, 30)] == [15, 9]
    assert split.transfer.tolist() == [20, 14]
    assert split.undetermined.tolist() == [0, 0]
