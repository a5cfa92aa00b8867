"""Runs of one cluster that differ by chance alone, and the limits of its gate."""

from htk.recording.simulate.config import Config
from htk.traces.compare.baseline import RecordedBaseline, build_cost_baseline
from htk.traces.compare.rules import parse_rule
from tests.htk.quantities.graph.simulated_steps import steps_in_memory

RULES = [parse_rule(t) for t in ("step_time>5%", "exposed_comm>2pp", "kernel:flash_fwd>10%")]


_TWO_LAYERS = Config(model="gpt3-126m", layers=2, gpus_per_node=2, steps=10, noise=0.02)


def run(number: int, **slower: float) -> RecordedBaseline:
    """A run of one cluster; its numbers differ by chance alone, but for what is planted."""
    config = Config(**{**_TWO_LAYERS.__dict__, "run": number})
    return build_cost_baseline(steps_in_memory(config, slower), ("time", "kernel"))
