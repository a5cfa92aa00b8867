"""How fast traces become tables, against HTA and against bare parsing: ratios of one run.

    python bench/ingest.py [TRACE] [--big-gb 1.0] [--rounds 5]

Every measurement is a fresh process that imports first and is timed after; the contestants take
turns, and the medians are compared. TRACE is a Kineto file (default: the OWLv2 trace of the
reference set, 132,000 events). A contestant that is not installed is left out and named.
"""

import argparse
import gzip
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
    one = alternate(["hta", "raw", "raw_pure", "linked", "neighbour"], trace, rounds)
    found: dict[str, object] = {"trace": trace.name, "one_trace": one}
    found["cpu_ratio_to_hta"] = {
        name: round(one["hta"]["cpu_s"] / one[name]["cpu_s"], 1)
        for name in ("raw", "raw_pure", "linked")
        if "hta" in one
    }
    if "neighbour" in one:
        found["raw_speed_of_neighbour"] = round(one["neighbour"]["cpu_s"] / one["raw"]["cpu_s"], 2)
    if "hta" in one:
        found["linked_memory_of_hta"] = round(one["linked"]["rss_mb"] / one["hta"]["rss_mb"], 2)
    ranks = copies(trace, folder, 8)
    eight = alternate(["hta_folder", "linked_folder"], ranks, 1)
    found["eight_ranks"] = eight
    if "hta_folder" in eight:
        wall = eight["hta_folder"]["wall_s"] / eight["linked_folder"]["wall_s"]
        found["eight_ranks_wall_ratio_to_hta"] = round(wall, 1)
    if big_gb:
        big = enlarged(trace, folder / "big.json.gz", big_gb)
        found["big"] = {"gb": big_gb, **alternate(["raw", "linked"], big, 1)}
    return found


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
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def timed(work: Callable[[], object]) -> dict[str, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    kept = work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    del kept
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu_s": cpu, "wall_s": wall, "rss_mb": rss}


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

    import htk.parsers.kineto.pure
    from htk.core.engine import engine
    from htk.io.decompress import open_stream
    from htk.parsers.kineto.read import read_events

    if engine() == "compiled":
        import htk.parsers.kineto.native  # noqa: F401

    def work() -> object:
        with open(trace, "rb") as file, open_stream(file) as stream:
            return read_events(stream)

    return timed(work)


def linked(trace: Path) -> dict[str, float]:
    import pandas  # noqa: F401  (pyarrow asks for it at its first conversion; imports are apart)

    import htk.derived.registry
    from htk.trace.opening import OpenOptions, open_trace

    for name in htk.derived.registry.NAMES:
        htk.derived.registry.maker(name)

    def work() -> object:
        trace_ = open_trace(trace, OpenOptions(cache=False))
        return [trace_.tables[name] for name in ("kernel_links", "op_links", "launch_links")]

    return timed(work)


def neighbour(trace: Path) -> dict[str, float]:
    """The physical neighbour: block-wise gunzip, then a bare simdjson parse."""
    import simdjson
    from isal import igzip

    def work() -> object:
        with igzip.open(trace, "rb") as file:
            blocks = []
            while block := file.read(1 << 20):
                blocks.append(block)
        return simdjson.Parser().parse(b"".join(blocks))

    return timed(work)


def copies(trace: Path, folder: Path, count: int) -> Path:
    """A folder of ranks: copies of one trace."""
    ranks = folder / "ranks"
    ranks.mkdir()
    for k in range(count):
        shutil.copy(trace, ranks / f"rank{k}.json.gz")
    return ranks


def enlarged(trace: Path, target: Path, gigabytes: float) -> Path:
    """The trace's events again and again, until the text has that size."""
    with (gzip.open if trace.suffix == ".gz" else open)(trace, "rb") as stored:
        document = json.load(stored)
    events = json.dumps(document.pop("traceEvents"), indent=1)[1:-1].rstrip().encode()
    with gzip.open(target, "wb", compresslevel=1) as file:
        file.write(json.dumps(document)[:-1].encode() + b', "traceEvents": [')
        for k in range(max(1, round(gigabytes * 1e9 / len(events)))):
            file.write((b"," if k else b"") + events)
        file.write(b"]}")
    return target


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
