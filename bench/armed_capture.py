"""What a capture costs while it waits for its trigger, and what a recording leaves behind.

    python bench/armed_capture.py [--steps 20000] [--rounds 15]

Prints one JSON object of CPU times. `step_us`: one `recording.step()` of an armed capture by
trigger, one step of the callbacks for Lightning and transformers round it (where they are
installed), and an empty call in the same loop, which is included in the others. `share_pct`: the
dearest of them as a share of a training step of 100 ms. `operator_us`: a small torch operator
without a capture, under an armed one, and after a recording has ended, measured in turns.
"""

import argparse
import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch

import htk

_STEP_MS = 100
_FAR = 10**9  # a step that no run reaches
TRIGGERS: dict[str, dict[str, Any]] = {
    "at_steps": {"at_steps": [_FAR]},
    "on_signal": {"on_signal": "SIGUSR1"},
    "outlier": {"outlier": 1e9},
    "all three": {"at_steps": [_FAR], "on_signal": "SIGUSR1", "outlier": 1e9},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20_000, help="calls of a round")
    parser.add_argument("--rounds", type=int, default=15, help="rounds, of which the median counts")
    args = parser.parse_args()
    torch.set_num_threads(1)
    step_us = {"empty call": measured(lambda: None, args.steps, args.rounds)}
    for name, options in TRIGGERS.items():
        with htk.capture(tempfile.mkdtemp(), **options) as recording:
            step_us[name] = measured(recording.step, args.steps, args.rounds)
    step_us |= {name: measured(call, args.steps, args.rounds) for name, call in callbacks()}
    dearest = max(step_us.values()) - step_us["empty call"]
    print(
        json.dumps(
            {
                "step_us": {name: round(cost, 2) for name, cost in step_us.items()},
                "share_pct": round(100 * dearest / (_STEP_MS * 1000), 4),
                "operator_us": operators(args.steps, args.rounds),
                "torch": torch.__version__,
            },
            indent=1,
        )
    )


def measured(call: Callable[[], object], calls: int, rounds: int) -> float:
    """Return the CPU time of a call in us: the median over rounds."""
    return median(_round(call, calls) for _ in range(rounds))


def _round(call: Callable[[], object], calls: int) -> float:
    began = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - began) / calls / 1000


def callbacks() -> list[tuple[str, Callable[[], object]]]:
    """Return what a trainer calls at each step, with an armed capture begun."""
    armed, named_callbacks = TRIGGERS["at_steps"], list[tuple[str, Callable[[], object]]]()
    if find_spec("lightning"):
        from htk.recording.lightning import LightningCapture

        ours, trainer = (
            LightningCapture(tempfile.mkdtemp(), **armed),
            SimpleNamespace(global_step=0),
        )
        ours.on_train_start(trainer, None)

        def batch_end() -> None:
            trainer.global_step += 1
            ours.on_train_batch_end(trainer, None, None, None, 0)

        named_callbacks.append(("Lightning", batch_end))
    if find_spec("transformers"):
        from htk.recording.huggingface import TransformersCapture

        theirs = TransformersCapture(tempfile.mkdtemp(), **armed)
        theirs.on_train_begin(None, None, None)
        named_callbacks.append(("transformers", lambda: theirs.on_step_end(None, None, None)))
    return named_callbacks


def operators(calls: int, rounds: int) -> dict[str, float]:
    """Return the CPU time of a small operator in us, by what was recorded round it or before."""
    value = torch.ones(8)

    def small() -> None:
        torch.add(value, value)

    costs: dict[str, list[float]] = {"no capture": [], "armed": []}
    for _ in range(rounds):  # in turns: what else the machine does is shared
        costs["no capture"].append(_round(small, calls))
        with htk.capture(tempfile.mkdtemp(), at_steps=[_FAR]):
            costs["armed"].append(_round(small, calls))
    with (
        contextlib.redirect_stderr(io.StringIO()),
        htk.capture(tempfile.mkdtemp(), at_steps=[1], active=1) as recording,
    ):
        for _ in range(3):
            small()
            recording.step()
    assert recording.paths, "the recording that was to end did not begin"
    costs["after a recording"] = [_round(small, calls) for _ in range(rounds)]
    return {name: round(median(rows), 3) for name, rows in costs.items()}


if __name__ == "__main__":
    main()
