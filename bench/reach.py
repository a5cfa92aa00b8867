"""Many ranks on one machine: CPU time and own memory of commands, each in a process of its own.

python bench/reach.py [--ranks 64 | --folder runs/latest] [--memory 64MB]
python -m bench.reach --repeat TRACE --gigabytes 4 [--memory 512MB]   (one large file)

One line of JSON for each command: CPU seconds of it and its children, the most anonymous memory
that all of them held at a time, and both in relation to the first command of its kind. Answers of
one question are compared and must be the same.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

SMALL = "--layers 2 --hidden 256 --heads 4 --ffn 512 --vocab 1000 --seq 128 --micro-batch 1"
INTERVAL_S = 0.02


def anonymous_bytes(process: int) -> int:
    """Return the anonymous memory of a process and its children."""
    total = 0
    with suppress(OSError, IndexError):  # it ended meanwhile
        status = Path(f"/proc/{process}/status").read_text()
        total = int(status.partition("RssAnon:")[2].split()[0]) << 10
        for task in Path(f"/proc/{process}/task").iterdir():
            children = (task / "children").read_text().split()
            total += sum(anonymous_bytes(int(child)) for child in children)
    return total


def measured(words: list[str], cache: Path) -> dict[str, float]:
    """Run a command of htk; return its CPU seconds and the most anonymous memory it held, in MB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"HTK_CACHE_DIR": str(cache)}
    child = subprocess.Popen([sys.executable, "-m", "htk", *words], env=environment)
    most = 0
    while child.poll() is None:
        most = max(most, anonymous_bytes(child.pid))
        time.sleep(INTERVAL_S)
    if child.returncode:
        raise SystemExit(f"htk {' '.join(words)}: exit code {child.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_s": round(cpu, 2), "anonymous_mb": round(most / 1e6)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranks", type=int, default=64)
    options.add_argument("--folder")
    options.add_argument("--memory", default="64MB")
    options.add_argument("--repeat", type=Path, help="a trace to make one large file of")
    options.add_argument("--gigabytes", type=float, default=4.0, help="of its text")
    chosen = options.parse_args()
    if chosen.repeat:
        one_file(chosen.repeat, chosen.gigabytes, chosen.memory)
        return
    with tempfile.TemporaryDirectory() as scratch:
        traces = chosen.folder or f"{scratch}/job"
        if not chosen.folder:
            nodes = ["--nodes", str(max(chosen.ranks // 8, 1)), "--gpus-per-node", "8"]
            asked = ["simulate", "--model", "tiny", *SMALL.split(), *nodes, "-o", traces]
            subprocess.run(
                [sys.executable, "-m", "htk", *asked],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
            )
        report(traces, chosen.memory, Path(scratch))


def one_file(trace: Path, gigabytes: float, memory: str) -> None:
    """Measure questions about one large file: from a cold cache, and summary once it is cached."""
    from bench.enlarged import enlarged

    with tempfile.TemporaryDirectory() as scratch:
        large = str(enlarged(trace, Path(scratch) / "large.json.gz", gigabytes))
        output = ["-o", f"{scratch}/answer.txt"]
        for cache, words in (
            ("first", ["kernel-top", large, *output]),
            ("first", ["summary", large, *output]),
            ("second", ["kernel-top", large, "--memory", memory, *output]),
            ("third", ["summary", large, "--memory", memory, *output]),
        ):
            figures = measured(words, Path(scratch) / cache)
            print(json.dumps({"command": words[0], "cache": cache, **figures}), flush=True)


def report(traces: str, memory: str, scratch: Path) -> None:
    question, output = "time-breakdown", f"{scratch}/answer.csv"
    commands = {
        "summary, cold cache": ["summary", traces, "-o", f"{scratch}/summary.txt"],
        "summary": ["summary", traces, "-o", f"{scratch}/summary.txt"],
        "by rank, all at once": [question, traces, "--memory", "1TB", "-o", output],
        "by rank, some at a time": [question, traces, "--memory", memory, "-o", output],
        "by rank, in processes": [question, traces, "--on", "processes", "-o", output],
    }
    first: dict[str, dict[str, float]] = {}
    answers = set()
    for name, words in commands.items():
        figures = measured(words, scratch / "cache")
        base = first.setdefault(words[0], figures)
        ratios = {f"{k}_ratio": round(v / max(base[k], 0.01), 2) for k, v in figures.items()}
        print(json.dumps({"command": name, **figures, **ratios}), flush=True)
        if words[0] == question:
            answers.add(Path(output).read_text())
    if len(answers) != 1:
        raise SystemExit("the answers differ")


if __name__ == "__main__":
    main()
