"""Two recordings compared: the change of the step, and its causes by what they cost."""

from dataclasses import dataclass, replace

import numpy as np

from htk.base.errors import HtkError
from htk.base.mappings import NamedTables
from htk.verdicts.comparison.causes import ChangeCause, changed_work
from htk.verdicts.comparison.parts import with_parts
from htk.verdicts.comparison.recorded_work import RecordedWork, recorded_work
from htk.whatif.baseline import build_baseline
from htk.whatif.recorded_step import Baseline


@dataclass(frozen=True)
class ComparedWork:
    """What changed between two recordings."""

    base: RecordedWork | None
    new: RecordedWork | None
    causes: list[ChangeCause]
    kappa: float = 0.0  # how much communication beside compute slows it


NOTHING_TOLD = ComparedWork(None, None, [])


def compare_work(base: NamedTables, new: NamedTables) -> ComparedWork:
    """Return what changed from one recording to another of the same ranks."""
    was = recorded_work(base)
    now = recorded_work(new)
    if was is None or now is None or was.ranks.tolist() != now.ranks.tolist():
        return ComparedWork(was, now, [])
    replays = [_replay_step(tables) for tables in (base, new)]
    kappas = [r.contention for r in replays if r is not None and r.contention]
    kappa = float(np.mean(kappas)) if kappas else 0.0
    causes = changed_work(was, now, kappa)
    after = replays[1]
    if after is not None and not after.refused:
        return ComparedWork(was, now, with_parts(after, causes), kappa)
    recorded = [replace(cause, part_ns=cause.recorded_ns) for cause in causes]
    return ComparedWork(was, now, sorted(recorded, key=lambda cause: -abs(cause.part_ns)), kappa)


def _replay_step(tables: NamedTables) -> Baseline | None:
    """Return the step to replay; None: what it takes was not recorded."""
    try:
        return build_baseline(tables)
    except HtkError:
        return None
