"""The words of a query, read once from left to right.

Every pattern is possessive and no two of its branches begin alike, so that no text of whatever
length or nesting is looked at twice: a query comes from strangers.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"(?P<blank>\s++|--[^\n]*+)"
    r"|(?P<comment>/\*)"
    r"|(?P<text>'(?:[^']|'')*+')"
    r"|(?P<escaped>[eE]'(?:[^'\\]|\\.|'')*+')"
    r'|(?P<quoted>"(?:[^"]|"")*+")'
    r"|(?P<dollar>\$(?:[A-Za-z_]\w*+)?+\$)"
    r"|(?P<number>(?:\d[\w.]*+|\.\d[\w.]*+)(?:(?<=[eE])[-+]\d++)?+)"
    r"|(?P<name>[^\W\d]\w*+)"
    r"|(?P<sign>:=|=>|.)",
    re.DOTALL,
)
_COMMENT = re.compile(r"/\*|\*/")


class Token(NamedTuple):
    """A word of a query, and where it stands."""

    kind: str  # text, name, quoted (an identifier), number, sign
    value: str  # of a text or a quoted identifier: what it says, without its quotes
    start: int
    end: int


def split_into_tokens(query: str) -> Iterator[Token]:
    """Yield the words of a query; comments and white space are left out.

    A text, identifier or comment without an end takes the rest of the query: DuckDB refuses it.
    """
    position = 0
    while match := _TOKEN.match(query, position):
        kind = match.lastgroup or ""
        start = match.start()
        position = match.end()
        word = match.group()
        if kind == "blank":
            continue
        if kind == "comment":
            position = _comment_end(query, position)
            continue
        if kind == "dollar":
            closing = query.find(word, position)
            if closing < 0:
                return
            yield Token("text", query[position:closing], start, closing + len(word))
            position = closing + len(word)
            continue
        if kind == "sign" and word in "'\"":
            return
        yield Token(*_unquote_word(kind, word), start, position)


def _unquote_word(kind: str, word: str) -> tuple[str, str]:
    if kind == "text":
        return kind, word[1:-1].replace("''", "'")
    if kind == "escaped":
        return "text", word[2:-1]
    if kind == "quoted":
        return kind, word[1:-1].replace('""', '"')
    return kind, word


def _comment_end(query: str, position: int) -> int:
    """Return where a comment ends; comments nest."""
    depth = 1
    for match in _COMMENT.finditer(query, position):
        depth += 1 if match.group() == "/*" else -1
        if not depth:
            return match.end()
    return len(query)
