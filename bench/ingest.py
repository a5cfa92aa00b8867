"""How fast traces become tables, against HTA and against bare parsing: ratios of one run.

    python bench/ingest.py [TRACE] [--big-gb 1.0] [--rounds 5]

Every measurement is a fresh process that imports first and is timed after; the contestants take
turns, and the medians are compared. TRACE is a Kineto file (default: the OWLv2 trace of the
reference set, 132,000 events). A contestant that is not installed is left out and named;
`neighbour` needs a C++ compiler, libsimdjson-dev and libisal-dev. CPU seconds include workers.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
SMALL = ROOT / "sample_traces/simulated/llama2-7b/rank0.pt.trace.json.gz"
DEFAULT = "traces/tracelens/mi300/google_owlv2-large-patch14-ensemble__1016001.json.gz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("--big-gb", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(WORKERS[args.worker](args.trace)))
        return
    shared = Path(os.environ.get("HTK_SHARED", ROOT.parent / "shared"))
    trace = args.trace or shared / DEFAULT
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(report(trace, Path(folder), args.big_gb, args.rounds), indent=1))


def report(trace: Path, folder: Path, big_gb: float, rounds: int) -> dict[str, object]:
    one_trace = alternate(["hta", "raw", "raw_pure", "linked", "neighbour"], trace, rounds)
    results: dict[str, object] = {"trace": trace.name, "one_trace": one_trace}
    results["cpu_ratio_to_hta"] = {
        name: round(one_trace["hta"]["cpu_s"] / one_trace[name]["cpu_s"], 1)
        for name in ("raw", "raw_pure", "linked")
        if "hta" in one_trace
    }
    if "neighbour" in one_trace:
        limits = {"fresh": "cpu_s", "best": "cpu_s_best"}  # in a fresh process, with warm buffers
        results["raw_speed_of_neighbour"] = {
            name: round(one_trace["neighbour"][key] / one_trace["raw"]["cpu_s"], 2)
            for name, key in limits.items()
        }
    if "hta" in one_trace:
        results["linked_memory_of_hta"] = round(
            one_trace["linked"]["rss_mb"] / one_trace["hta"]["rss_mb"], 2
        )
    ranks = copies(trace, folder, 8)
    eight = alternate(["hta_folder", "linked_folder"], ranks, 1)
    results["eight_ranks"] = eight
    if "hta_folder" in eight:
        ratio = eight["hta_folder"]["cpu_s"] / eight["linked_folder"]["cpu_s"]
        results["eight_ranks_cpu_ratio_to_hta"] = round(ratio, 1)
    if big_gb:
        from bench.enlarged import enlarged  # its imports are none of the workers'

        big = enlarged(trace, folder / "big.json.gz", big_gb)
        results["big"] = {"gb": big_gb, **alternate(["raw", "linked"], big, 1)}
    return results


def alternate(names: list[str], trace: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Medians of each contestant, taking turns."""
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            result = measured(name, trace)
            if result is None:
                seen.pop(name)
                names = [n for n in names if n != name]
                print(f"left out: {name}", file=sys.stderr)
            else:
                seen[name].append(result)
    return {
        name: {key: round(statistics.median(r[key] for r in results), 4) for key in results[0]}
        for name, results in seen.items()
    }


def measured(name: str, trace: Path) -> dict[str, float] | None:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    if name == "raw_pure":
        environment["HTK_ENGINE"] = "pure"
    command = [sys.executable, __file__, "--worker", name.removesuffix("_pure"), str(trace)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        print(done.stderr.strip()[-300:], file=sys.stderr)
        return None
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def timed(work: Callable[[], object]) -> dict[str, float]:
    cpu, wall = _cpu_seconds(), time.perf_counter()
    kept = work()
    cpu, wall = _cpu_seconds() - cpu, time.perf_counter() - wall
    del kept
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu_s": cpu, "wall_s": wall, "rss_mb": rss}


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its workers that have ended."""
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + workers.ru_utime + workers.ru_stime


def hta(trace: Path) -> dict[str, float]:
    from hta.trace_analysis import TraceAnalysis

    # rank 0 whatever the file says: HTA takes the key as the rank
    return timed(lambda: TraceAnalysis(trace_files={0: str(trace)}, trace_dir=str(trace.parent)))


def hta_folder(folder: Path) -> dict[str, float]:
    from hta.trace_analysis import TraceAnalysis

    files = {k: str(path) for k, path in enumerate(sorted(folder.glob("*.json.gz")))}
    return timed(lambda: TraceAnalysis(trace_files=files, trace_dir=str(folder)))


def raw(trace: Path) -> dict[str, float]:
    import pandas  # noqa: F401  (pyarrow asks for it at its first conversion; imports are apart)

    from htk.base.io.decompress import open_stream
    from htk.parsers.kineto.read import read_events

    def work(path: Path) -> object:
        with open(path, "rb") as file, open_stream(file) as stream:
            return read_events(stream)

    work(SMALL)  # what is imported on first use stands apart
    return timed(lambda: work(trace))


def linked(trace: Path) -> dict[str, float]:
    import pandas  # noqa: F401  (pyarrow asks for it at its first conversion; imports are apart)

    from htk.traces.trace.opening import OpenOptions, open_trace

    def work(path: Path) -> object:
        trace_ = open_trace(path, OpenOptions(cache=False))
        return [trace_.tables[name] for name in ("kernel_links", "op_links", "launch_links")]

    work(SMALL)  # what is imported on first use stands apart
    return timed(lambda: work(trace))


def neighbour(trace: Path) -> dict[str, float]:
    """The limit: isa-l's gunzip and every key and value read by simdjson, both in C++."""
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/neighbour"
        build = ["c++", "-O3", "-march=native", "-std=c++17", str(ROOT / "bench/neighbour.cpp")]
        subprocess.run([*build, "-lisal", "-lsimdjson", "-o", program], check=True)
        done = subprocess.run([program, str(trace)], check=True, capture_output=True, text=True)
    seconds = json.loads(done.stdout)
    return {"cpu_s": seconds["first"], "cpu_s_best": seconds["best"]}


def copies(trace: Path, folder: Path, count: int) -> Path:
    """A folder of ranks: copies of one trace."""
    ranks = folder / "ranks"
    ranks.mkdir()
    for k in range(count):
        shutil.copy(trace, ranks / f"rank{k}.json.gz")
    return ranks


WORKERS = {
    "hta": hta,
    "hta_folder": hta_folder,
    "raw": raw,
    "linked": linked,
    "linked_folder": linked,
    "neighbour": neighbour,
}

if __name__ == "__main__":
    main()
