"""Recordings of other jobs are no further recordings of this one."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.same_job import check_same_job
from tests.htk.whatif.named_jobs import started
from tests.htk.whatif.small_step_model import Act, small_model


def test_batches_micro_batches_and_lengths_may_differ() -> None:
    for other in ("plain", "two micro-batches", "longer", "checkpointed"):
        check_same_job(started("plain").model, started(other).model)


@pytest.mark.parametrize(
    ("other", "word"),
    [("tp 2", "tensor"), ("alone", "ranks"), ("sharded", "sharding"), ("tf32", "precision")],
)
def test_what_differs_is_named(other: str, word: str) -> None:
    with pytest.raises(UsageError, match=f"another job: {word}"):
        check_same_job(started("plain").model, started(other).model)


def test_weights_tell_models_apart() -> None:
    def of(width: int) -> Act:
        return Act("mm", 10, op="aten::mm", dims=f"[[64, 32], [32, {width}]]")

    tokens = Act("e", 5, op="aten::embedding", dims="[[100, 32], [4, 16]]")
    check_same_job(small_model([tokens, of(8)]), small_model([tokens, of(8)]))
    with pytest.raises(UsageError, match="weights have other shapes"):
        check_same_job(small_model([tokens, of(8)]), small_model([tokens, of(9)]))
