"""What a rank would have called next: by hand, from what it and others called before."""

from htk.quantities.measures.call_history import CallSite, GroupId, Histories, RecordedCall
from htk.quantities.measures.post_mortem.next_call import in_order_of_program

GROUPS = {
    "a": GroupId("a", (0, 1)),
    "b": GroupId("b", (0, 1, 2)),
    "c": GroupId("c", (0, 1, 2, 3)),
}


def called(rank: int, program: str) -> list[RecordedCall]:
    sites = [CallSite(GROUPS[name], program[:k].count(name) + 1) for k, name in enumerate(program)]
    return [RecordedCall(rank, site, k) for k, site in enumerate(sites)]


def order(own: str, other: str, asked: str) -> str:
    calls = {0: called(0, own), 1: called(1, other)}
    history = Histories(calls, {}, {}, {}, {}, set(), set(), set(), {}, {}, [])
    sites = [CallSite(GROUPS[name], 99) for name in asked]
    return "".join(s.group.name for s in in_order_of_program(history, 0, sites, [1]))


def test_what_another_rank_called_from_the_start_tells() -> None:
    assert order("ab", "abca", "ac") == "ca"
    assert order("a", "aab", "ba") == "ab", "the start is alike, not the second call of a"


def test_its_own_last_step_tells() -> None:
    assert order("abcab", "", "ac") == "ca"
    assert order("abcabacab", "", "abc") == "acb", "the longest stretch, c a b, was followed by a c"


def test_without_any_likeness_the_order_stays() -> None:
    assert order("a", "bc", "cb") == "cb"
    assert order("", "abc", "cb") == "cb"
