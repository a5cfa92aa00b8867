"""Texts from files in Markdown stay text, as a renderer of Markdown shows them."""

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from htk.base.core.markdown import escape_markdown, quote_markdown
from htk.faces.cli.main import run_command_line
from tests.kineto_file import kernel, of_rank, write

EVIL = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[k](javascript:alert(1))",
    "![k](http://evil/x.png)",
    "<http://evil>",
    "https://evil/x www.evil.org",
    "`x` ``y`` |a|b|",
    "**bold** __init__ _x_ ~~gone~~ a_b__c",
    "\\<b>\\[x](y)",
    "@user",
    "[ref]: http://evil",
]


def render(text: str) -> str:
    return str(MarkdownIt("commonmark").enable("table").render(text))


def tags_of(html: str) -> set[str]:
    return set(re.findall(r"<(\w+)", html))


@pytest.mark.parametrize("text", EVIL)
def test_a_sentence_is_shown_as_it_is(text: str) -> None:
    html = render(f"so {escape_markdown(text)}")
    assert tags_of(html) == {"p"}
    assert html.replace("&lt;", "<").replace("&gt;", ">") == f"<p>so {text}</p>\n"


@pytest.mark.parametrize("text", EVIL)
def test_a_name_stays_in_its_cell(text: str) -> None:
    html = render(f"| name | n |\n| --- | --- |\n| {quote_markdown(text)} | 7 |")
    assert tags_of(html) <= {"table", "thead", "tbody", "tr", "th", "td", "code"}
    assert html.count("<td>") == 2 and "<td>7</td>" in html


def test_nothing_links_by_itself() -> None:
    assert escape_markdown("https://evil, www.x, @user") == r"https\://evil, www\.x, &#64;user"


def test_a_table_of_hostile_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernels = [kernel(name, 10 * k, 5) for k, name in enumerate(EVIL)]
    write(tmp_path / "rank0.json", *kernels, **of_rank(0))
    assert run_command_line(["kernel_top", str(tmp_path), "--no-cache", "--format", "md"]) == 0
    html = render(capsys.readouterr().out)
    assert tags_of(html) <= {"table", "thead", "tbody", "tr", "th", "td", "code", "p"}
    assert html.count("<tr>") == 1 + len(EVIL)
