"""`htk goodput`: what failures, checkpoints and restarts leave of a job's time."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from htk.base.core.humanize import format_duration
from htk.base.core.ranges import (
    ValueRange,
    parse_count_over_time,
    parse_seconds,
    parse_value,
    take_exact_value,
)
from htk.base.errors import UsageError
from htk.base.mappings import Facts
from htk.faces.cli.commands.common import writing_options
from htk.faces.cli.commands.options import refuse_unused

if TYPE_CHECKING:
    from htk.answers.output.result import Result

_SECOND = 1e9
_NEEDS = {
    "failures_on": ("failures",),
    "memory_share": ("memory_checkpoint",),
    "memory_restart": ("memory_checkpoint",),
    "spares": ("repair", "price"),
    "node_share": ("repair",),
    "run_tokens": ("tokens_per_s",),
    "tokens_per_s": ("run_tokens",),
    "price": ("run_tokens",),
    "watts": ("run_tokens",),
}
_SECONDS = ("detect", "restart", "checkpoint", "checkpoint_write", "repair")


@click.command("goodput")
@click.option("--gpus", type=click.IntRange(min=1), required=True, help="GPUs of the job.")
@click.option(
    "--gpus-per-node",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="GPUs per node.",
)
@click.option("--failures", metavar="N/TIME", help="Interruptions counted, e.g. 466/54d.")
@click.option(
    "--failures-on",
    type=click.IntRange(min=1),
    help="GPUs of the job in which failures were counted, if it was another.",
)
@click.option("--gpu-mtbf", metavar="TIME", help="Time between failures of a GPU: 4e4h..6e4h.")
@click.option(
    "--detect", default="0s", show_default=True, help="Time until a failure is detected: 5min."
)
@click.option(
    "--restart", required=True, help="Time from a failure until the job resumes, e.g. 3min..10min."
)
@click.option("--checkpoint", required=True, help="Time that a checkpoint stops the job, e.g. 30s.")
@click.option(
    "--checkpoint-write",
    default="0s",
    show_default=True,
    help="Time of an asynchronous write, in the background: 5min.",
)
@click.option("--every", help="Work between two checkpoints, e.g. 30min; by default the best.")
@click.option("--memory-checkpoint", help="Time of a checkpoint to other nodes' memory: 1s.")
@click.option(
    "--memory-share",
    default="0.9",
    show_default=True,
    help="Share of failures that checkpoints in memory survive.",
)
@click.option("--memory-restart", help="Time to resume from memory; by default as --restart.")
@click.option("--spares", type=click.IntRange(min=0), default=0, help="Spare nodes.")
@click.option(
    "--repair", help="Time until a failed node is back, e.g. 4h..24h; by default none is missing."
)
@click.option(
    "--node-share",
    default="1",
    show_default=True,
    help="Share of failures that take out a node: 0.5..0.8.",
)
@click.option("--run-tokens", help="Tokens of the whole run, for its time and cost, e.g. 15.6T.")
@click.option("--tokens-per-s", help="Tokens per second while the job runs, e.g. 2.6M..2.9M.")
@click.option(
    "--price", help="Price of a GPU-hour, for the cost of the run with its spares, e.g. 2..3."
)
@click.option(
    "--watts", help="Power of a GPU with its share of the node, for the energy, e.g. 900..1000."
)
@writing_options
def command(form: str, output: str | None, limit: int, **arguments: Any) -> None:
    """How much of a job's time is useful, and how often should it save a checkpoint?

    Every time and rate may be a range, such as 3min..10min: the answer then has an interval, and
    says which input dominates its width. Failures occur at a constant rate, also during recovery
    and checkpoints.
    """
    from htk.answers.output.render import write_result
    from htk.base.core.defer_imports import spare_pandas
    from htk.verdicts.economics.goodput import split_wall_time

    spare_pandas()
    refuse_unused(_NEEDS)
    answer = split_wall_time(_build_job(arguments))
    write_result(
        answer, form, output, limit=limit, printer=lambda file: _print_answer(answer, limit, file)
    )


def _build_job(arguments: Facts) -> Any:
    from htk.verdicts.economics.goodput import GoodputJob

    def parse_option_seconds(name: str) -> ValueRange | None:
        return None if arguments[name] is None else parse_seconds(arguments[name])

    def parse_option_value(name: str) -> ValueRange | None:
        return None if arguments[name] is None else parse_value(arguments[name])

    def parse_single(name: str, parse: Callable[[str], ValueRange]) -> float | None:
        text = arguments[name]
        return (
            None
            if text is None
            else take_exact_value(parse(text), f"--{name.replace('_', '-')}", text)
        )

    every = parse_single("every", parse_seconds)
    tokens = parse_single("run_tokens", parse_value)
    return GoodputJob(
        arguments["gpus"],
        _parse_failures(arguments),
        parse_seconds(arguments["restart"]),
        parse_seconds(arguments["checkpoint"]),
        arguments["gpus_per_node"],
        detect=parse_seconds(arguments["detect"]),
        write=parse_seconds(arguments["checkpoint_write"]),
        every=every,
        memory_checkpoint=parse_option_seconds("memory_checkpoint"),
        memory_share=parse_value(arguments["memory_share"]),
        memory_restart=parse_option_seconds("memory_restart"),
        spares=arguments["spares"],
        repair=parse_option_seconds("repair"),
        node_share=parse_value(arguments["node_share"]),
        tokens=tokens,
        tokens_per_s=parse_option_value("tokens_per_s"),
        price=parse_option_value("price"),
        watts=parse_option_value("watts"),
    )


def _parse_failures(arguments: Facts) -> Any:
    """Return the rate of failures of the job, as it was counted or as a range."""
    from htk.verdicts.economics.uncertain_inputs import ObservedCount

    counted = arguments["failures"]
    between = arguments["gpu_mtbf"]
    gpus = arguments["gpus"]
    if (counted is None) == (between is None):
        raise UsageError(
            "give how often the job fails: --failures 466/54d as counted, or --gpu-mtbf 4e4h"
        )
    if counted is not None:
        count, time = parse_count_over_time(counted)
        return ObservedCount(count, time * (arguments["failures_on"] or gpus) / gpus)
    times = parse_seconds(between)
    if not times.low > 0:
        raise UsageError(f"--gpu-mtbf {between!r}: a positive time was expected")
    return ValueRange(gpus / times.high, gpus / times.low)


def _print_answer(answer: "Result", limit: int, target: Any) -> None:
    from htk.answers.output.render import print_table
    from htk.answers.output.result import Result

    target.write("\n".join(_write_heading(answer.coverage)) + "\n\n")
    print_table(Result(answer.analysis, answer.table, {}), limit=limit, file=target)
    target.write("\n" + "\n".join(_write_conclusions(answer.coverage)) + "\n")


def _write_heading(facts: Facts) -> list[str]:
    often = "saves best after" if facts["interval_is_best"] else "saves after"
    young = facts["young_every_s"]
    lines = [
        f"{facts['gpus']:,} GPUs in {facts['nodes']:,} nodes fail every "
        f"{_format_time(facts['hours_between_failures'] * 3600)} "
        f"({facts['failures_per_million_gpu_hours']:.3g} failures in a million GPU-hours)",
        f"the job {often} {_format_time(facts['checkpoint_every_s'])} of work"
        + (
            f" (Young's formula: {_format_time(young)})"
            if young and facts["interval_is_best"]
            else ""
        ),
    ]
    if facts["memory_checkpoint_every_s"]:
        lines.append(f"and to memory after {_format_time(facts['memory_checkpoint_every_s'])}")
    return lines


def _write_conclusions(facts: Facts) -> list[str]:
    low, high = facts["goodput_pct_90"]
    lines = [
        f"goodput {facts['goodput_pct']:.1f} %{_format_within(low, high, '.1f')}; "
        f"all in all a failure costs {_format_time(facts['minutes_lost_per_failure'] * 60)} of the "
        "job"
    ]
    for name, words in _OF_RUN.items():
        if name in facts:
            low, high = facts[f"{name}_90"]
            lines.append(f"{words} {_format_figure(facts[name])}{_format_within(low, high, '')}")
    if facts["fewest_spares"] is not None:
        lines.append(
            f"spare nodes: {facts['spare_nodes']:,}; with {facts['fewest_spares']:,} the job "
            "would wait for less than 0.1 % of its time"
        )
    if facts["width_comes_from"]:
        parts = [
            f"{_name_input(name)} {100 * share:.0f} %"
            for name, share in facts["width_comes_from"].items()
        ]
        whose = "days" if facts["width_of"] == "run_days" else "goodput"
        lines.append(f"the width of its {whose} comes from: {', '.join(parts[:5])}")
    return lines


_OF_RUN = {
    "run_days": "the run takes, in days:",
    "run_failures": "and fails, in times:",
    "run_cost": "it costs:",
    "run_mwh": "it draws, in MWh:",
}


def _name_input(name: str) -> str:
    """Return the option of an input, or what else it is."""
    words = {"chance": "chance", "failures": "the rate of failures"}
    return words.get(name) or f"--{name.replace('_', '-')}"


def _format_within(low: float, high: float, form: str) -> str:
    ends = [format(end, form) if form else _format_figure(end) for end in (low, high)]
    return "" if ends[0] == ends[1] else f" (90 %: {ends[0]} … {ends[1]})"


def _format_figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _format_time(seconds: float) -> str:
    for scale, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return format_duration(seconds * _SECOND)
