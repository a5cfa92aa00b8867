"""What torch.compile can win at most."""

from pathlib import Path

import numpy as np
import pytest

from htk.base.errors import UsageError
from htk.traces.trace.opening import open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.edits import compile as compile_edit
from htk.whatif.predict import predict_answer
from tests.htk.whatif.simulated_job import written
from tests.htk.whatif.small_step_model import Act, small_model


def test_neighbours_that_are_elementwise_become_one() -> None:
    """Two of 4 and 6 us become one of 5, as it reads what one does and writes what the other does;
    the product stays, and so does the one behind it."""
    names = [("add", 4000), ("mul", 6000), ("gemm", 9000), ("mul", 8000)]
    families = ["elementwise" if name != "gemm" else "gemm" for name, _ in names]
    model = small_model([Act(n, ns, family=f) for (n, ns), f in zip(names, families, strict=True)])
    assert compile_edit.apply(model, "on").lengths().tolist() == [5000, 0, 9000, 8000]


def test_it_is_no_slower_than_as_captured_and_no_slower_than_recorded(tmp_path: Path) -> None:
    job = {"micro_batch": 1, "gpu": "h100", "nodes": 1, "steps": 3}
    start = build_baseline(open_trace(str(written(tmp_path, **job))).tables)
    answer = predict_answer(start, [("compile", "on")])
    captured = predict_answer(start, [("graphs", "on")])
    assert answer.step_ns is not None and captured.step_ns is not None
    assert answer.step_ns < captured.step_ns < start.step_ns
    assert answer.sigma_by_cause["host"] >= captured.sigma_by_cause["host"]
    products = start.model.facts.family.isin("gemm")
    kept = start.model.lengths()[products].sum() / len(start.graph.ranks)
    assert answer.step_ns > kept and np.isfinite(answer.limits[1])


def test_it_is_on_or_not_asked() -> None:
    with pytest.raises(UsageError, match="can only be on"):
        compile_edit.apply(small_model([Act("a", 100)]), "off")
