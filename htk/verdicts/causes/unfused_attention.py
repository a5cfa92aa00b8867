"""Attention that writes and reads the scores of all pairs, where one kernel keeps none."""

from htk.base.core.humanize import format_duration, pluralize_count
from htk.verdicts.causes.cause import Cause, Example, find_costliest
from htk.verdicts.causes.changes import whatif_change
from htk.verdicts.causes.recorded import CauseEvidence
from htk.whatif.edits.attention import kernels_on_scores, score_shape

FINDING = "attention writes out the scores of all pairs"


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    replayed = recorded.replayed
    change = whatif_change("attention", "flash")
    gain = None if replayed is None else replayed.gain((change,))
    if replayed is None or gain is None or gain.low <= 0:
        return []
    model = replayed.model
    scores = score_shape(model)
    assert scores is not None, "the edit applies"
    chosen = kernels_on_scores(model, scores)
    acts, length = model.graph.activities, model.lengths()
    of_step = int(length[chosen].sum()) / len(model.graph.ranks) / replayed.steps
    longest = (length * chosen).argmax()
    row = model.facts.rows[longest]
    kernels = model.facts.tables["kernels"]
    rank = kernels["rank"][int(row)].as_py()
    start = kernels["start_ns"][int(row)].as_py()
    end = kernels["end_ns"][int(row)].as_py()
    shape = " x ".join(map(str, scores))
    cause = Cause(
        FINDING,
        f"{pluralize_count(int(chosen.sum()), 'kernel')} on scores of {shape}, "
        f"{format_duration(of_step)} a step",
        recorded.program.advise(
            "F.scaled_dot_product_attention (flash attention)",
            "flash attention of the vendor's libraries",
        ),
        round(of_step * recorded.gpus * recorded.steps),
        "fusible_chains",
        find_costliest(acts.names, acts.name, length * chosen),
        Example(rank, start, end),
        change=change,
        is_bound=True,
    )
    return [cause]
