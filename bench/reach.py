"""Many ranks on one machine: CPU time and own memory of commands, each in a process of its own.

python bench/reach.py [--ranks 64 [--steps 12] [--layers 24] | --folder runs/latest] [--memory 64MB]
python -m bench.reach --repeat TRACE --gigabytes 4 [--memory 512MB]   (one large file)
python -m bench.reach --on-ray 64,256,1024                  (a cluster of two workers here)

One line of JSON for each command: CPU seconds of it and its children, the most anonymous memory
that all of them held at a time, and both in relation to the first command of its kind. Answers of
one question are compared and must be the same.
"""

import argparse
import hashlib
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SMALL = "--hidden 256 --heads 4 --ffn 512 --vocab 1000 --seq 128 --micro-batch 1"
INTERVAL_S = 0.02
_LOOKS_AT_MAPS = 10  # intervals: the kernel walks all pages for it
UNJOINED = "summary, tables of files kept alone"  # as `htk map` leaves them


def anonymous_bytes(process: int) -> int:
    """Return the anonymous memory of a process and its children."""
    return _add_up(process, "status", "RssAnon:")


def dirty_bytes(process: int) -> int:
    """Return the pages of a process and its children that only memory holds: anonymous ones, and
    those of mapped files that are not yet written."""
    return _add_up(process, "smaps_rollup", "Pss_Dirty:")


def _add_up(process: int, file: str, field: str) -> int:
    """Return what a file of /proc says of a process and its children, in bytes."""
    total = 0
    with suppress(OSError, IndexError):  # it ended meanwhile
        stated = Path(f"/proc/{process}/{file}").read_text()
        total = int(stated.partition(field)[2].split()[0]) << 10
        for task in Path(f"/proc/{process}/task").iterdir():
            children = (task / "children").read_text().split()
            total += sum(_add_up(int(child), file, field) for child in children)
    return total


