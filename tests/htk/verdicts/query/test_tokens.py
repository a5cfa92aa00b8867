"""The words of a query: against queries put together from known words, and texts made to hurt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.verdicts.query.tokens import split_into_tokens

_INNER = st.text("ab'\"\\$-/* \n()", max_size=6)
_WORDS = st.one_of(
    _INNER.map(lambda t: ("'" + t.replace("'", "''") + "'", ("text", t))),
    _INNER.map(lambda t: ('"' + t.replace('"', '""') + '"', ("quoted", t))),
    _INNER.filter(lambda t: "$q$" not in f"{t}$q$"[:-1]).map(lambda t: (f"$q${t}$q$", ("text", t))),
    st.sampled_from(["select", "kernels", "k1", "Größe"]).map(lambda t: (t, ("name", t))),
    st.sampled_from(["1", "2.5", ".5", "1e-3"]).map(lambda t: (t, ("number", t))),
    st.sampled_from(["(", ")", ",", ":=", "=>", "=", "*"]).map(lambda t: (t, ("sign", t))),
)
_BETWEEN = st.sampled_from([" ", "\n", " -- kernels ' \n", " /* a /* ' */ \" */ "])


@given(st.lists(st.tuples(_WORDS, _BETWEEN), max_size=12))
def test_words_are_told_from_each_other(
    parts: list[tuple[tuple[str, tuple[str, str]], str]],
) -> None:
    query = "".join(word + between for (word, _), between in parts)
    words = list(split_into_tokens(query))
    assert [word[:2] for word in words] == [expected for (_, expected), _ in parts]
    assert [query[word.start : word.end] for word in words] == [text for (text, _), _ in parts]


@pytest.mark.parametrize(
    "query",
    [
        "''" * 500_001,
        "kernel_top(" + "''" * 500_000,
        "'" * 1_000_001,
        '"' * 1_000_001,
        "/*" * 500_000,
        "e'" + "\\" * 1_000_001,
        "$a" * 500_000,
        "1e" * 500_000,
        "(" * 1_000_000,
    ],
)
def test_no_text_is_looked_at_twice(query: str) -> None:
    """A reader that goes back would not end within a lifetime."""
    assert sum(1 for _ in split_into_tokens(query)) <= len(query)


def test_what_has_no_end_names_nothing() -> None:
    for query in ("1 ' kernels", '1 " kernels', "1 /* kernels", "1 $$ kernels"):
        assert [word.value for word in split_into_tokens(query)] == ["1"], query
