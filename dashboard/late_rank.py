"""The rank that the others wait for, as a card: what it costs a step, or that no rank is late."""

from typing import Any

from htk.base.core.humanize import format_duration
from htk.base.errors import HtkError
from htk.base.mappings import Facts
from htk.dashboard.components import draw_tile
from htk.dashboard.page import Visit
from htk.verdicts.causes.stragglers import find_most_waited_for
from htk.verdicts.overview.summary import Verdict

_LEAST_LATE = 0.01  # of a step: what costs less is no late rank


def last_to_arrive(visit: Visit) -> Facts | None:
    """Return the rank that costs the others most waiting; none where nobody waits."""
    try:
        return find_most_waited_for(visit.ask("stragglers").to_pylist())
    except HtkError:
        return None


def late_tile(visit: Visit, verdict: Verdict) -> Any:
    """Return the card of the rank that costs a step most, or that none costs it anything."""
    worst = last_to_arrive(visit)
    if worst is None:
        return None
    link = visit.view.link("stragglers")
    cost = worst["step_gain_ns"]
    if cost is None:  # not replayed: what the others wait for it at most, mean over ranks
        ranks = max(len(visit.trace.ranks), 1)
        cost = worst["cost_to_others_ns"] / ranks / max(verdict.steps, 1)
    if verdict.step_ns and cost < _LEAST_LATE * verdict.step_ns:
        words = f"the costliest, rank {worst['rank']}: {format_duration(cost)} a step"
        return draw_tile("Late ranks", "none", words, link)
    late_in = f", late in {worst['late_in']}" if worst["late_in"] else ""
    of_what = f"costs {format_duration(cost)} a step" if verdict.step_ns else "waited for most"
    others = sum(cause.analysis in ("stragglers", "gpu_speed") for cause in verdict.causes)
    return draw_tile(
        "Late rank",
        f"rank {worst['rank']}",
        f"{of_what}{late_in}",
        link,
        kind="alert" if others else "",
    )
