"""The guide's figures are those of its commands."""

import re
from pathlib import Path

import pytest

from bench.serving.rows import published
from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.serving.objectives import Objective, list_served_layouts, most_within
from htk.planning.serving.server import Server, Speculation
from htk.planning.serving.steady import Load, SteadyServer
from htk.planning.serving.table import compute_token_price, tighten_objective

ROOT = Path(__file__).parents[4]
TEXT = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
GUIDE = " ".join(TEXT.split())
REPLICA = Server(
    decoder("llama3-70b"), gpu("h100"), 4, weights="fp8", kv_cache="fp8", price=2.5
)  # fmt: skip


def test_the_map() -> None:
    steady = SteadyServer(REPLICA, Load(1024, 256))
    alone, some, many = (steady.answering(n) for n in (1, 64, 1024))
    assert f"a token every {alone.tpot_ns / 1e6:.1f} ms" in GUIDE
    assert f"and {alone.tokens_per_s / 4:.0f} tokens a second and GPU" in GUIDE
    assert f"a token takes {some.tpot_ns / 1e6:.1f} ms" in GUIDE
    assert f"gives {many.tokens_per_s / 4:.0f} tokens a second" in GUIDE
    price = compute_token_price(REPLICA, many.tokens_per_s, 4)
    assert f"at ${price:.2f} a million, and nobody would wait {many.tpot_ns / 1e6:.0f} ms" in GUIDE


def test_the_limits() -> None:
    steady, limits = SteadyServer(REPLICA, Load(1024, 256)), Objective(500e6, 50e6)
    middle, sure = (
        most_within(steady, limits),
        most_within(steady, tighten_objective(REPLICA, limits)),
    )
    assert middle is not None and sure is not None
    assert f"{middle.requests:.0f} requests at once, {middle.requests_per_s:.1f} a second" in GUIDE
    assert f"with {sure.requests:.0f} requests, {sure.requests_per_s:.1f} a second" in GUIDE


def test_prefill_and_decode_apart() -> None:
    rows = list(list_served_layouts(REPLICA, Load(4096, 256), Objective(600e6, 15e6)))
    *together, apart = rows
    best = max(together, key=lambda row: row.requests_per_s_per_gpu)
    assert best.layout == "tp 8"
    assert f"serve {best.requests_per_s_per_gpu:.3f} requests a second and GPU" in GUIDE
    assert f"Apart it is {apart.requests_per_s_per_gpu:.3f}" in GUIDE
    assert apart.layout == "14 × prefill tp 4 + 3 × decode tp 4"
    assert f"take {apart.kv_transfer_ns / 1e6:.1f} ms between them" in GUIDE
    loose, *_, pair = list_served_layouts(REPLICA, Load(4096, 256), Objective(500e6, 20e6))
    assert pair.requests_per_s_per_gpu < 1.05 * max(
        row.requests_per_s_per_gpu
        for row in list_served_layouts(REPLICA, Load(4096, 256), Objective(500e6, 20e6))
        if "prefill" not in row.layout
    )
    assert loose.gpus == 2


def test_drafts() -> None:
    assert "gives 1 + 0.7 + 0.49 + 0.343 tokens" in GUIDE
    assert Speculation(3, 0.7).tokens == pytest.approx(1 + 0.7 + 0.49 + 0.343)


def test_how_sure_it_is() -> None:
    assert f"against {len(published())} published figures" in GUIDE


def test_the_python_of_the_guide_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)
    assert names["best"].requests == 153  # type: ignore[attr-defined]