def measured(words: list[str], cache: Path) -> dict[str, float]:
    """Run a command of htk; return its CPU seconds, the most anonymous memory it held, and the most
    with mapped pages that are not yet written, in MB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"HTK_CACHE_DIR": str(cache)}
    child = subprocess.Popen([sys.executable, "-m", "htk", *words], env=environment)
    most = 0
    most_dirty = 0
    for look in itertools.count():
        if child.poll() is not None:
            break
        most = max(most, anonymous_bytes(child.pid))
        if look % _LOOKS_AT_MAPS == 0:
            most_dirty = max(most_dirty, dirty_bytes(child.pid))
        time.sleep(INTERVAL_S)
    if child.returncode:
        raise SystemExit(f"htk {' '.join(words)}: exit code {child.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "cpu_s": round(cpu, 2),
        "anonymous_mb": round(most / 1e6),
        "dirty_mb": round(most_dirty / 1e6),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranks", type=int, default=64)
    options.add_argument("--steps", type=int, default=3, help="of each rank: 12 are 5 MB of text")
    options.add_argument("--layers", type=int, default=2, help="of the model")
    options.add_argument("--folder")
    options.add_argument("--memory", default="64MB")
    options.add_argument("--repeat", type=Path, help="a trace to make one large file of")
    options.add_argument("--gigabytes", type=float, default=4.0, help="of its text")
    options.add_argument("--on-ray", help="sizes of jobs, in ranks, e.g. 64,256,1024")
    chosen = options.parse_args()
    if chosen.on_ray:
        ray([int(ranks) for ranks in chosen.on_ray.split(",")])
        return
    if chosen.repeat:
        one_file(chosen.repeat, chosen.gigabytes, chosen.memory)
        return
    with tempfile.TemporaryDirectory() as scratch:
        traces = chosen.folder or f"{scratch}/job"
        if not chosen.folder:
            steps = ("--steps", str(chosen.steps))
            simulate(Path(traces), chosen.ranks, *steps, layers=chosen.layers)
        report(traces, chosen.memory, Path(scratch))


def simulate(folder: Path, ranks: int, *options: str, layers: int = 2) -> Path:
    """Write small traces of a job of so many ranks, of eight a node."""
    nodes = ["--nodes", str(max(ranks // 8, 1)), "--gpus-per-node", str(min(ranks, 8))]
    model = ["--model", "tiny", "--layers", str(layers), *SMALL.split()]
    asked = ["simulate", *model, *nodes, *options, "-o", str(folder)]
    subprocess.run(
        [sys.executable, "-m", "htk", *asked],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    return folder


def ray(sizes: Sequence[int]) -> None:
    """Measure what a cluster costs, of jobs of these sizes."""
    from bench.on_ray import START_RANKS, STEPS, on_ray

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        jobs = [
            (ranks, steps, simulate(folder / f"job{ranks}-{steps}", ranks, "--steps", str(steps)))
            for ranks in sizes
            for steps in STEPS
        ]
        on_ray(jobs, simulate(folder / "start", START_RANKS, "--steps", "1"), folder)


def one_file(trace: Path, gigabytes: float, memory: str) -> None:
    """Measure commands on one large file, each from a cold cache; questions without and with a
    limit, whose answers must be the same."""
    from bench.enlarged import enlarged

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        large = enlarged(trace, folder / "large.json.gz", gigabytes)
        written = folder / "written"
        no_limit: tuple[str, ...] = ()
        both = (no_limit, ("--memory", memory))
        for words, limits in (
            (["kernel-top"], both),
            (["time-breakdown"], both),
            (["summary"], both),
            (["trim", "--from", "100ms", "--to", "400ms"], (no_limit,)),
            (["convert"], (no_limit,)),
        ):
            answers = set()
            for limit in limits:
                asked = [words[0], str(large), *words[1:], *limit, "-o", str(written)]
                figures = measured(asked, folder / "cache")
                shutil.rmtree(folder / "cache")
                speed = {"mb_per_cpu_s": round(1e3 * gigabytes / figures["cpu_s"])}
                row = {"command": words[0], "memory": memory if limit else "", **figures, **speed}
                print(json.dumps(row), flush=True)
                answers.add(_take_digest(written))
            if len(answers) != 1:
                raise SystemExit(f"{words[0]}: the answers differ")


def _take_digest(written: Path) -> str:
    """Return a digest of the bytes that a command wrote, and remove them."""
    digest = hashlib.sha256()
    for file in sorted(written.rglob("*")) if written.is_dir() else [written]:
        if file.is_file():
            digest.update(file.read_bytes())
    if written.is_dir():
        shutil.rmtree(written)
    else:
        written.unlink()
    return digest.hexdigest()


def forget_joined(cache: Path) -> None:
    """Remove what the cache holds of several files together."""
    from htk.base.io.store import Store

    for entry in Store(cache).list():
        if entry.is_joined:
            shutil.rmtree(entry.folder)


def report(traces: str, memory: str, scratch: Path) -> None:
    question, output = "time-breakdown", f"{scratch}/answer.csv"
    processes = ("--on", "processes")
    path = ["critical-path", traces, "--by", "piece", "-o", output]
    commands = {
        "by rank, cold cache": [question, traces, "--memory", "1TB", "-o", output],
        "by rank, cold cache, some at a time": [question, traces, "--memory", memory, "-o", output],
        "by rank, cold cache, in processes": [question, traces, *processes, "-o", output],
        "summary, cold cache": ["summary", traces, "-o", f"{scratch}/summary.txt"],
        "summary": ["summary", traces, "-o", f"{scratch}/summary.txt"],
        UNJOINED: ["summary", traces, "-o", f"{scratch}/summary.txt"],
        "by rank": [question, traces, "-o", output],
        "critical path": [*path, "--memory", "1TB"],
        "critical path, cut at collectives": [*path, "--memory", memory],
    }
    first: dict[str, dict[str, float]] = {}
    answers: dict[str, set[str]] = {question: set(), path[0]: set()}
    for name, words in commands.items():
        if name == UNJOINED:
            forget_joined(scratch / "cache")
        # What one question kept, another would read: in caches of their own each reads the traces.
        cache = name if name.startswith("by rank, cold") else "cache"
        figures = measured(words, scratch / cache)
        base = first.setdefault(words[0], figures)
        ratios = {f"{k}_ratio": round(v / max(base[k], 0.01), 2) for k, v in figures.items()}
        print(json.dumps({"command": name, **figures, **ratios}), flush=True)
        if words[0] in answers:
            answers[words[0]].add(Path(output).read_text())
    if any(len(texts) != 1 for texts in answers.values()):
        raise SystemExit("the answers differ")


if __name__ == "__main__":
    main()
