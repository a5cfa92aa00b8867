"""Transfers of activations beside compute, in three ways; bounds of each."""

from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import UsageError
from htk.faces.cli import main
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.whatif.api import whatif
from htk.whatif.edits import split
from htk.whatif.edits.overlap import USUAL_CONTENTION
from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, comm, length, period, small_model

K = 1000
MB = 1 << 20


def layered(layers: int = 6, sent: int = 400 * K) -> StepModel:
    """Two kernels, then an all-reduce of tensor parallelism that the next layer waits for; the
    backward pass has none, so that the all-reduces are no gradients'."""
    acts = []
    for k in range(layers):
        waits = (f"t{k - 1}",) if k else ()
        acts += [
            Act(f"qkv{k}", 300 * K, waits=waits, op="aten::mm"),
            Act(f"mm{k}", 500 * K, op="aten::mm"),
            comm(f"t{k}", sent, "all_reduce", waits=(f"mm{k}",), in_bytes=64 * MB, group=4,
                 per_node=4),
        ]  # fmt: skip
    return small_model([*acts, Act("loss", 900 * K, backward=True, waits=(f"t{layers - 1}",))])


def test_two_halves_hide_all_but_the_first_and_last_pieces() -> None:
    model = layered()
    changed = split.apply(model, "batch")
    assert period(model) == (6 * 1200 + 900) * K
    compute = (6 * 800 + 900) * K
    assert compute < period(changed) < 0.9 * period(model)
    # each kernel twice, with what no kernel goes below; beside transfers slower as is usual
    slowed = 1 + USUAL_CONTENTION * 400 / 1600
    assert length(changed, "mm3") > 500 * K
    assert length(changed, "mm3") == pytest.approx(500 * K * slowed, rel=0.03)
    assert any("perfect overlap" in words for words in changed.assumptions)
    assert changed.low_confidence and changed.spread["dependencies"] > 0


def test_pieces_of_products_hide_less_and_tiles_nearly_all_of_what_products_cover() -> None:
    model = layered()
    by_pieces, by_tiles = (period(split.apply(model, v)) for v in ("tensor", "fused"))
    assert period(split.apply(model, "tensor=2")) > by_pieces > by_tiles
    assert by_tiles > (6 * 800 + 900) * K
    # a tile of a product is done after 1/16 of it, the last is sent for 1/16 of the transfer
    slower = 1 + USUAL_CONTENTION * 400 / 500
    each = 300 * K + 500 * K * slower + 400 * K / 16
    assert by_tiles == pytest.approx(6 * each + 900 * K, rel=0.001)


def test_what_takes_longer_to_send_than_to_compute_is_bound_by_its_link() -> None:
    model = layered(sent=5000 * K)
    for value in ("batch", "tensor", "fused"):
        changed = split.apply(model, value)
        assert 6 * 5000 * K <= period(changed) < period(model), value


def test_bounds_hold_whatever_the_lengths() -> None:
    """No stream carries more than a step; none beats a step that waits for no such transfer."""
    for layers, sent in ((1, 30 * K), (2, 900 * K), (5, 20 * K), (9, 2000 * K)):
        model = layered(layers, sent)
        compute = (layers * 800 + 900) * K
        for value in ("batch", "tensor", "tensor=8", "fused", "fused=2"):
            step = period(split.apply(model, value))
            assert step >= max(compute, layers * sent), (layers, sent, value)


@pytest.mark.parametrize(
    ("value", "how", "count"),
    [
        ("batch", "batch", 2),
        ("tensor", "tensor", 4),  # as many as ranks share a layer
        ("tensor=2", "tensor", 2),
        ("tensor=64", "tensor", 64),
        ("fused", "fused", 16),
        ("fused=3", "fused", 3),
    ],
)
def test_pieces_unless_they_are_asked_for(value: str, how: str, count: int) -> None:
    assert split._parse_asked(layered(), value) == (how, count)


def test_what_cannot_be_is_said() -> None:
    for value in ("half", "batch=2", "tensor=65", "fused=0", "tensor=", "1e3"):
        with pytest.raises(UsageError, match="split"):
            split.apply(layered(), value)
    with pytest.raises(UsageError, match="no transfer of activations"):
        split.apply(small_model([Act("a", 100 * K), Act("b", 100 * K)]), "batch")
    hidden = small_model([
        Act("a", 100 * K), Act("b", 900 * K),
        comm("t", 80 * K, "all_reduce", waits=("a",), in_bytes=64 * MB, group=4, per_node=4),
        Act("loss", 900 * K, backward=True, waits=("t",)),
    ])  # fmt: skip
    with pytest.raises(UsageError, match="waits for none"):
        split.apply(hidden, "batch")


def test_on_a_simulated_job_the_written_step_is_the_predicted_one(tmp_path: Path) -> None:
    """Four ranks share each layer, all-reduces on the stream of the compute: split, they stand on
    another one, and the written step shows as much communication exposed as was said."""
    words = (
        "simulate --model gpt3-126m --layers 3 --nodes 1 --gpus-per-node 4 --tensor-parallel 4"
        f" --micro-batch 8 --steps 4 --seed 3 -o {tmp_path / 'job'}"
    )
    assert main.run_command_line(words.split()) == 0
    start = whatif(open_trace(str(tmp_path / "job"), OpenOptions(cache=False)))
    today = start.change("overlap", "today").run().to_pylist()[0]
    perfect = start.change("overlap", "perfect").run().to_pylist()[0]
    for value in ("batch", "tensor", "fused"):
        row = start.change("split", value).run().to_pylist()[0]
        assert perfect["step_time_ns"] <= row["step_time_ns"] < today["step_time_ns"], value
        assert row["step_time_ns_lo90"] < row["step_time_ns"] < row["step_time_ns_hi90"]
        assert "of these transfers would win" in row["assumptions"]
    halves = start.change("split", "batch")
    row = halves.run().to_pylist()[0]
    halves.write(tmp_path / "split")
    written = open_trace(str(tmp_path / "split"), OpenOptions(cache=False))
    shown = ask_trace(written, "time_breakdown").to_pylist()
    exposed = sum(r["exposed_comm_ns"] for r in shown) / len(shown)
    assert exposed == pytest.approx(row["exposed_comm_ns"], rel=0.1)
    assert exposed < 0.2 * today["exposed_comm_ns"]
    kernels = written.tables["kernels"]
    streams = {
        stream for stream, name in zip(*(kernels[c].to_pylist() for c in ("stream", "name")),
                                       strict=True) if "nccl" in name and "AllReduce" in name
    }  # fmt: skip
    assert streams == {9000}
