"""Texts from files in Markdown: none becomes a tag, a link, a mention or other markup."""

import re

from htk.base.core.humanize import make_visible

# Underscores within words are no markup, and names are full of them.
_MARKUP = re.compile(r"[\\`*\[\]<>|~@]|:(?=//)|(?<=www)\.|(?<![^\W_])_|_(?![^\W_])")


def escape_markdown(text: str) -> str:
    r"""Return a sentence on one line that Markdown shows as it is.

    >>> print(escape_markdown("<b> [x](https://y)"))
    \<b\> \[x\](https\://y)
    """
    return _MARKUP.sub(_escape_character, make_visible(text))


def _escape_character(match: re.Match[str]) -> str:
    return "&#64;" if match[0] == "@" else f"\\{match[0]}"  # a mention survives a backslash


def quote_markdown(name: str) -> str:
    """Return a name, as code where Markdown would read something else in it.

    >>> quote_markdown("gemm"), quote_markdown("f<int>")
    ('gemm', '`f<int>`')
    """
    return code_span(name) if _MARKUP.search(name) else make_visible(name)


def code_span(text: str) -> str:
    """Return text as code that stays within its cell of a table."""
    inert = make_visible(text).replace("|", r"\|").replace("`", "'")
    return f"`{inert}`"
