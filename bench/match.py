"""Matching at scale: 64 ranks of 20,000 collectives each, as one line of JSON.

python bench/match.py [--ranks 64] [--collectives 20000] [--by order|sequence|comms_id]
"""

import argparse
import json
import resource
import time

import numpy as np
import pyarrow as pa

from htk.columns.arrow import build, number, text
from htk.derived.match import collective_matches
from htk.schema import DERIVED, TABLES

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
        "rank": number(rank, pa.int32()),
        "cycle": number(np.zeros(length), pa.int32()),
        "source": text(np.zeros(length), pa.array(["kineto"])),
        "timing": text(np.zeros(length), pa.array(["gpu"])),
        "group": text(np.zeros(length), pa.array(["0"])),
        "group_size": number(np.full(length, ranks), pa.int32()),
        "type": text(kind[call], pa.array(TYPES)),
        "in_bytes": number(size[call], pa.int64()),
        "start_ns": number(start, pa.int64()),
        "end_ns": number(stop_, pa.int64()),
    }
    if by == "sequence":
        values["seq"] = number(call, pa.int64())
        values["seq_kind"] = text(np.zeros(length), pa.array(["collective"]))
    if by == "comms_id":
        values["comms_id"] = text(call, pa.array([str(2**63 + k) for k in range(each)]))
    return build(TABLES["collectives"], values, length)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranks", type=int, default=64)
    options.add_argument("--collectives", type=int, default=20_000)
    options.add_argument("--by", choices=["order", "sequence", "comms_id"], default="order")
    chosen = options.parse_args()
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
