"""The guide's figures are those of its commands."""

import math
import re
from pathlib import Path

from htk.physics.hardware import gpu
from htk.physics.network import find_fabric
from htk.physics.presets import decoder
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import plan

ROOT = Path(__file__).parents[4]
GUIDE = " ".join((ROOT / "docs/plan.md").read_text(encoding="utf-8").split())
SEVENTY, H200 = decoder("llama3-70b"), gpu("h200")


def layout(network: str | None = None) -> PlannedJob:
    return PlannedJob(
        SEVENTY, H200, 160, 8, 1, 8192, tensor_parallel=4, pipeline_parallel=2, virtual_stages=10,
        accumulation=16, strategy="zero1", run_tokens=1.4e12,
        fabric=find_fabric(network) if network else None,
    )  # fmt: skip


def test_the_days_of_a_70b() -> None:
    p = plan(layout())
    low, high = (end / p.step_ns * (p.run_days or math.nan) for end in p.interval(90))
    assert f"A step of {p.step_ns / 1e9:.1f} s at {100 * p.mfu:.0f} % of the peak" in GUIDE
    assert f"{p.run_days:.1f} days on 1,280 GPUs" in GUIDE
    assert f"takes {low:.1f} to {high:.1f} days" in GUIDE
    assert f"take {160 * high / 10:.0f} nodes" in GUIDE


def test_what_the_network_does_to_them() -> None:
    usual, slow = plan(layout("roce-400")).run_days, plan(layout("roce-100")).run_days
    assert f"({usual:.1f} days)" in GUIDE and f"it is {slow:.1f} days" in GUIDE
    sharded = plan(
        PlannedJob(
            SEVENTY,
            H200,
            160,
            8,
            1,
            8192,
            "selective",
            run_tokens=1.4e12,
            strategy="full_shard",
            fabric=find_fabric("roce-100"),
        )
    )
    assert f"{sharded.run_days:.1f} days, of whose steps" in GUIDE
    sent = sum(t.wire_bytes for t in sharded.transfers) / 2**30
    between = sum(t.wire_bytes for t in plan(layout()).transfers if t.kind == "data") / 2**30
    assert f"sends {sent:.0f} GiB a step" in GUIDE
    assert f"sends {between:.0f} between replicas" in GUIDE


def test_the_python_of_the_guide_runs() -> None:
    text = (ROOT / "docs/plan.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)
    answer = names["answer"]
    for word in re.findall(r"`\.?(?:answer\.)?(\w+)`", text.partition("`answer.step_ns`")[2]):
        assert hasattr(answer, word), word
