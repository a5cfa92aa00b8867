"""How often `htk diff` calls a row significant between runs that differ in noise alone.

    python bench/equal_runs.py             50 pairs of simulated runs, written and read as files
    python bench/equal_runs.py --pairs 9   fewer

Prints, for each kind of row, how many rows were shown and how many of them were called
significant, and then how often a kernel that takes 5 % longer was found. The figures in
docs/gate.md are of this program. It ends with 1 where more than one row in 29 is called
significant, or a slower kernel is missed.
"""

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from htk.recording.simulate.config import Config
from htk.recording.simulate.job import simulate_job
from htk.traces.compare.baseline import RecordedBaseline, build_cost_baseline
from htk.traces.compare.items import EACH
from htk.traces.compare.runs import list_cost_changes
from htk.traces.trace.opening import OpenOptions, open_trace

JOBS = (
    Config("llama2-7b", layers=4, gpus_per_node=4, micro_batch=4, seq=512, steps=10),
    Config("gpt3-126m", layers=3, gpus_per_node=2, strategy="ddp", steps=10, noise=0.02),
    Config("llama2-7b", layers=2, nodes=2, gpus_per_node=2, steps=10, heavy_tails=True),
)
LEAST_PCT = 5  # a kernel that takes so much longer must be found
SLOWER = f"regressed_kernel:step={JOBS[0].first_step},factor={1 + LEAST_PCT / 100}"


def run(folder: Path, config: Config, number: int, *plants: str) -> RecordedBaseline:
    """The costs of one run, read from its traces."""
    target = folder / "run"
    shutil.rmtree(target, ignore_errors=True)
    simulate_job(Config(**{**config.__dict__, "run": number, "plants": plants}), target)
    return build_cost_baseline(open_trace(target, OpenOptions(cache=False)).tables)


def measure(folder: Path, pairs: int) -> tuple[Counter[str], Counter[str], int, int]:
    """Rows, and rows called significant, by kind; slower kernels, and those found."""
    shown: Counter[str] = Counter()
    called: Counter[str] = Counter()
    detected = planted = 0
    for number in range(pairs):
        config = JOBS[number % len(JOBS)]
        config = Config(**{**config.__dict__, "seed": number})
        base = run(folder, config, 0)
        for row in list_cost_changes(base, run(folder, config, 1), EACH, 10).to_pylist():
            shown[row["by"]] += 1
            called[row["by"]] += bool(row["significant"])
        slower = list_cost_changes(
            base, run(folder, config, 2, SLOWER), ("kernel",), 10
        ).to_pylist()
        named = [r for r in slower if "silu" in r["name"] or "gelu" in r["name"]]
        planted += 1
        detected += any(r["change"] == "slower" and r["significant"] for r in named)
        print(f"\r{number + 1} of {pairs} pairs", end="", file=sys.stderr)
    print(file=sys.stderr)
    return shown, called, planted, detected


def main() -> int:
    parser = argparse.ArgumentParser(description="False alarms of htk diff between equal runs.")
    parser.add_argument("--pairs", type=int, default=50)
    with tempfile.TemporaryDirectory() as folder:
        shown, called, planted, detected = measure(Path(folder), parser.parse_args().pairs)
    for kind in shown:
        print(f"{kind:8} {called[kind]:4} of {shown[kind]:5} rows called significant")
    everything, alarms = sum(shown.values()), sum(called.values())
    print(f"{'all':8} {alarms:4} of {everything:5} rows: {29 * alarms / everything:.2f} of 29")
    print(f"a kernel {LEAST_PCT} % slower: found in {detected} of {planted} pairs")
    return int(29 * alarms > everything or detected < planted)


if __name__ == "__main__":
    sys.exit(main())
