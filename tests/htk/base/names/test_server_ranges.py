"""Names of servers' ranges, each form as its engine writes it, with what it tells by hand."""

import pytest

from htk.base.names.server_ranges import (
    RequestSums,
    form_of,
    is_capture_range,
    is_server_range,
    read_server_range,
)

NONE = (0, 0)
# phase, requests and tokens read, requests and tokens answered, tokens computed, traits
CASES = {
    # vLLM: a version that tells tokens, one that tells all sums, one that tells requests alone
    "execute_context_2(14721)_generation_0(0)": ("prefill", (2, 14721), NONE, None, ()),
    "execute_context_0(0)_generation_64(64)": ("decode", NONE, (64, 64), None, ()),
    "execute_context_0(0)_generation_32(128)": ("decode", NONE, (32, 128), None, ("speculative",)),
    "execute_context_2(6144)_generation_3(3)": ("mixed", (2, 6144), (3, 3), None, ()),
    "execute_context_0(0)_generation_0(0)": ("idle", NONE, NONE, None, ()),
    "execute_context_1(888_788544)_generation_0(0)": ("prefill", (1, 888), NONE, None, ()),
    "execute_14721_context_2(sq14721sk16221sqsq108745533sqsk120007533)"
    "_generation_0(sq0sk0sqsq0sqsk0)": ("prefill", (2, 14721), NONE, 14721, ("chunked",)),
    "execute_6152_context_2(sq6144sk6144sqsq20971520sqsk20971520)"
    "_generation_3(sq3sk6144sqsq3sqsk6144)": ("mixed", (2, 6144), (3, 3), 6152, ("padded",)),
    "execute_128_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq128sk65536sqsq512sqsk262144)": (
        "decode", NONE, (32, 128), 128, ("speculative",)
    ),
    "execute_new_2_cached_0": ("prefill", (2, None), (0, None), None, ()),
    "execute_new_2_cached_3": ("mixed", (2, None), (3, None), None, ()),
    # SGLang, by its forward modes
    "step[EXTEND bs=2 toks=14721]": ("prefill", (2, 14721), NONE, None, ()),
    "step[EXTEND bs=2 toks=14721 c_sqsq=108745533 c_sqsk=120007533 c_sk=16221]": (
        "prefill", (2, 14721), NONE, None, ("chunked",)
    ),
    "step[DECODE bs=64]": ("decode", NONE, (64, 64), None, ()),
    "step[DECODE bs=64 g_sqsq=64 g_sqsk=131072 g_sk=131072]": (
        "decode", NONE, (64, 64), None, ()
    ),
    "step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]": (
        "decode", NONE, (64, 128), None, ("speculative",)
    ),
    "step[TARGET_VERIFY bs=64]": ("decode", NONE, (64, None), None, ()),
    "step[DRAFT_EXTEND bs=64]": ("draft", NONE, (64, None), None, ()),
    "step[MIXED bs=2]": ("mixed", (None, None), (None, None), None, ()),
    "step[mixed bs=66 ext=300 dec=64]": ("mixed", (2, 300), (64, 64), None, ()),
    "step[MIXED bs=66 c=2 g=64 c_sq=2048 c_sk=3000 c_sqsq=2097152 c_sqsk=3072000 "
    "g_sq=64 g_sk=65600 g_sqsq=64 g_sqsk=65600]": (
        "mixed", (2, 2048), (64, 64), None, ("chunked",)
    ),
    "step[IDLE bs=0]": ("idle", NONE, NONE, None, ()),
    "step[idle]": ("idle", NONE, NONE, None, ()),
    # ATOM
    "prefill[bs=2 tok=14721 ctx=[7803, 6918]]": ("prefill", (2, 14721), NONE, None, ()),
    "prefill[bs=6 tok=17408 ctx=[4096, 4096, 4096]...+3 sqsq=59768832 sqsk=59768832 sk=17408]": (
        "prefill", (6, 17408), NONE, None, ()
    ),
    "decode[bs=64 tok=64 d=64]": ("decode", NONE, (64, 64), None, ()),
    "decode[bs=117/128 tok=117 d=117]": ("decode", NONE, (117, 117), 128, ("padded",)),
    "decode[bs=32 tok=128 d=32 spec=3 sqsq=512 sqsk=262144 sk=65536]": (
        "decode", NONE, (32, 128), None, ("speculative",)
    ),
    "decode[bs=30/32 tok=120 d=30 spec=3]": (
        "decode", NONE, (30, 120), 128, ("speculative", "padded")
    ),
    "decode[bs=128 tok=384 p=2 d=126 sqsq=132612 sqsk=1114112 sk=258048 tbo=1]": (
        "mixed", (2, None), (126, None), None, ()
    ),
    "eager_decode[bs=3 tok=3 d=3]": ("decode", NONE, (3, 3), None, ()),
    # TensorRT-LLM
    "[Executor] _forward_step 7: 2 ctx reqs, 900 ctx tokens, 30 gen reqs": (
        "mixed", (2, 900), (30, None), None, ()
    ),
    "_forward_step: 0 ctx reqs, 64 gen reqs": ("decode", NONE, (64, None), None, ()),
    "executeStep: 3 ctx reqs, 0 gen reqs": ("prefill", (3, None), (0, None), None, ()),
    # others
    "execute_diffusion_2_256x256": ("diffusion", NONE, (2, None), None, ()),
    "prefill": ("prefill", (None, None), (None, None), None, ()),
    "generate": ("decode", (None, None), (None, None), None, ()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_each_form_tells(name: str) -> None:
    told = read_server_range(name)
    assert told is not None
    sides = [(side.requests, side.tokens) for side in (told.prompts, told.answers)]
    assert (told.phase, *sides, told.computed, told.traits) == CASES[name]


def test_pairs_of_a_chunk_and_of_answers() -> None:
    """A chunk of 3 tokens after 5 looks at 6 + 7 + 8 tokens; an answer at all of its context."""
    assert RequestSums(1, 3, 8, 9, 24).pairs == 6 + 7 + 8
    assert RequestSums(2, 2, 30).pairs == 30, "a token each, so keys are pairs"
    assert RequestSums(1, 3, 8).pairs is None


@pytest.mark.parametrize(
    "name", ["aten::mm", "ProfilerStep#3", "execute_plan", "step[3]", "stepping", "", "decoder"]
)
def test_other_ranges_tell_nothing(name: str) -> None:
    assert read_server_range(name) is None
    assert not is_server_range(name)


def test_a_plain_word_is_read_but_proves_no_server() -> None:
    assert form_of("decode") == "plain"
    assert not is_server_range("decode")
    assert is_server_range("step[idle]")


@pytest.mark.parametrize("name", ["capture_32_DECODE", "capture_8192_PIECEWISE", "capture_1_mixed"])
def test_captures(name: str) -> None:
    assert is_capture_range(name)
    assert read_server_range(name) is None
