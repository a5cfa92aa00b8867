"""Members of one collective that made different calls: by hand, and ranks in words."""

from typing import Any

import pytest

from htk.quantities.measures.call_history import CallSite, GroupId, Histories, RecordedCall
from htk.quantities.measures.desync import find_mismatch, list_ranks, name_ranks, spell_elements

GROUP = GroupId("dp", (0, 2, 5, 7))
SITE = CallSite(GROUP, 4)
FLOATS = {"raw_name": "nccl:call", "dtype": "Float", "out_dtype": "Float"}


def reduce_of(size: int, **other: Any) -> dict[str, Any]:
    shapes = f"[[{size}]]"
    return FLOATS | {"type": "all_reduce", "in_shapes": shapes, "out_shapes": shapes} | other


def history(site: CallSite, *calls: dict[int, dict[str, Any]]) -> Histories:
    """The calls of each rank at a site and at those behind it."""
    by_site: dict[CallSite, dict[int, RecordedCall]] = {}
    for further, operations in enumerate(calls):
        here = site._replace(seq=site.seq + further)
        by_site[here] = {r: RecordedCall(r, here, 0, [o]) for r, o in operations.items()}
    return Histories({}, by_site, {}, {}, {}, set(), set(), set(), {}, {}, [])


def of_all(operation: dict[str, Any], **others: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The same of all four ranks, but for some: rank5=…"""
    changed = {int(name.removeprefix("rank")): call for name, call in others.items()}
    return dict.fromkeys(GROUP.ranks, operation) | changed


def test_equal_calls_agree_whatever_their_shapes() -> None:
    folded = reduce_of(12) | {"in_shapes": "[[3,4]]"}
    assert find_mismatch(history(SITE, of_all(reduce_of(12), rank5=folded)), SITE) is None


@pytest.mark.parametrize(
    ("other", "what", "words"),
    [
        (reduce_of(12, type="broadcast"), "type", "rank 5 calls broadcast"),
        (reduce_of(16), "size", "rank 5 calls all_reduce of in 16 out 16 elements"),
        (
            reduce_of(12, dtype="Half", out_dtype="Half"),
            "dtype",
            "rank 5 calls all_reduce of Half",
        ),
    ],
)
def test_a_majority_tells_who_is_wrong(other: dict[str, Any], what: str, words: str) -> None:
    disagreement = find_mismatch(history(SITE, of_all(reduce_of(12), rank5=other)), SITE)
    assert disagreement is not None
    assert (disagreement.what, disagreement.culprits, disagreement.decided) == (what, (5,), True)
    assert words in disagreement.words and "ranks 0,2,7 call " in disagreement.words


def test_two_against_two_blame_all_four() -> None:
    others = {"rank5": reduce_of(16), "rank7": reduce_of(16)}
    disagreement = find_mismatch(history(SITE, of_all(reduce_of(12), **others)), SITE)
    assert disagreement is not None
    assert (disagreement.culprits, disagreement.decided) == (GROUP.ranks, False)


def test_a_gather_contradicts_itself_and_needs_no_majority() -> None:
    """Four times 10 are 40, not 41; two of four say so, and both are wrong."""
    gather = FLOATS | {"type": "all_gather", "in_shapes": "[[10]]", "out_shapes": "[[40]]"}
    wrong = gather | {"out_shapes": "[[41]]"}
    disagreement = find_mismatch(history(SITE, of_all(gather, rank2=wrong, rank7=wrong)), SITE)
    assert disagreement is not None and disagreement.culprits == (2, 7)
    assert disagreement.words.endswith("10 elements in and 41 out, in a group of 4")


def test_parts_of_a_gather_may_differ_if_they_fill_the_whole() -> None:
    """10, 11, 12 and 13 fill 46: legal; of 47 one is missing."""
    parts = {r: 10 + k for k, r in enumerate(GROUP.ranks)}

    def calls(whole: int) -> dict[int, dict[str, Any]]:
        gather = FLOATS | {"type": "all_gather", "out_shapes": f"[[{whole}]]"}
        return {r: gather | {"in_shapes": f"[[{size}]]"} for r, size in parts.items()}

    assert find_mismatch(history(SITE, calls(46)), SITE) is None
    assert find_mismatch(history(SITE, calls(47)), SITE) is not None


def test_an_exchange_receives_what_is_sent() -> None:
    def calls(received: int) -> dict[int, dict[str, Any]]:
        exchange = FLOATS | {"type": "all_to_all", "out_shapes": "[[6]]"}
        sent = {r: exchange | {"in_shapes": f"[[{4 + k}]]"} for k, r in enumerate(GROUP.ranks)}
        sent[7] |= {"out_shapes": f"[[{received}]]"}
        return sent

    assert find_mismatch(history(SITE, calls(22 - 18)), SITE) is None  # 4 + 5 + 6 + 7 = 22
    disagreement = find_mismatch(history(SITE, calls(5)), SITE)
    assert disagreement is not None and not disagreement.decided
    assert disagreement.words == "all ranks send 22 elements and receive 23"


def test_both_ends_of_a_message_are_compared() -> None:
    site = CallSite(GROUP, 1, (5, 2))
    sent = reduce_of(8, type="send", out_shapes="[]")
    received = reduce_of(9, type="recv", in_shapes="[]")
    disagreement = find_mismatch(history(site, {5: sent, 2: received}), site)
    assert disagreement is not None and disagreement.culprits == (5, 2)
    assert disagreement.words == "rank 5 sends 8 elements, rank 2 expects 9"


def test_who_skips_a_call_is_told_from_who_makes_another() -> None:
    """All make calls of 1, 2, 3, 4 elements; rank 5 leaves the first out."""
    whole = [of_all(reduce_of(size)) for size in (1, 2, 3, 4)]
    for further, size in enumerate((2, 3, 4)):
        whole[further][5] = reduce_of(size)
    del whole[3][5]
    disagreement = find_mismatch(history(SITE, *whole), SITE)
    assert disagreement is not None
    assert (disagreement.what, disagreement.culprits) == ("order", (5,))
    assert disagreement.words.startswith("rank 5 skips one call; ")


def test_elements_of_each_tensor() -> None:
    assert spell_elements("[[4096,64],[3],[]]") == "262144+3+1"
    assert spell_elements(None) == spell_elements("[]") == "no"


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (range(0, 512, 8), "0..504:8"),
        ((0, 2, 4), "0,2,4"),
        ((0, 1, 2, 7), "0-2,7"),
        ((1, 3, 5, 7, 8, 9), "1..7:2,8-9"),
        ((3,), "3"),
        ((), ""),
    ],
)
def test_ranks_in_words(ranks: Any, text: str) -> None:
    assert list_ranks(tuple(ranks)) == text
    if ranks:
        assert name_ranks(tuple(ranks)) == f"rank{'s' * (len(ranks) > 1)} {text}"
