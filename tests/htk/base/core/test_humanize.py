import pytest

from htk.base.core.humanize import (
    cut_message,
    format_bytes,
    format_change,
    format_duration,
    format_value,
    make_sentence,
    parse_duration,
    parse_int_ranges,
    shorten_apart,
    shorten_text,
)
from htk.base.errors import UsageError


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (12_345, "12.3 µs"),
        (1_234_567, "1.23 ms"),
        (987_000_000, "987 ms"),
        (61_000_000_000, "61.0 s"),
        (-1_500_000, "-1.50 ms"),
        (9_996_000, "10.0 ms"),
        (99_960_000, "100 ms"),
        (999_499_999, "999 ms"),
        (999_500_000, "1.00 s"),
        (-999_999, "-1.00 ms"),
        (999.7, "1.00 µs"),
        (12.34, "12.3 ns"),
        (0.4, "< 1 ns"),
        (4_321_000_000_000, "4,321 s"),
    ],
)
def test_times_read_well(ns: float, text: str) -> None:
    assert format_duration(ns) == text


def test_sizes_are_binary_and_say_so() -> None:
    assert format_bytes(1536) == "1.50 KiB"
    assert format_bytes(0) == "0 B"
    assert format_bytes((1 << 20) - 1) == "1.00 MiB"
    assert format_bytes(1023 << 10) == "1,023 KiB"


@pytest.mark.parametrize(
    ("text", "ns"), [("250us", 250_000), ("1.5ms", 1_500_000), ("2s", 2 * 10**9), ("0", 0)]
)
def test_durations(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["", "fast", "1h", "1 2"])
def test_what_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["9" * 30 + "ms", "-" + "9" * 400 + "s"])
def test_a_time_of_more_than_a_century_is_refused(text: str) -> None:
    assert parse_duration(f"{86_400 * 365 * 99}s") == 86_400 * 365 * 99 * 10**9
    with pytest.raises(UsageError, match="longer than a century"):
        parse_duration(text)


def test_a_time_without_a_unit_is_refused() -> None:
    with pytest.raises(UsageError, match="'5' has no unit; write a time as 250us"):
        parse_duration("5")


def test_lists_of_numbers() -> None:
    assert parse_int_ranges("0,2..4,9") == [0, 2, 3, 4, 9]


@pytest.mark.parametrize("text", ["", "a", "1..", "..3", "1-3", "²", "0..99999999999", "9" * 19])
def test_what_is_no_list_of_numbers_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_int_ranges(text)


def test_long_kernel_names_lose_parameters_and_namespaces_first() -> None:
    name = "void at::native::elementwise_kernel<128, 4, at::native::Foo<float>>(int, float)"
    assert shorten_text(name, 60) == "elementwise_kernel<128, 4, Foo<float>>"
    assert shorten_text(name, 30) == "elementwise_kernel<128, 4, F…>"
    assert shorten_text("void a::" + "f" * 60 + "<int>(int)", 21) == "a::ffffffffff…fffffff"
    enabled = "std::enable_if<(((8) > (0)) && true), void>::type vllm::norm<" + "a" * 60 + ">(int)"
    assert shorten_text(enabled, 21) == "vllm::norm<" + "a" * 8 + "…>"
    assert shorten_text(f"({'x' * 60})", 21) == "(" + "x" * 12 + "…" + "x" * 6 + ")"
    assert shorten_text("x" * 100, 21) == "x" * 13 + "…" + "x" * 7


def test_sequences_keep_their_first_names_and_tell_how_many_follow() -> None:
    first, second = (f"void a::{n}<" + "x" * 50 + ">(int)" for n in ("first", "second"))
    assert shorten_text(f"{first} ×3", 20) == "a::first<xxxxxx…> ×3"
    two = "a::first<xxxx…> ×3 → a::second<xxxxxx…>"
    assert shorten_text(f"{first} ×3 → {second}", 46) == two
    assert shorten_text(f"{first} ×3 → {second} → third → fourth", 46) == f"{two} → … 2"
    assert shorten_text("first → second → third → fourth", 24) == "first → second → … 2"


def test_missing_is_a_dash_not_a_zero() -> None:
    assert format_value(None, "ns") == "–"
    assert format_value(0, "ns") == "0 ns"
    assert format_value(True, "") == "yes"


def test_large_changes_are_factors() -> None:
    """From ten times on: 15.8 ms of 0.484 ms are 32.6 times, not +3157.5 %."""
    changes = {3157.5: "32.6x", 900: "10.0x", 899.9: "+899.9 %", -12.34: "-12.3 %", 99900: "1,000x"}
    assert {percent: format_change(percent) for percent in changes} == changes


def test_sentences_leave_names_as_they_are() -> None:
    words = {
        "the GPU waits": "The GPU waits.", "launch-bound: slow": "Launch-bound: slow.",
        "aten::mm takes 55 %": "aten::mm takes 55 %.", "147 ms of it.": "147 ms of it.",
        "cudaMalloc takes it": "cudaMalloc takes it.", "nccl_x runs": "nccl_x runs.",
    }  # fmt: skip
    assert {text: make_sentence(text) for text in words} == words


def test_names_that_differ_are_cut_where_they_do_not() -> None:
    tiles = [
        f"ampere_bf16_s16816gemm_bf16_{t}_ldg8_f2f_stages_64x3_nn" for t in ("128x64", "64x64")
    ]
    long = [f"{'same_' * 20}{k}_{'tail_' * 20}{end}" for k in range(3) for end in ("a", "b")]
    names = [*tiles, *long, "gemm", "gemm"]
    cut = shorten_apart(names, 42)
    assert set(cut) == set(names) and cut["gemm"] == "gemm"
    assert all(len(short) <= 42 for short in cut.values())
    assert [cut[name] for name in tiles] == [
        f"ampere_bf16_s16816gemm_bf16_{tile}_ldg8_…" for tile in ("128x64", "64x64")
    ]
    assert len(set(cut.values())) == len(set(names))


def test_words_of_a_mangled_name() -> None:
    name = (
        "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_8Pipeline" + "INS_" * 9 + "5KargsEEEEEEvDpT1_"
    )
    assert shorten_text(name) == "ck_tile::kentry<Rmsnorm2dFwd, Pipeline, Kargs>"


def test_a_long_message_shows_that_it_goes_on() -> None:
    assert cut_message("x" * 200) == "x" * 200
    assert cut_message("x" * 201) == "x" * 199 + "…"
