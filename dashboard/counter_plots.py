"""Clock, power, temperature and traffic of GPUs over time, as counters sampled them."""

from typing import Any

import numpy as np

from htk.dashboard import plots
from htk.dashboard.components import draw_empty_panel, draw_plot, draw_section
from htk.dashboard.page import Visit
from htk.quantities.measures.gpu_counters import Sampled, sampled_quantities
from htk.traces.timeline.counters import Counter

_MOST = 1_500  # points of a line
_HEIGHT = 110  # of each quantity
_TITLES = {
    "clock_mhz": "clock, MHz",
    "power_w": "power, W",
    "temperature_c": "temperature, °C",
    "sm_active_pct": "SMs active, %",
    "memory_busy_pct": "memory, %",
}


def draw_counters(visit: Visit) -> Any:
    """Return the panel: a strip for each quantity, a line for each GPU."""
    heading = "Clock, power, temperature and traffic over time"
    strips = visit.kept("counter strips", lambda: _build_counter_strips(visit))
    if not strips:
        text = "No counters of the GPU were recorded: Kineto's, Nsight's --gpu-metrics-devices."
        return draw_section(heading, draw_empty_panel(text))
    fig = plots.draw_strips(strips, visit.dark)
    note = "A value holds until the next sample. The timeline has the same counters as rows."
    return draw_section(
        heading, draw_plot(fig, heading, None, 90 + _HEIGHT * len(strips)), note=note
    )


def _build_counter_strips(visit: Visit) -> list[plots.Strip]:
    trace = visit.trace
    sampled = dict(sampled_quantities(trace.tables["counters"]))
    return [
        plots.Strip(
            title, [_build_sampled_line(each, trace.origin_ns) for each in sampled[quantity]]
        )
        for quantity, title in _TITLES.items()
        if quantity in sampled
    ]


def _build_sampled_line(sampled: Sampled, origin_ns: int) -> plots.SampledLine:
    device = "" if sampled.device is None else f", GPU {sampled.device}"
    name = f"rank {sampled.rank}{device}"
    few = Counter(sampled.rank, "", name, "", sampled.time - origin_ns, sampled.value).reduced(
        _MOST
    )
    return plots.SampledLine(name, (few.time / 1e6).tolist(), np.asarray(few.value, float).tolist())
