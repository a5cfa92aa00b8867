"""What a mistaken column was meant to be: by meaning, then by spelling."""

import pytest

import htk
from htk import Session
from htk.base.errors import UsageError
from htk.verdicts.query.meanings import _MEANT
from htk.verdicts.query.sql import describe_columns, list_relations


@pytest.fixture(scope="module")
def trace() -> Session:
    return htk.open("sample")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("select dur from kernels", "mean end_ns - start_ns?; kernels_with_ops has duration_ns"),
        ("select duration from cpu_ops", "end_ns - start_ns?; ops_with_steps has duration_ns"),
        ("select dur from kernels_with_ops", "did you mean duration_ns, end_ns - start_ns"),
        ("select k.dur from kernels k", "did you mean end_ns - start_ns"),
        ("select ts from kernels", "did you mean start_ns"),
        ("select kernel from kernels", "did you mean name"),
        ("select op from kernels", "did you mean name?; kernels_with_ops has op"),
        ("select tid from cpu_ops", "did you mean thread"),
        ("select stream_id from kernels", "did you mean stream"),
        ("select cat from kernels", "did you mean kind, activity"),
        (
            "select step from kernels",
            "no column 'step'; did you mean stream?; kernels_with_ops has",
        ),
        ("select bytes from kernels", "did you mean size_bytes"),
        ("select bytes from collectives", "did you mean in_bytes, out_bytes"),
        ("select avg from kernel_top", "did you mean duration_ns_mean"),
        ("select shapes from cpu_ops", "did you mean input_dims"),
        ("select strt_ns from kernels", "did you mean start_ns"),
    ],
)
def test_a_mistaken_column_is_answered_by_meaning(trace: Session, asked: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        trace.sql(asked)
    assert said in str(raised.value)


def test_what_it_suggests_is_a_column_somewhere() -> None:
    known = {column for relation in list_relations() for column in describe_columns(relation).names}
    words = {part for meant in _MEANT.values() for word in meant for part in word.split(" - ")}
    assert words <= known
