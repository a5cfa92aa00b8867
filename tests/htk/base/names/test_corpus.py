"""Kinds, families, libraries and matrix units of real names from many stacks, each with its source.

The tables lie beside this module; every row is a fact that can be looked up where it says. What
libraries put together from parts is written as a grammar, whose alternatives stand in brackets.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from htk.base.names.kinds import Kind, kind_of

STACKS = (
    "pytorch eager", "inductor", "cudnn", "cublas", "cutlass", "nvjet", "flash attention 2",
    "flash attention 3", "flashmla", "flashinfer", "xformers", "transformer engine",
    "megatron and apex", "deepspeed", "vllm", "sglang", "tensorrt-llm", "deepgemm", "deepep",
    "mori", "aiter", "composable kernel", "hipblaslt and tensile", "nccl", "rccl", "ncclx",
    "msccl and msccl++", "nvshmem", "rocshmem", "symmetric memory", "liger", "mtia", "xpu", "gaudi",
    "pplx", "triton-distributed", "sageattention",
)  # fmt: skip
UNITS = {"yes": True, "no": False, "": None}


class Row(NamedTuple):
    name: str
    kind: str
    family: str
    library: str
    tensor_core: str
    stack: str
    source: str


def lines(name: str) -> list[list[str]]:
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines()[1:]]


def corpus() -> list[Row]:
    return [Row(*line) for line in lines("kernel_names.tsv")]


def names_of(grammar: str) -> Iterator[str]:
    choice = re.search(r"\(([^()]*\|[^()]*)\)", grammar)
    if choice is None:
        yield grammar
        return
    for option in choice[1].split("|"):
        yield from names_of(grammar[: choice.start()] + option + grammar[choice.end() :])


@pytest.mark.parametrize("stack", sorted({row.stack for row in corpus()}))
def test_names_of_a_stack(stack: str) -> None:
    rows = [row for row in corpus() if row.stack == stack]
    expected = {r.name: Kind(r.kind, r.family, r.library, UNITS[r.tensor_core]) for r in rows}
    assert {name: kind_of(name, "kernel") for name in expected} == expected


def test_every_stack_is_there_and_every_name_has_its_source() -> None:
    rows = corpus()
    assert set(STACKS) <= {row.stack for row in rows}
    assert all(row.source for row in rows)
    assert len({row.name for row in rows}) == len(rows) > 350


def test_few_flags_are_unknown_and_none_is_wrong() -> None:
    """Where neither name nor types tell: templates of Triton for any type, names of a library.

    Of names whose sources were read, a function in Triton uses matrix units where it, or what it
    calls, runs `tl.dot` in every case; a kernel in CUDA does not where its file holds no product.
    """
    flags = [UNITS[row.tensor_core] for row in corpus() if row.kind == "compute"]
    for name, units, _, source in lines("kernel_units.tsv"):
        answered = kind_of(name, "kernel")
        assert source and answered.kind == "compute", name
        assert answered.tensor_core in (UNITS[units], None), name
        flags.append(answered.tensor_core)
    assert len(flags) > 2000
    assert flags.count(None) / len(flags) < 0.05


def test_names_by_the_grammars_of_their_libraries() -> None:
    """No flag is wrong and none is unknown, of several thousand names."""
    count = 0
    for units, family, grammar, _ in lines("kernel_grammars.tsv"):
        for name in names_of(grammar):
            found = kind_of(name, "kernel")
            assert found.tensor_core == UNITS[units], name
            assert not family or found.family == family, name
            count += 1
    assert count > 5000


def test_against_a_second_list(shared: Path) -> None:
    """One written from knowledge of the stacks; a question mark is a doubt of its writer's."""
    checked = 0
    for line in (shared / "truth/kernel_names.tsv").read_text().splitlines()[1:]:
        kind, families, name = line.split("\t")
        found = kind_of(name, "kernel")
        if "?" not in kind:
            assert found.kind == kind, name
            checked += 1
        if families.strip("-"):
            assert found.family in families.split("/"), name
    assert checked > 150
