"""How many micro-batches a step has, and how many of them reduce their gradients."""

import pytest

from htk.whatif.micro_batch_count import count_synchronisations, micro_batches
from tests.htk.whatif.small_step_model import Act, comm, small_model


def passes(pattern: str) -> list[Act]:
    """A kernel for each letter; b is backward."""
    return [Act(f"{k}", 10, backward=letter == "b") for k, letter in enumerate(pattern)]


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("ffbb", 1), ("fbfbfb", 3), ("bfb", 2), ("b", 1), ("ffff", 0), ("f" * 19 + "b", 0),
     ("f" * 9 + "b", 1), ("bbff", 1), ("fbbffbbf", 2)],
)  # fmt: skip
def test_backward_passes_are_counted(pattern: str, count: int) -> None:
    assert micro_batches(small_model(passes(pattern))) == count


def accumulated(reducing: str) -> list[Act]:
    """Four micro-batches; those with an r reduce their gradients in two parts."""
    acts = []
    for k, letter in enumerate(reducing):
        acts += [Act(f"f{k}", 10), Act(f"b{k}", 10, backward=True)]
        for part in "xy" if letter == "r" else "":
            acts.append(
                comm(f"r{k}{part}", 5, "all_reduce", waits=(f"b{k}",), in_bytes=9, backward=True)
            )
    return acts


@pytest.mark.parametrize(("reducing", "count"), [("rrrr", 4), ("---r", 1), ("----", 0)])
def test_passes_that_reduce_gradients_are_counted(reducing: str, count: int) -> None:
    model = small_model(accumulated(reducing))
    assert micro_batches(model) == 4
    assert count_synchronisations(model, model.is_collective("all_reduce")) == count


def test_what_is_recomputed_is_part_of_its_pass() -> None:
    """Two layers, each run forward again before its gradients are made and reduced."""
    acts = [Act("f0", 10), Act("b0", 10, backward=True), Act("f1", 10)]
    for layer in "xy":
        acts += [Act(f"again{layer}", 10, recomputed=True), Act(f"b{layer}", 10, backward=True)]
        acts.append(
            comm(f"r{layer}", 5, "all_reduce", waits=(f"b{layer}",), in_bytes=9, backward=True)
        )
    model = small_model(acts)
    assert count_synchronisations(model, model.is_collective("all_reduce")) == 1
