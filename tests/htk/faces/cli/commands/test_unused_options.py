"""Every option of commands without a trace: it changes the answer, or is refused."""

import importlib

import click
import pytest
from click.testing import CliRunner

BASES = {
    "plan": "--model gpt3-126m --gpu a100-80gb --nodes 2",
    "plan-serving": "--model gpt3-126m --gpu h100 --gpus-per-node 1 --show map",
    "goodput": "--gpus 1024 --gpu-mtbf 5e4h --restart 10min --checkpoint 30s",
    "job-time": "--samples 52k --global-batch 256 --step-time 1s",
    "claim": "--model llama2-13b --gpus 64xa100-80gb --mfu 50",
}
# How an answer is written and files are read: none of these is about the job.
WRITING = {"form", "output", "limit", "raw", "store_key", "no_cache", "cache_by_content", "strict"}
WRITING |= {"rank_pattern", "time_unit", "keep_unknown_arguments", "keep_overruns"}
# What the model, or the answer, is already.
ALREADY = {
    "plan": {"gated", "tied"},
    "plan-serving": {"gated", "tied"},
    "claim": {"checkpointing"},
}
VALUES = ("2", "0.5", "20min", "roce-400", "512:0.5,2048:0.5")


def command_of(case: str) -> click.Command:
    name = case.replace("-", "_")
    command: click.Command = importlib.import_module(f"htk.faces.cli.commands.{name}").command
    return command


def values_of(option: click.Option) -> list[list[str]]:
    if option.is_flag:
        return [[]]
    if isinstance(option.type, click.Choice):
        return [[choice] for choice in option.type.choices if choice != option.default]
    if isinstance(option.default, int | float) and option.default:
        return [[f"{2 * option.default}"]]
    return [[value] for value in VALUES]


@pytest.mark.parametrize("case", BASES)
def test_each_option_changes_the_answer_or_is_refused(case: str) -> None:
    command, base = command_of(case), BASES[case].split()
    before = CliRunner().invoke(command, base)
    assert before.exit_code == 0, before.output
    silent = set()
    for option in command.params:
        if not isinstance(option, click.Option) or option.name in WRITING:
            continue
        flag = max(option.opts, key=len)
        if flag in base:
            continue
        asked = [[flag, *value] for value in values_of(option)]
        answers = [CliRunner().invoke(command, [*base, *given]) for given in asked]
        if any(a.exit_code == 0 and a.output == before.output for a in answers):
            silent.add(option.name)
    assert silent <= ALREADY.get(case, set())
