"""Random jobs: what htk says of each call, against a plain reading of the same files.

python -m bench.communication [--calls 20000] [--seed 0] [-v]

Prints the calls that were compared and every difference; exits with 1 where there is any.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.comm_jobs import BASE_NS, Job, random_job, write_job
from bench.comm_reference import (
    Kernel,
    bandwidths,
    kernels_of,
    matched,
    members_short,
    sent_between,
)
from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace

_SIGMAS, _SLACK_NS = 8, 2_000  # how far an aligned wait may be off
Row = dict[str, Any]


@dataclass
class Comparison:
    """What was compared, and what differed."""

    calls: int = 0
    differences: list[str] = field(default_factory=list)

    def same(self, what: str, answered: object, expected: object) -> None:
        """Note a difference between what htk says and what is expected."""
        if isinstance(answered, float) and isinstance(expected, float):
            equal = abs(answered - expected) <= 1e-9 * max(abs(answered), abs(expected))
        else:
            equal = answered == expected
        if not equal:
            self.differences.append(f"{what}: {answered}, not {expected}")


def compare_job(seed: int, folder: Path) -> Comparison:
    """Write a random job, sometimes two, and compare every call of the first."""
    job = random_job(seed)
    write_job(job, folder, "first_")
    beside = seed % 5 == 4  # another job of the same time in the folder
    if beside:
        write_job(random_job(seed + 1_000_000), folder, "second_")
    trace = open_trace(folder, OpenOptions(cache=False, job="first" if beside else None))
    kernels = matched([k for path in sorted(folder.glob("first_*")) for k in kernels_of(path)])
    compared = Comparison()
    rows = {
        (r["rank"], r["start_ns"]): r
        for r in ask_trace(trace, "collective_times", align=False).to_pylist()
    }
    compared.same(f"seed {seed}: calls", len(rows), len(kernels))
    of_match: dict[int, set[tuple[int, int]]] = {}
    for key, row in rows.items():
        of_match.setdefault(row["match"], set()).add(key)
    for call in kernels:
        row = rows.get((call.rank, call.start), {})
        what = f"seed {seed}: {call.type} of rank {call.rank} at {call.start}"
        _compare_facts(compared, what, row, call)
        _compare_times(compared, what, row, call, kernels)
        expected = call.match and {(kernels[k].rank, kernels[k].start) for k in call.match}
        if _is_once(kernels, call):
            answered = None if row.get("match") is None else of_match[row["match"]]
            compared.same(f"{what}: match", answered, expected)
    compared.calls = len(kernels)
    _compare_matrix(compared, seed, trace, kernels)
    _compare_aligned(compared, seed, trace, job)
    return compared


def _is_once(kernels: list[Kernel], call: Kernel) -> bool:
    """Return whether each rank has one call in a match: others have no number."""
    ranks = [kernels[k].rank for k in call.match or ()]
    return len(set(ranks)) == len(ranks)


def _compare_facts(compared: Comparison, what: str, row: Row, call: Kernel) -> None:
    expected = {
        "type": call.type,
        "group": call.group,
        "group_ranks": json.dumps(call.ranks, separators=(",", ":")),
        "in_bytes": call.into,
        "out_bytes": call.out,
    }
    for name, value in expected.items():
        compared.same(f"{what}: {name}", row.get(name), value)


def _compare_times(
    compared: Comparison, what: str, row: Row, call: Kernel, kernels: list[Kernel]
) -> None:
    short = members_short(kernels, call)
    if short:
        total = [row.get(name) for name in ("wait_ns", "transfer_ns", "undetermined_ns")]
        if call.wait is not None:
            compared.same(f"{what}: sum", sum(n or 0 for n in total), call.end - call.start)
        return
    compared.same(f"{what}: wait_ns", row.get("wait_ns"), call.wait)
    compared.same(f"{what}: transfer_ns", row.get("transfer_ns"), call.transfer)
    compared.same(f"{what}: last_rank", row.get("last_rank"), call.last_rank)
    speeds = bandwidths(call)
    for name, value in zip(("algbw_gbps", "busbw_gbps"), speeds or (None, None), strict=True):
        compared.same(f"{what}: {name}", row.get(name), value)


def _compare_matrix(compared: Comparison, seed: int, trace: Trace, kernels: list[Kernel]) -> None:
    sent = sent_between(kernels)
    if not sent:
        return
    rows = ask_trace(trace, "comm_matrix").to_pylist()
    answered = {(row["from_rank"], row["to_rank"]): row["sent_bytes"] for row in rows}
    for pair, size in sent.items():
        if pair[0] not in trace.ranks or pair[1] not in trace.ranks:
            continue
        compared.same(f"seed {seed}: bytes {pair}", answered.get(pair), size)


def _compare_aligned(compared: Comparison, seed: int, trace: Trace, job: Job) -> None:
    """Hold waits on aligned clocks, and bounds where members are missing, to the truth."""
    true = {(c.rank, BASE_NS + c.start + job.clock[c.rank]): c for c in job.calls}
    for row in ask_trace(trace, "collective_times").to_pylist():
        call = true[row["rank"], row["start_ns"]]
        what = f"seed {seed}: aligned {row['type']} of rank {row['rank']} at {row['start_ns']}"
        if row["wait_ns"] is None:
            continue
        slack = _SLACK_NS + _SIGMAS * (row["wait_ns_sigma"] or 0)
        low = row["wait_ns"] - slack
        high = row["wait_ns"] + (row["undetermined_ns"] or 0) + slack
        if not low <= call.wait <= high:
            compared.differences.append(f"{what}: wait {call.wait} not in {low} to {high}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shown", type=int, default=20, help="differences that are printed")
    arguments = parser.parse_args()
    calls, seed, differences = 0, arguments.seed, []
    while calls < arguments.calls:
        with tempfile.TemporaryDirectory() as folder:
            compared = compare_job(seed, Path(folder))
        calls, seed = calls + compared.calls, seed + 1
        differences += compared.differences
    for line in differences[: arguments.shown]:
        print(line)
    print(f"{calls:,} calls of {seed - arguments.seed} jobs: {len(differences):,} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
