"""Lines of a text: bounded, and without what launchers put before them."""

import io
import random

import pytest

from htk.base.core.parser import Source
from htk.parsers import nccl_debug
from htk.parsers.common import log_lines, log_records
from htk.parsers.common.log_lines import read_lines, strip_prefixes
from tests.parsers.log_files import SAMPLES, Row, parsed, readings, rows


def test_an_endless_line_is_read_in_bounded_time() -> None:
    line = b"node-a:1:2 [0] NCCL INFO " + b"WorkNCCL(SeqNum=" * (50 * (1 << 20) // 16)
    long = parsed(nccl_debug, line + b"\nnode-a:1:2 [0] NCCL INFO y\n")
    assert [i["kind"] for i in rows(long, "parse_issues")] == ["overlong_line"]
    assert readings(long).total() == 2


def test_behind_a_progress_bar() -> None:
    bar = "".join(f"\rEpoch 3: {k}it [00:{k % 60:02d}, loss=5.46]" for k in range(5000))
    (work,) = (SAMPLES / "watchdog/rank_missing.log").read_text().splitlines()[:1]
    (call,) = rows(parsed(nccl_debug, bar + work + "\n"), "collectives")
    assert (call["rank"], call["seq"]) == (0, 78)


NCCL = "node-a:4100:4200 [0] NCCL INFO comm 0x1 rank 3 nranks 8 cudaDev 0 busId 1b000 commId 0x2 - Init COMPLETE"  # noqa: E501


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("", None),
        ("[1,3]<stdout>:", 3),
        ("[1,3]<stderr>: ", 3),
        ("Fri Mar  1 10:00:00 2024[1,3]<stdout>:", 3),
        ("[prterun-node-a-71@1,3]<stdout>: ", 3),
        ("[prterun-node-a-71@1,3][node-a:4100]<stdout>: ", 3),
        ("3: ", None),
        ("  3: ", None),
        ("[3] ", None),
        ("node-7: ", None),
        ("10.0.0.7: ", None),
        ("[default3]:", None),
        ("[rank3]: ", 3),
        ("(TrainWorker pid=90210, ip=10.0.0.4) ", None),
        ("\x1b[36m(TrainWorker[rank=3] pid=90210, ip=10.0.0.4)\x1b[0m ", 3),
        ("2025-11-13T09:58:07.123456789Z ", None),
        ("2025-11-13T09:58:07.123456789Z stdout F ", None),
        ("[pod/job-0/trainer] 2025-11-13T09:58:07Z ", None),
        ("worker-1  | ", None),
        ("[2025-11-13 09:58:07] ", None),
    ],
)
def test_prefixes(prefix: str, rank: int | None) -> None:
    log = parsed(nccl_debug, prefix + NCCL + "\n")
    (group,) = rows(log, "comm_groups")
    assert (group["comm_hash"], group["group_size"]) == (2, 8)
    (init,) = rows(log, "comm_inits")
    assert (init["host"], init["process"], init["comm_rank"]) == ("node-a", "4100", 3)
    stripped = strip_prefixes(0, prefix + "Traceback (most recent call last):")
    if not prefix.startswith("[2025"):
        assert stripped.text == "Traceback (most recent call last):" and stripped.rank == rank


def lines_of(data: bytes, longest: int = 1 << 16) -> tuple[list[tuple[int, str]], list[Row]]:
    issues = log_records.Issues()
    source = Source("a.log", lambda: io.BytesIO(data))
    lines = [(line.offset, line.text) for line in read_lines(source, issues, longest=longest)]
    return lines, issues.table().to_pylist()


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
def test_lines_do_not_depend_on_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "_BLOCK", block)
    data = b"one\n\ntwo\rthree\n\rfour\r\nf\xffve\n\n\nlast"
    expected = [
        (0, "one"), (4, ""), (5, "two"), (9, "three"), (16, "four"), (22, "f\ufffdve"),
        (27, ""), (28, ""), (29, "last"),
    ]  # fmt: skip
    assert lines_of(data) == (expected, [])


@pytest.mark.parametrize("block", [1, 5, 1 << 20])
def test_of_an_overlong_line_the_begin_is_read(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "_BLOCK", block)
    lines, issues = lines_of(b"ab\n0123456789abcdef\ncd\n" + b"x" * 9, longest=8)
    assert lines == [(0, "ab"), (3, "01234567"), (20, "cd"), (23, "xxxxxxxx")]
    assert [(i["kind"], i["offset"]) for i in issues] == [
        ("overlong_line", 3),
        ("overlong_line", 23),
    ]


def test_random_bytes_split_as_python_splits_them() -> None:
    rng = random.Random(7)
    for _ in range(200):
        data = bytes(rng.choices(b"ab\n", k=rng.randrange(40)))
        expected, offset = [], 0
        for line in data.split(b"\n"):
            expected.append((offset, line.decode()))
            offset += len(line) + 1
        lines, _ = lines_of(data)
        assert lines == (expected if expected[-1][1] else expected[:-1])
