"""What an operator's line of the program tells of its work."""

import pytest

from htk.parsers.xplane.hlo import read_operator

SHAPE = "bf16[2,3]{1,0:T(8,128)(2,1)}"


@pytest.mark.parametrize(
    ("name", "text", "facts", "wanted"),
    [
        ("reduce-scatter.1", "f32[4]{0} reduce-scatter(f32[16]{0} %x), replica_groups={{0,1,"
         "2,3},{4,5,6,7}}", {}, ("comm", "reduce_scatter", 4, 64, 16)),
        ("collective-permute.2", f"{SHAPE} collective-permute({SHAPE} %x), channel_id=1", {},
         ("comm", "send_recv", None, 12, 12)),
        ("all-to-all.3", f"{SHAPE} all-to-all(%x), replica_groups=[1,8]<=[8]", {},
         ("comm", "all_to_all", 8, 12, 12)),
        ("fusion.4", f"{SHAPE} fusion({SHAPE} %x)", {"hlo_category": "all-reduce fusion"},
         ("comm", "all_reduce", None, 12, 12)),
        ("send.5", f"({SHAPE}, u32[]) send({SHAPE} %x, token[] %t)", {},
         ("comm", "send", None, 12, None)),
        ("all-gather", "", {}, ("comm", "all_gather", None, None, None)),
    ],
)  # fmt: skip
def test_collectives_by_their_text(
    name: str, text: str, facts: dict[str, object], wanted: tuple[object, ...]
) -> None:
    operator = read_operator(name, f"%{name} = {text}", facts)
    stated = operator.collective or {}
    columns = ("type", "group_size", "in_bytes", "out_bytes")
    assert (operator.kind, *(stated[column] for column in columns)) == wanted


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("copy-start", f"({SHAPE}, f32[8]{{0:T(128)S(5)}}, u32[]) copy-start(f32[8]{{0:T(128)S(5)}}"
         " %p)", ("copy-start (HtoD)", 1, 32)),
        ("send.1", f"({SHAPE}, u32[]) send({SHAPE} %x, token[] %t), is_host_transfer=true",
         ("send.1 (DtoH)", 1, 12)),
        ("infeed.2", "((s8[3]), token[]) infeed(token[] %t)", ("infeed.2 (HtoD)", 1, 3)),
        ("copy.3", f"{SHAPE} copy({SHAPE} %x)", ("copy.3", 0, -1)),
        ("slice-start.4", "", ("slice-start.4", 1, -1)),
        ("fusion.5", f"{SHAPE} fusion({SHAPE} %x)", ("fusion.5", 0, -1)),
    ],
)  # fmt: skip
def test_copies_by_their_text(name: str, text: str, wanted: tuple[object, ...]) -> None:
    operator = read_operator(name, f"%{name} = {text}", {})
    assert (operator.name, operator.activity, operator.size) == wanted


def test_hostile_lines_are_bounded() -> None:
    for text in (
        f"f32[{'9' * 5000}] all-reduce(f32[{'9' * 5000}] %x)",
        f"f32[{'9' * 18},{'9' * 18}] all-reduce(f32[{'9' * 18},{'9' * 18}] %x)",
        f"{'a' * 100_000} all-reduce({'a' * 100_000}[2] %x)",
    ):
        operator = read_operator("all-reduce.1", f"%all-reduce.1 = {text}", {})
        assert operator.kind == "comm" and (operator.collective or {})["in_bytes"] is None


def test_what_runs_beside_others_is_called_as_in_the_program() -> None:
    line = f"%copy-start.4 = ({SHAPE}, {SHAPE}, u32[]) copy-start({SHAPE} %x)"
    operator = read_operator("async-copy", line, {"hlo_category": "copy-start"})
    assert (operator.name, operator.instruction) == ("copy-start.4 (DtoD)", "copy-start.4")
