"""Hold what-ifs to training steps measured on one GPU.

    python -m bench.gpu.score [FOLDER] [--only NAME] [--json FILE]

FOLDER holds what `bench/gpu/record.py` wrote; by default what was recorded on an H100. From the
recording of each job every other one is predicted that an edit leads to; the step and the memory
that were measured there, without the profiler, are the truth.
"""

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import htk

RECORDED = Path(__file__).parent / "recorded/steps"
GIB = 2**30


@dataclass(frozen=True)
class Prediction:
    """A step that was predicted, beside the measured one; a refused one has no figure."""

    before: str
    after: str
    edit: str
    kinds: str
    measured_ms: float
    predicted_ms: float | None
    lo90_ms: float | None
    hi90_ms: float | None
    no_change_ms: float
    measured_gib: float
    predicted_gib: float | None
    verdict: str
    reason: str

    @property
    def miss_pct(self) -> float | None:
        if self.predicted_ms is None:
            return None
        return 100 * (self.predicted_ms / self.measured_ms - 1)

    @property
    def memory_miss_pct(self) -> float | None:
        if self.predicted_gib is None:
            return None
        return 100 * (self.predicted_gib / self.measured_gib - 1)

    @property
    def is_held(self) -> bool | None:
        if self.lo90_ms is None or self.hi90_ms is None:
            return None
        return self.lo90_ms <= self.measured_ms <= self.hi90_ms


def list_edits(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the edits that lead from one job to the other; None where no edit does."""
    names = before.keys() | after.keys()
    changed = {name for name in names if before.get(name) != after.get(name)}
    edits = {}
    for name in changed:
        old: Any = before.get(name)
        new: Any = after.get(name)
        if name == "batch":
            edits["batch"] = f"{new / old:g}x"
        elif name == "seq":
            edits["seq"] = str(new)
        elif name == "checkpointing":
            edits["checkpointing"] = "on" if new else "off"
        elif name == "accumulation":
            edits["accumulation"] = f"{new / old:g}x"
        elif name == "precision" and new in ("bf16", "tf32", "fp32"):
            edits["precision"] = new
        elif name == "graph" and new:
            edits["graphs"] = "on"
        elif name == "norm" and new == "fused":
            edits["replace"] = "RMSNorm=fused"
        else:
            return None
    return edits


def list_pairs(folder: Path) -> Iterator[tuple[Path, Path, dict[str, str]]]:
    """Return each pair of recordings of one job and the edits that lead from one to the other."""
    measured = {p.parent: json.loads(p.read_text()) for p in sorted(folder.glob("*/measured.json"))}
    for before, facts in measured.items():
        if find_recording(before) is None:
            continue
        if facts["job"]["graph"] or facts["job"]["compiled"] or facts["job"].get("fault"):
            continue
        for after, other in measured.items():
            if other["job"].get("fault"):
                continue
            edits = list_edits(facts["job"], other["job"])
            if edits and before.name.split("_")[0] == after.name.split("_")[0]:
                yield before, after, edits


def find_recording(folder: Path) -> Path | None:
    """Return the trace of a job; None where only its times were kept."""
    return next(folder.glob("rank0.pt.trace.json.*"), None)


def predict_pair(before: Path, after: Path, edits: Mapping[str, str]) -> Prediction:
    facts, truth = (json.loads((p / "measured.json").read_text()) for p in (before, after))
    recording = find_recording(before)
    assert recording is not None
    scenario = htk.whatif(recording).measured(round(1e6 * facts["step_ms"]))
    for name, value in edits.items():
        scenario = scenario.change(name, value)
    row: dict[str, Any] = {}
    # A graph's own pool is reserved, and counts as allocated no longer.
    figures = ("peak_allocated_bytes", "allocated_bytes")
    if truth["job"]["graph"]:
        figures = ("peak_reserved_bytes", "peak_memory_bytes")
    reason = ""
    try:
        result = scenario.run()
        row = result.table.to_pylist()[0]
        reason = "refused" if row.get("step_time_ns") is None else ""
    except Exception as error:  # a refusal, or a fault: both stand on the page
        reason = f"{type(error).__name__}: {error}"[:200]
    return Prediction(
        before=before.name,
        after=after.name,
        edit=" ".join(f"--{name} {value}" for name, value in edits.items()),
        kinds=" and ".join(sorted(edits)),
        measured_ms=truth["step_ms"],
        predicted_ms=_scale(row.get("step_time_ns"), 1e6),
        lo90_ms=_scale(row.get("step_time_ns_lo90"), 1e6),
        hi90_ms=_scale(row.get("step_time_ns_hi90"), 1e6),
        no_change_ms=facts["step_ms"],
        measured_gib=truth[figures[0]] / GIB,
        predicted_gib=_scale(row.get(figures[1]), GIB),
        verdict=str(row.get("verdict", "")),
        reason=reason,
    )


def _scale(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=RECORDED)
    parser.add_argument("--json", type=Path, help="file to write all predictions to")
    parser.add_argument("--only", default="", help="the recording to predict from")
    args = parser.parse_args()
    predictions = []
    for before, after, edits in list_pairs(args.folder):
        if args.only and before.name != args.only:
            continue
        prediction = predict_pair(before, after, edits)
        predictions.append(prediction)
        print(format_line(prediction), flush=True)
    print_summary(predictions)
    if args.json:
        args.json.write_text(json.dumps([vars(p) for p in predictions], indent=1))


def format_line(p: Prediction) -> str:
    if p.predicted_ms is None:
        return f"{p.before:24} {p.edit:44} refused: {p.reason}"
    held = "held" if p.is_held else "MISSED"
    line = f"{p.before:24} {p.edit:44} {p.measured_ms:8.2f} ms, predicted {p.predicted_ms:8.2f} ms"
    line += f" {p.miss_pct:+6.1f} % [{p.lo90_ms:.1f}, {p.hi90_ms:.1f}] {held:6}"
    if p.memory_miss_pct is not None:
        line += f" memory {p.measured_gib:6.2f} GiB {p.memory_miss_pct:+6.1f} %"
    return line


def print_summary(predictions: list[Prediction]) -> None:
    """Print for each kind of edit how far predictions lay off, and how often intervals held."""
    by_kind: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        by_kind[prediction.kinds].append(prediction)
    for kind, rows in sorted(by_kind.items()):
        misses = sorted(abs(p.miss_pct) for p in rows if p.miss_pct is not None)
        memory = [abs(p.memory_miss_pct) for p in rows if p.memory_miss_pct is not None]
        line = f"{kind:36} n {len(rows):3} refused {len(rows) - len(misses):3}"
        if misses:
            farthest = misses[int(0.9 * (len(misses) - 1))]
            line += f" median {statistics.median(misses):5.1f} 90th {farthest:5.1f}"
            line += f" held {sum(p.is_held is True for p in rows)}"
        if memory:
            line += f" memory {statistics.median(memory):5.1f}"
        print(line)


if __name__ == "__main__":
    main()
