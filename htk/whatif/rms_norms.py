"""RMSNorms where modules were not recorded: told by the operators that make one.

x · rsqrt(mean(x²) + ε) · w, as eager PyTorch runs it: a cast where the step computes in half
precision, pow, mean, add, rsqrt, mul, a cast back, mul; some compute the root with the mean. The
backward pass is that of these calls.
"""

import re

import numpy as np

from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import Mask, take_or
from htk.whatif.fsdp_units import compute_lane
from htk.whatif.step_model import StepModel

_LETTERS = {
    "aten::pow": "p",
    "aten::square": "p",
    "aten::mean": "m",
    "aten::add": "a",
    "aten::rsqrt": "r",
    "aten::mul": "u",
    "aten::copy_": "c",
    "aten::_to_copy": "c",
}
_NORM = re.compile("c?pma?r?uc?u?")


def rms_norms(model: StepModel) -> tuple[Mask, int]:
    """Return the activities of RMSNorms, forward and backward, and how many norms run forward."""
    facts = model.facts
    chosen = np.zeros(len(facts.op), bool)
    count = 0
    letter = facts.op.mapped(lambda op: _LETTERS.get(op or "", "-"), np.str_)
    for rank in model.graph.ranks:
        lane = compute_lane(model, rank)
        forward = lane[~facts.backward[lane]]
        letters = "".join(letter[forward].tolist())
        for match in _NORM.finditer(letters):
            chosen[forward[match.start() : match.end()]] = True
            count += 1
    calls = np.unique(facts.op_row[chosen])
    made_by = take_or(read_numbers(facts.tables["op_links"]["forward_row"], -1), facts.op_row)
    return chosen | (facts.backward & np.isin(made_by, calls[calls >= 0])), count
