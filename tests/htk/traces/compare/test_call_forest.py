"""The tree of a step's modules and operators: who calls whom, on which thread, in which step."""

from pathlib import Path

import htk
from htk.traces.compare.call_forest import CallForest, build_forests
from tests.kineto_file import kernel, launch, of_rank, op, step, write


def _written(path: Path, steps: dict[int, float]) -> CallForest:
    """Steps of given length, each with two layers, a module without operators, and backward."""
    events, at = [], 0.0
    for number, (step_number, length) in enumerate(steps.items()):
        events.append(step(step_number, at, length))
        for layer in (1, 2):
            module = op(f"nn.Module: Layer_{layer}", at + 10 * layer, 8)
            events.append(module | {"cat": "python_function"})
            events.append(
                op(f"aten::of_{step_number}", at + 10 * layer, 8)
            )  # as long as its module
            events.append(
                op("CompiledFxGraph fab1c3o9xq2k5m7p8r4t6v0w1y3z", at + 10 * layer + 1, 2)
            )
        empty = op("nn.Module: Empty_0", at + 40, 5)
        events.append(empty | {"cat": "python_function"})
        backward = "autograd::engine::evaluate_function: MmBackward0"
        events.append(op(backward, at + 5, 30, tid=2))  # begins before the forward pass
        events += [launch(number + 1, at + 6, 1, tid=2)]
        events += [kernel("gemm", at + 12, length - 20, number + 1)]
        at += length
    write(path, *events, **of_rank(0))
    return CallForest.from_tables(htk.open(path).tables)


def test_modules_hold_operators_and_threads_hold_both(tmp_path: Path) -> None:
    forest = _written(tmp_path / "a.json", {3: 100, 4: 300, 5: 200})
    assert forest.step == 5  # of median length
    shown = [
        ("  " * deep + forest.names[name])
        for deep, name in zip(forest.depth.tolist(), forest.name.tolist(), strict=True)
    ]
    layer = ["  nn.Module: Layer", "    aten::of_5", "      CompiledFxGraph …"]
    assert shown == [
        "thread",
        *layer,
        *layer,
        "autograd thread",
        "  autograd::engine::evaluate_function: MmBackward0",
    ]
    assert forest.parent.tolist() == [-1, 0, 1, 2, 0, 4, 5, -1, 7]
    assert (forest.kernel_node.tolist(), forest.kernel_ns.tolist()) == ([8], [180_000])
    first, last = forest.kernels(forest.parent[8:] + 1, forest.parent[8:] + 2)
    assert (first.tolist(), last.tolist()) == ([0], [1])


def test_names_have_the_same_numbers_on_both_sides(tmp_path: Path) -> None:
    base = _written(tmp_path / "a.json", {5: 100})
    new = _written(tmp_path / "b.json", {6: 100})
    ours, theirs = build_forests(base, new)
    differs = (ours.name != theirs.name).tolist()
    assert differs == [name == "aten::of_5" for name in (base.names[k] for k in base.name)]
    assert (ours.parent == theirs.parent).all()
