"""Tables of many ranks made small, against a plain reading of their rows."""

from statistics import median

import numpy as np
import pyarrow as pa

from htk.answers.output.rank_tables import add_up_blocks, condense_rows, tabulate_ends


def test_ends_of_each_x() -> None:
    random = np.random.default_rng(1)
    rows = [(layer, float(random.integers(1, 99))) for layer in range(5) for _ in range(31)]
    table = pa.table({"layer": [r[0] for r in rows], "load": [r[1] for r in rows]})
    ends = tabulate_ends(table, "layer", "load", ("middle", "most"))
    for row in ends.to_pylist():
        of_layer = [load for layer, load in rows if layer == row["layer"]]
        assert (row["middle"], row["most"]) == (median(of_layer), max(of_layer))
    assert ends.num_rows == 5


def test_condensed_rows_keep_what_is_unlike_and_leave_holes_empty() -> None:
    rows = [(rank, step, 10 * (rank == 31 and step == 1)) for rank in range(40) for step in (0, 1)]
    rows = [row for row in rows if row[:2] != (31, 0)]
    table = pa.table(dict(zip(("rank", "step", "late_ns"), zip(*rows, strict=True), strict=True)))
    condensed = condense_rows(table, "step", "late_ns").to_pylist()
    assert condensed == [
        {"step": 1, "ranks": "rank 31", "late_ns": 10},
        {"step": 0, "ranks": "median of 39", "late_ns": 0},
        {"step": 1, "ranks": "median of 39", "late_ns": 0},
    ]


def test_blocks_of_ranks_send_what_their_ranks_send() -> None:
    random = np.random.default_rng(2)
    pairs = random.integers(0, 1024, (3000, 2))
    sent = random.integers(1, 1000, 3000)
    columns = {"to_rank": pairs[:, 0], "from_rank": pairs[:, 1], "sent_bytes": sent}
    blocks, x, y = add_up_blocks(pa.table(columns), "to_rank", "from_rank", "sent_bytes")
    assert (x, y) == ("to_ranks_by_16", "from_ranks_by_16")
    wanted: dict[tuple[int, int], int] = {}
    for (to, source), count in zip(pairs.tolist(), sent.tolist(), strict=True):
        key = (to - to % 16, source - source % 16)
        wanted[key] = wanted.get(key, 0) + count
    assert {(b[x], b[y]): b["sent_bytes"] for b in blocks.to_pylist()} == wanted


def test_few_ranks_keep_their_pairs() -> None:
    table = pa.table({"to_rank": [0, 63], "from_rank": [1, 2], "sent_bytes": [5, 6]})
    assert add_up_blocks(table, "to_rank", "from_rank", "sent_bytes")[0] is table
