"""Reference pages from the registries: what the tool knows of itself, as Markdown.

MkDocs calls `on_files`; tests call `generated` to hold pages and registries together.
"""

import contextlib
import io
import json
import os
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import click

from htk.analyses import ANALYSES, find_analysis
from htk.answers.ask import ask_trace
from htk.answers.output.render import print_table
from htk.base.core.analysis import Analysis
from htk.base.core.humanize import command_name
from htk.base.errors import HtkError
from htk.base.schema import DERIVED, TABLES, doc_of, index_of
from htk.faces.cli.main import htk as program
from htk.parsers import list_parsers
from htk.traces.trace.opening import open_trace
from htk.whatif.edits import all_edits

HERE = Path(__file__).parent
DOCS = HERE.parent
SAMPLES = DOCS.parent / "sample_traces"
_ROWS = 8
_EXAMPLES = ("sample", "kineto", "recorded/transformer", "flight_recorder", "inspector", "ras")
_SUBJECTS = {
    "time": "Time",
    "kernels": "Kernels",
    "ops": "Operators",
    "comm": "Communication",
    "memory": "Memory",
    "run": "How it was run",
    "causes": "Causes",
    "jobs": "Whole jobs",
}


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site."""
    from mkdocs.structure.files import File

    for name, text in generated().items():
        files.append(File.generated(config, name, content=text))
    return files


def written() -> dict[str, str]:
    """Return the reference pages that lie in docs/ too, for those who read there, by name."""
    return {
        "questions.md": questions_page(),
        "edits.md": edits_page(),
        "tables.md": tables_page(),
        "formats.md": formats_page(),
    }


def generated() -> dict[str, str]:
    """Every generated page by its name."""
    pages = {f"analyses/{name}.md": analysis_page(find_analysis(name)) for name in ANALYSES}
    pages["analyses/index.md"] = analyses_page()
    pages["commands.md"] = commands_page()
    for notebook in sorted((DOCS / "notebooks").glob("*.ipynb")):
        pages[f"notebooks/{notebook.stem}.md"] = notebook_page(notebook)
    return pages


def formulas() -> dict[str, str]:
    return tomllib.loads((HERE / "formulas.toml").read_text(encoding="utf-8"))


def analysis_page(analysis: Analysis[...]) -> str:
    """The question, its definition, columns, options, an example, and where others differ."""
    _, _, rest = analysis.doc.partition("\n")
    lines = [f"# {analysis.name}", "", f"**{analysis.question}**", "", rest.strip(), ""]
    formula = formulas().get(analysis.name)
    if formula:
        lines += [f"> {formula}", ""]
    lines += ["## Columns", "", "| column | type | meaning |", "| --- | --- | --- |"]
    for field in analysis.returns:
        lines.append(f"| `{field.name}` | {_type(field.type)} | {_cell(doc_of(field))} |")
    lines += ["", "## Options", ""]
    if analysis.options:
        lines += ["| option | default | meaning |", "| --- | --- | --- |"]
        for option in analysis.options.values():
            flag = f"--{option.name.replace('_', '-')}"
            default = "–" if option.default is None else f"`{option.default}`"
            lines.append(f"| `{flag}` | {default} | {_cell(option.doc)} |")
        lines.append("")
    lines += ["And [those of every question](../commands.md#common-options).", ""]
    lines += ["## Example", "", *_example(analysis), "", *_differs(analysis.name)]
    lines += [f"Reads: {', '.join(_read(name) for name in analysis.reads)}.", ""]
    return "\n".join(lines)


def analyses_page() -> str:
    lines = ["# Analyses", "", "Each is a command, a method of a trace, a page of the dashboard"]
    lines += ["and a view in SQL. Every answer carries [what it rests on](../reading.md).", ""]
    for subject, title in _SUBJECTS.items():
        lines += [f"## {title}", "", "| | |", "| --- | --- |"]
        for name, entry in sorted(ANALYSES.items()):
            if entry.subject == subject:
                lines.append(f"| [`{name}`]({name}.md) | {_cell(entry.question)} |")
        lines.append("")
    return "\n".join(lines)


def questions_page() -> str:
    """Every question with its options and the columns of its answer, on one page."""
    lines = ["# Questions and their columns", ""]
    lines += ["Each is a command (`htk NAME PATH`), a method (`trace.NAME()`), a page of the"]
    lines += ["dashboard and a view in [SQL](sql.md). [Reading the answers](reading.md) says what"]
    lines += ["words mean. Times (`_ns`) are nanoseconds, shares (`_pct`) percent.", ""]
    for subject, title in _SUBJECTS.items():
        lines += [f"## {title}", ""]
        for name, entry in sorted(ANALYSES.items()):
            if entry.subject != subject:
                continue
            analysis = find_analysis(name)
            lines += [f"### {command_name(name)}", "", analysis.question, ""]
            lines += ["| column | meaning |", "| --- | --- |"]
            lines += [f"| `{field.name}` | {_cell(doc_of(field))} |" for field in analysis.returns]
            options = [
                f"`--{command_name(o.name)}` ({_cell(o.doc).rstrip('.')})"
                for o in analysis.options.values()
            ]
            lines += ["", *([f"Options: {', '.join(options)}.", ""] if options else [])]
    return "\n".join(lines).rstrip() + "\n"


def commands_page() -> str:
    """Every command that is no analysis, and the options that all questions share."""
    context = click.Context(program)
    lines = ["# Commands", ""]
    lines += [
        "`htk COMMAND --help` says the same. [Analyses](analyses/index.md) are commands too.",
        "",
    ]
    lines += ["## Common options", "", *_options(_common(context)), ""]
    shared = {option.name for option in _common(context)}
    for name in program.list_commands(context):
        if name in ANALYSES:
            continue
        command = program.get_command(context, name)
        assert command is not None
        lines += [f"## {name}", "", _help(command), ""]
        own = [p for p in command.params if isinstance(p, click.Option) and p.name not in shared]
        lines += [*_options(own), ""]
        for sub in getattr(command, "commands", {}).values():
            lines += [f"### {name} {sub.name}", "", _help(sub), ""]
            lines += [*_options([p for p in sub.params if isinstance(p, click.Option)]), ""]
    return "\n".join(lines)


def edits_page() -> str:
    lines = [
        "# Edits",
        "",
        "What `htk whatif` can change, in the order in which edits are applied.",
    ]
    lines += ["They combine in any order: `htk whatif PATH --batch 2x --network bandwidth=2x`.", ""]
    lines += ["| edit | |", "| --- | --- |"]
    lines += [f"| `--{e.NAME.replace('_', '-')}` | {_cell(e.HELP)} |" for e in all_edits()]
    lines += ["", "## Assumptions", ""]
    for edit in all_edits():
        text = " ".join((edit.__doc__ or "").split())
        lines += [f"**{edit.NAME}**: {text}", ""]
    return "\n".join(lines)


def tables_page() -> str:
    lines = ["# Tables", "", "What parsers fill, and what is made from it: `trace.tables[NAME]`,"]
    lines += [
        "`htk convert`, and relations in [SQL](sql.md). Times are nanoseconds since 1970.",
        "",
    ]
    for name, schema in {**TABLES, **DERIVED}.items():
        lines += [f"## {name}", "", "| column | type | meaning |", "| --- | --- | --- |"]
        for field in schema:
            row = f" (a row of `{index_of(field)}`)" if index_of(field) else ""
            lines.append(f"| `{field.name}` | {_type(field.type)} | {_cell(doc_of(field))}{row} |")
        lines.append("")
    return "\n".join(lines)


def formats_page() -> str:
    lines = ["# Formats", "", "A file is recognised by what is in it, not by its name; gzip and"]
    lines += ["Zstandard are unpacked, archives and URLs are opened. What is damaged is left out,"]
    lines += ["counted and shown (`htk doctor`); good records beside it are kept.", ""]
    for parser in list_parsers():
        first, _, rest = (parser.__doc__ or "").strip().partition("\n")
        lines += [f"## {parser.NAME}", "", f"**{first}**", "", rest.strip(), ""]
    lines += ["## Out of scope", ""]
    lines += ["Perfetto's protobuf, planes of TPUs in XLA profiles, and spreadsheets are not"]
    lines += ["read; of Nsight Systems the SQLite export is, not the report (`*.nsys-rep`).", ""]
    return "\n".join(lines)


def notebook_page(path: Path) -> str:
    """An executed notebook as Markdown: its words, code and what it printed."""
    lines: list[str] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            lines += [source, ""]
            continue
        lines += ["```python", source, "```", ""]
        for output in cell.get("outputs", []):
            lines += _output(output)
    name = f"docs/notebooks/{path.name}"
    return "\n".join([*lines, f"*This page is the notebook `{name}`, as it ran.*", ""])


def _output(output: dict[str, Any]) -> list[str]:
    data = output.get("data", {})
    if "text/html" in data and "application/vnd.plotly.v1+json" not in data:
        shown = "".join(data["text/html"]).replace("\n", " ")
        plain = shown.replace(' border="1" class="dataframe"', "")  # so that the theme styles it
        return ["<div>" + plain + "</div>", ""]
    if "image/svg+xml" in data:
        return ["".join(data["image/svg+xml"]).replace("\n", " "), ""]
    text = "".join(data.get("text/plain", output.get("text", [])))
    return ["```text", text.rstrip(), "```", ""] if text.strip() else []


@cache
def _sample(name: str) -> Any:
    return open_trace("sample" if name == "sample" else str(SAMPLES / name))


def _example(analysis: Analysis[...]) -> list[str]:
    """What it answers on the first of the samples that have its data."""
    for sample in _EXAMPLES:
        try:
            answer = ask_trace(_sample(sample), analysis.name)
        except HtkError:
            continue
        if not len(answer):
            continue
        text = io.StringIO()
        with _terminal(110):
            print_table(answer, limit=_ROWS, file=text)
        where = "sample" if sample == "sample" else f"sample_traces/{sample}"
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        return ["```console", f"$ htk {analysis.name} {where}", *lines, "```"]
    return ["```console", f"$ htk {analysis.name} PATH", "```"]


@contextlib.contextmanager
def _terminal(width: int) -> Any:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(width)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


_TOPICS = {  # words by which docs/differences.md speaks of an analysis
    "time_breakdown": (
        "synchronisation",
        "nanoseconds",
        "kernel set",
        "drops the last step",
        "sets are",
    ),
    "idle_breakdown": ("idle time",),
    "kernel_top": ("mean, minimum",),
    "kernel_kinds": ("communication is what begins",),
    "queue_length": ("queue",),
    "memory_bandwidth": ("bandwidth of copies",),
    "launch_stats": ("launch statistics",),
    "stragglers": ("straggler",),
    "comm_wait": ("straggler",),
    "clock_alignment": ("clocks of files",),
    "critical_path": ("critical path",),
    "annotation_breakdown": ("annotation's time",),
    "flops": ("causal attention", "bias of", "have no model"),
    "roofline": ("causal attention", "GiB/s", "have no model"),
    "collective_times": ("collective's number", "without full metadata", "GiB/s"),
    "op_breakdown": ("launches are linked",),
}


def _differs(name: str) -> list[str]:
    """The lines of the page on differences that concern an analysis."""
    tool, rows = "", []
    for line in (DOCS / "differences.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            tool = line[3:].partition(" (")[0].replace("Holistic Trace Analysis", "HTA")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) < 3 or not any(topic in cells[0] for topic in _TOPICS.get(name, ())):
            continue
        rows.append(f"- {tool}: {cells[0]}. Here: {cells[1]} ({cells[2]}).")
    if not rows:
        return []
    return [
        "## Where other tools differ",
        "",
        *rows,
        "",
        "[All differences](../differences.md).",
        "",
    ]


def _common(context: click.Context) -> list[click.Option]:
    """The options that every question takes."""
    first = program.get_command(context, "time_breakdown")
    assert first is not None
    own = find_analysis("time_breakdown").options
    return [p for p in first.params if isinstance(p, click.Option) and p.name not in own]


def _options(options: list[click.Option]) -> list[str]:
    if not options:
        return []
    lines = ["| option | default | meaning |", "| --- | --- | --- |"]
    for option in options:
        flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
        shown = option.default not in (None, False, (), "") and "UNSET" not in str(option.default)
        default = f"`{option.default}`" if shown else "–"
        lines.append(f"| {flags} | {default} | {_cell(option.help or '')} |")
    return lines


def _help(command: click.Command) -> str:
    return " ".join((command.help or "").replace("\b", "").split("\f")[0].split())


def _read(name: str) -> str:
    return f"[`{name}`]({name}.md)" if name in ANALYSES else f"[`{name}`](../tables.md#{name})"


def _type(kind: Any) -> str:
    return "text" if str(kind).startswith("dictionary") else str(kind)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    for page, content in written().items():
        (DOCS / page).write_text(content, encoding="utf-8")
