"""Matching at scale: 64 ranks of 20,000 collectives each, as one line of JSON.

python bench/match.py [--ranks 64] [--collectives 20000] [--by order|sequence|comms_id]
python bench/match.py --groups 128 --ranks 8 --collectives 97657   (10^8 calls, by partition)

With several groups each is made when its partition is matched, and is gone before the next: the
memory is that of matching by partition, and of numbering the matches of all.
"""

import argparse
import json
import resource
import time

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, build_table, decode_texts, read_numbers
from htk.base.columns.types import NONE
from htk.base.schema import DERIVED, TABLES
from htk.quantities.derived.match import collective_matches
from htk.quantities.derived.match_parts import MatchedPart, Partition, match_part, numbers_in_all

TYPES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def collectives(ranks: int, each: int, by: str, seed: int = 0) -> pa.Table:
    """A job of one group whose ranks miss some calls at the ends, on clocks that are 1 ms apart."""
    dice = np.random.default_rng(seed)
    kind = dice.integers(0, len(TYPES), each)
    size = 1 << dice.integers(10, 28, each)
    end = np.cumsum(dice.integers(50_000, 500_000, each))
    parts = []
    for rank in range(ranks):
        skip, stop = dice.integers(0, 5), each - dice.integers(0, 5)
        calls = np.arange(skip, stop)
        length = dice.integers(5_000, 40_000, len(calls))
        shift = dice.integers(-1_000_000, 1_000_000)
        parts.append(
            (np.full(len(calls), rank), calls, end[calls] - length + shift, end[calls] + shift)
        )
    rank, call, start, stop_ = (np.concatenate(column) for column in zip(*parts, strict=True))
    length = len(rank)
    values = {
        "rank": build_numbers(rank, pa.int32()),
        "cycle": build_numbers(np.zeros(length), pa.int32()),
        "source": decode_texts(np.zeros(length), pa.array(["kineto"])),
        "timing": decode_texts(np.zeros(length), pa.array(["gpu"])),
        "group": decode_texts(np.zeros(length), pa.array(["0"])),
        "group_size": build_numbers(np.full(length, ranks), pa.int32()),
        "type": decode_texts(kind[call], pa.array(TYPES)),
        "in_bytes": build_numbers(size[call], pa.int64()),
        "start_ns": build_numbers(start, pa.int64()),
        "end_ns": build_numbers(stop_, pa.int64()),
    }
    if by == "sequence":
        values["seq"] = build_numbers(call, pa.int64())
        values["seq_kind"] = decode_texts(np.zeros(length), pa.array(["collective"]))
    if by == "comms_id":
        values["comms_id"] = decode_texts(call, pa.array([str(2**63 + k) for k in range(each)]))
    return build_table(TABLES["collectives"], values, length)


def by_partition(groups: int, ranks: int, each: int, by: str) -> None:
    """Match groups of ranks of their own, one after the other, and number the matches of all."""
    nothing = np.empty(0, np.int64)
    parts, rows, matched, making = [], 0, 0, 0.0
    began = time.process_time()
    for group in range(groups):
        before = time.process_time()
        part = collectives(ranks, each, by, seed=group)
        length = part.num_rows
        row = build_numbers(rows + np.arange(length), pa.int64())
        part = part.append_column("row", row)
        making += time.process_time() - before
        answer = match_part(
            part,
            Partition(group, length, groups * ranks - 1, judges_guesses=False),
            DERIVED["rank_windows"].empty_table(),
            TABLES["ranks"].empty_table(),
        )
        matched += int((read_numbers(answer.table["match"], NONE) != NONE).sum())
        rows += length
        parts.append(
            MatchedPart(
                nothing, DERIVED["collective_matches"].empty_table(), answer.begun, answer.first_row
            )
        )
        del part, answer
    matches = sum(map(len, numbers_in_all(parts)))
    print(
        json.dumps(
            {
                "benchmark": "match by partition",
                "by": by,
                "groups": groups,
                "ranks": groups * ranks,
                "collectives": rows,
                "matched": matched,
                "matches": matches,
                "cpu_s": round(time.process_time() - began - making, 1),
                "making_cpu_s": round(making, 1),
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranks", type=int, default=64)
    options.add_argument("--collectives", type=int, default=20_000)
    options.add_argument("--by", choices=["order", "sequence", "comms_id"], default="order")
    options.add_argument("--groups", type=int, default=1)
    chosen = options.parse_args()
    if chosen.groups > 1:
        by_partition(chosen.groups, chosen.ranks, chosen.collectives, chosen.by)
        return
    table = collectives(chosen.ranks, chosen.collectives, chosen.by)
    began = time.perf_counter()
    matches = collective_matches(
        table, DERIVED["rank_windows"].empty_table(), TABLES["ranks"].empty_table()
    )
    seconds = time.perf_counter() - began
    matched = matches.num_rows - matches["match"].null_count
    print(
        json.dumps(
            {
                "benchmark": "match",
                "by": chosen.by,
                "ranks": chosen.ranks,
                "collectives": table.num_rows,
                "matched": matched,
                "seconds": round(seconds, 2),
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
