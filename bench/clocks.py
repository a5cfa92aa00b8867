"""Clock alignment at scale, as one line of JSON.

python bench/clocks.py [--ranks 1000] [--per-host 8] [--calls 100]

Each host's clock is off by up to 10 ms and drifts by up to 20 ppm. Ranks meet in collectives of
all ranks, of each host and of the ranks that have one place on their hosts.
"""

import argparse
import json
import resource
import time

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, build_table, decode_texts
from htk.base.schema import DERIVED, TABLES
from htk.quantities.derived.clocks import rank_clocks

STEP_NS = 10_000_000
JITTER_NS = 1_000


def recorded(
    ranks: int, per_host: int, calls: int, seed: int = 0
) -> tuple[pa.Table, pa.Table, np.ndarray]:
    """Return collectives, their matches, and the true offset of each rank's clock."""
    dice = np.random.default_rng(seed)
    rank = np.arange(ranks)
    host = rank // per_host
    offset = dice.integers(-10_000_000, 10_000_000, ranks)[host]
    drift = dice.uniform(-20e-6, 20e-6, ranks)[host]
    groups = (np.zeros(ranks, np.int64), 1 + host, 1 + ranks + rank % per_host)
    ranks_of, calls_of, names = [], [], []
    for n in range(calls):  # of a few hundred
        ranks_of.append(rank)
        calls_of.append(np.full(ranks, n))
        names.append(groups[n % len(groups)])
    process, call, name = (np.concatenate(c) for c in (ranks_of, calls_of, names))
    end = (call + 1) * STEP_NS + dice.integers(-JITTER_NS, JITTER_NS, len(call))
    end = end + offset[process] + np.rint(drift[process] * (call - calls / 2) * STEP_NS).astype(int)
    length = len(process)
    group, code = np.unique(name, return_inverse=True)
    rows = {
        "rank": build_numbers(process, pa.int32()),
        "cycle": build_numbers(np.zeros(length), pa.int32()),
        "source": decode_texts(np.zeros(length), pa.array(["kineto"])),
        "timing": decode_texts(np.zeros(length), pa.array(["gpu"])),
        "group": decode_texts(code, pa.array([str(n) for n in group.tolist()])),
        "type": decode_texts(np.zeros(length), pa.array(["all_reduce"])),
        "start_ns": build_numbers(end - 100_000, pa.int64()),
        "end_ns": build_numbers(end, pa.int64()),
    }
    match = np.unique(np.column_stack([call, name]), axis=0, return_inverse=True)[1].ravel()
    matches = {"match": build_numbers(match, pa.int64())}
    return (
        build_table(TABLES["collectives"], rows, length),
        build_table(DERIVED["collective_matches"], matches, length),
        offset,
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranks", type=int, default=1000)
    options.add_argument("--per-host", type=int, default=8)
    options.add_argument("--calls", type=int, default=100)
    chosen = options.parse_args()
    collectives, matches, offset = recorded(chosen.ranks, chosen.per_host, chosen.calls)
    rank = np.arange(chosen.ranks)
    hosts = pa.array([f"host{k}" for k in range(int(rank[-1]) // chosen.per_host + 1)])
    columns = {
        "rank": build_numbers(rank, pa.int32()),
        "host": decode_texts(rank // chosen.per_host, hosts),
    }
    ranks = build_table(TABLES["ranks"], columns, chosen.ranks)
    before = time.process_time()
    clocks = rank_clocks(collectives, matches, ranks)
    seconds = time.process_time() - before
    fitted = clocks["offset_ns"].to_numpy()
    off = fitted - (offset[0] - offset)
    print(
        json.dumps(
            {
                "benchmark": "clocks",
                "ranks": chosen.ranks,
                "clocks": len(clocks["clock"].unique()),
                "ends": collectives.num_rows,
                "cpu_s": round(seconds, 2),
                "error_ns_median": float(np.median(np.abs(off))),
                "error_ns_max": int(np.abs(off).max()),
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
