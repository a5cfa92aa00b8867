"""Run every benchmark of speed and write docs/benchmarks.md.

    python -m bench [--only commands …] [--peers FOLDER] [--tracelens CHECKOUT] [--large TRACE]

Each benchmark is a script of this folder, run by itself; its figures are kept in bench/figures, so
that one can be run again without the others (`--only`, or none of them to write the page alone).
Other tools run in environments that are made in --peers. Figures are ratios of one run: the page
says on what machine, and how busy it was.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.commands import importing, take_turns
from bench.page import written

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "bench/figures"
PAGE, PICTURE = ROOT / "docs/benchmarks.md", ROOT / "docs/img/benchmarks-growth.svg"
# The script of each benchmark, and what it is run with.
BENCHMARKS: Mapping[str, tuple[str, ...]] = {
    "commands": ("commands.py", "--rounds", "5"),
    "rows_by": ("rows_by.py", "--rounds", "5"),
    "ingest": ("ingest.py", "--rounds", "5"),
    "analyses": (
        *("analyses.py", "--events", "100000", "1000000", "10000000"),
        *("--simulated", "2", "16"),
    ),
    "whatif": ("whatif.py", "--draws", "50", "--repeat", "30"),
    "rewriting": ("rewriting.py",),
    "timeline": ("timeline.py", "--events", "100000", "1000000", "10000000"),
    "dashboard": ("dashboard.py", "--users", "20", "--seconds", "60"),
    "reach": ("reach.py", "--ranks", "256"),
}
_WITH_LARGE = {"commands": "--large", "rows_by": "--large", "ingest": "", "analyses": ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--peers", type=Path, default=ROOT / ".bench")
    parser.add_argument("--tracelens", type=Path, help="checkout of TraceLens")
    parser.add_argument("--large", type=Path, help="a large trace of your own")
    args = parser.parse_args()
    FIGURES.mkdir(exist_ok=True)
    for name in args.only:
        figures = run(name, args.peers, args.tracelens, args.large)
        (FIGURES / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")
    kept = {p.stem: json.loads(p.read_text()) for p in sorted(FIGURES.glob("*.json"))}
    page, picture = written(kept)
    PAGE.write_text(page)
    if picture:
        PICTURE.write_text(picture)


def run(name: str, peers: Path, tracelens: Path | None, large: Path | None) -> dict[str, Any]:
    """Return what a benchmark printed, and on what machine it ran."""
    script, *options = BENCHMARKS[name]
    if name == "commands":
        options += ["--peers", str(peers)]
        options += ["--tracelens", str(tracelens)] if tracelens else []
    if large and name in _WITH_LARGE:  # first: options that take several words end with the next
        options = [word for word in (_WITH_LARGE[name], str(large)) if word] + options
    print(f"{name}: {script} {' '.join(options)}", file=sys.stderr)
    before = os.getloadavg()[0]
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / script), *options],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    if done.returncode not in (0, 4):  # 4: a limit of its own was missed, which the page shows
        raise SystemExit(f"{script}: exit code {done.returncode}")
    return {"ran": _machine(before), "figures": _read(done.stdout)}


def _read(output: str) -> Any:
    """One JSON document, or one on each line."""
    try:
        return json.loads(output)
    except json.JSONDecodeError:
        return [json.loads(line) for line in output.splitlines() if line.strip()]


def _machine(before: float) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
        "imports_s": round(_time_imports(), 2),
    }


def _time_imports() -> float:
    """Return the CPU seconds of what every table needs: how fast the machine is that day."""
    imports = importing(Path(sys.executable))
    take_turns({"imports": imports}, 5)
    return statistics.median(imports.seconds)


if __name__ == "__main__":
    main()
