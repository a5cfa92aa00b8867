"""The gate's judgement as Markdown: for a pull request, or the summary of a job."""

from collections.abc import Sequence

import pyarrow as pa

from htk.base.core.humanize import format_change, format_duration, pluralize_count, shorten_text
from htk.base.core.markdown import code_span, escape_markdown
from htk.base.mappings import Facts
from htk.traces.compare.baseline import RecordedBaseline
from htk.traces.compare.regression import Judgement, spell_change


def render_gate_markdown(
    judged: Sequence[Judgement],
    changed: pa.Table,
    facts: Facts,
    base: RecordedBaseline,
    new: RecordedBaseline,
) -> str:
    """For a pull request: the verdict, the rules, and folded what changed most.

    Without rules nothing is judged: it says how the step changed, and not that it may.
    """
    failed = [j for j in judged if j.verdict == "failed"]
    unsure = [j for j in judged if j.verdict not in ("passed", "failed")]
    headline = (
        f"{pluralize_count(len(judged), 'limit')} kept" if judged else "compared, nothing judged"
    )
    if failed:
        headline = f"{len(failed)} of {len(judged)} limits exceeded"
    elif unsure:
        headline = f"{len(unsure)} of {len(judged)} limits could not be judged"
    mark = "❌ " if failed else "⚠️ " if unsure else "✅ " if judged else ""
    lines = [f"### {mark}htk {'gate' if judged else 'diff'}: {headline}", ""]
    lines += [*(f"{escape_markdown(line)}  " for line in facts["in_short"]), ""]
    if judged:
        lines += ["| rule | base | new | change | noise | verdict |"]
        lines += ["| --- | ---: | ---: | ---: | ---: | --- |"]
    for j in judged:
        change = "–" if j.change is None else spell_change(j.change, j.rule.unit)
        noise = "–" if j.noise is None else spell_change(j.noise, j.rule.unit).lstrip("+")
        times = f"{format_duration(j.base_ns)} | {format_duration(j.new_ns)}"
        lines.append(
            f"| {code_span(j.rule.text)} | {times} | {change} | {noise} | **{j.verdict}** |"
        )
    lines.append("")
    for j in failed + unsure:
        lines.append(f"- {code_span(j.rule.text)}: {escape_markdown(j.reason)}")
    lines += ["", *_list_details(changed)]
    lines += ["", *(f"- {escape_markdown(note)}" for note in facts.get("notes", []))]
    who = " · ".join(
        f"{name}: {pluralize_count(side.steps, 'run' if side.runs else 'step')}, "
        f"{pluralize_count(len(side.ranks), 'rank')}"
        for name, side in (("base", base), ("new", new))
    )
    return "\n".join([*lines, "", f"<sub>{who}; times are of a step, means over ranks</sub>", ""])


def _list_details(changed: pa.Table) -> list[str]:
    rows = [row for row in changed.to_pylist() if row["change"] not in ("same", "unclear")]
    if not rows:
        return ["Nothing else changed by more than the noise of the steps."]
    lines = ["<details><summary>What changed most</summary>", ""]
    lines += [
        "| | name | change | base | new | difference |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        share = "" if row["diff_pct"] is None else f" ({format_change(row['diff_pct'])})"
        times = f"{format_duration(row['base_ns'])} | {format_duration(row['new_ns'])}"
        name = code_span(shorten_text(row["name"], 60))
        lines.append(
            f"| {row['by']} | {name} | {row['change']} | {times} | "
            f"{spell_change(row['diff_ns'], 'ns')}{share} |"
        )
    return [*lines, "", "</details>"]
