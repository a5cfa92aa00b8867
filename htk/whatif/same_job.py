"""Whether two recordings are of one job: the same model, GPU and layout, whatever the batch."""

import numpy as np

from htk.base.errors import UsageError
from htk.whatif.operator_shapes import Shape, list_matrices
from htk.whatif.recorded_job import recorded_job
from htk.whatif.shapes import read_inputs
from htk.whatif.step_model import StepModel

_COMPARED = {
    "gpu": "GPU",
    "ranks": "ranks",
    "tensor": "tensor parallelism",
    "pipeline": "pipeline stages",
    "context": "context parallelism",
    "expert": "expert parallelism",
    "strategy": "sharding",
    "precision": "precision",
    "layers": "layers",
    "heads": "heads",
    "kv_heads": "key-value heads",
}
SAME_JOB = "the other recordings are of the same model, GPU and layout, as far as they tell"


def check_same_job(first: StepModel, other: StepModel) -> None:
    """Raise UsageError where another recording is of another job, and name the difference."""
    one_job = recorded_job(first)
    other_job = recorded_job(other)
    for field, words in _COMPARED.items():
        now = getattr(one_job, field)
        then = getattr(other_job, field)
        if now is not None and then is not None and now != then:
            now = getattr(now, "name", now)
            then = getattr(then, "name", then)
            raise UsageError(f"the other recording is of another job: {words} {then}, not {now}")
    widths = _list_weights(first)
    other_widths = _list_weights(other)
    if widths and other_widths and widths != other_widths:
        raise UsageError("the other recording is of another job: its weights have other shapes")


def _list_weights(model: StepModel) -> set[Shape]:
    """Return the shapes of weights, which tokens are multiplied by in the forward pass."""
    tokens = read_inputs(model).tokens
    forward = np.flatnonzero(model.facts.family.isin("gemm") & ~model.facts.backward)
    products = [list_matrices(dims) for dims in set(model.facts.dims.rows(forward))]
    return {
        shapes[1] for shapes in products if len(shapes) == 2 and tokens and shapes[0][0] == tokens
    }
