"""A report as Markdown, for pull requests and tickets, and as JSON, for machines."""

import json
from dataclasses import replace

from htk.answers.output.coverage_text import coverage_lines
from htk.answers.output.render import to_text
from htk.answers.output.result import Result
from htk.base.core.humanize import format_duration
from htk.base.core.markdown import code_span, escape_markdown
from htk.base.mappings import Fields
from htk.faces.report.content import Answered, Report

SCHEMA = "htk.report/1"
_ROWS = 10


def render_report_markdown(report: Report) -> str:
    """Headline, causes, where the time goes; the rest folded."""
    verdict = report.verdict
    lines = [
        f"## {escape_markdown(report.title)}",
        "",
        f"**{escape_markdown(verdict.headline)}**" + _describe_devices(report),
        "",
    ]
    lines += _list_share_lines(report)
    lines += _list_cause_lines(report)
    lines += _list_whatif_lines(report)
    for section in report.sections:
        for answered in section.answers:
            lines += _fold_answer(answered)
    lines += [
        "",
        *(
            f"<sub>{escape_markdown(line.strip())}</sub>  "
            for line in coverage_lines(verdict.coverage)
        ),
    ]
    versions = ", ".join(f"{name} {value}" for name, value in report.versions.items())
    lines += [f"<sub>{code_span(report.command)} · {report.created} · {versions}</sub>", ""]
    return "\n".join(lines)


def _describe_devices(report: Report) -> str:
    return f" · {escape_markdown(report.devices)}" if report.devices else ""


def _list_share_lines(report: Report) -> list[str]:
    verdict = report.verdict
    total_ns = verdict.step_ns or verdict.window_ns
    shown = [s for s in verdict.shares if s.pct >= 0.05]
    if not shown:
        return ["No GPU work was recorded.", ""]
    head = "of a step" if verdict.step_ns else "recorded"
    lines = [f"| where the time goes | share | {head} |", "| --- | ---: | ---: |"]
    lines += [
        f"| {s.name} | {s.pct:.1f} % | {format_duration(s.pct / 100 * total_ns)} |"
        for s in shown[:_ROWS]
    ]
    return [*([verdict.gpu_note, ""] if verdict.on_host else []), *lines, ""]


def _list_cause_lines(report: Report) -> list[str]:
    verdict = report.verdict
    lines = []
    for number, cause in enumerate(verdict.causes, 1):
        cost = cause.cost_in_words(verdict.total_ns)
        gain = f" ({cost} of {verdict.unit})" if cost else ""
        finding = escape_markdown(cause.finding)
        rest = escape_markdown(f"{cause.evidence}. Try: {cause.advice}.")
        lines.append(f"{number}. **{finding}**{gain}: {rest}")
    return [*lines, ""] if lines else []


def _list_whatif_lines(report: Report) -> list[str]:
    whatif = report.whatif
    if whatif.map is not None:
        return [*_fold_result("What if: batch × sharding", whatif.map), ""]
    if whatif.bounds is not None and not whatif.why:
        return [*_fold_result("What if: each change alone", whatif.bounds), ""]
    return [f"What-if map: {escape_markdown(whatif.why)}", ""]


def _fold_answer(answered: Answered) -> list[str]:
    if answered.result is None:
        return []
    return _fold_result(answered.result.analysis.question, answered.result)


def _fold_result(title: str, result: Result) -> list[str]:
    text = to_text(replace(result, coverage=_describe_origin(result)), "md", limit=_ROWS).strip()
    return [f"<details><summary>{title}</summary>", "", text, "", "</details>"]


def _describe_origin(result: Result) -> Fields:
    """Return what times are told from; the rest of the coverage stands once, above."""
    return {"origin_ns": result.coverage.get("origin_ns")}


def to_json(report: Report) -> str:
    """Return one object; its shape is that of SCHEMA."""
    verdict = report.verdict
    document: Fields = {
        "schema": SCHEMA,
        "title": report.title,
        "command": report.command,
        "created": report.created,
        "versions": report.versions,
        "devices": report.devices,
        "span_ns": report.span_ns,
        "verdict": {
            "headline": verdict.headline,
            "step_ns": verdict.step_ns,
            "step_spread_ns": verdict.step_spread_ns,
            "cpu_step_ns": verdict.cpu_step_ns,
            "steps": verdict.steps,
            "window_ns": verdict.window_ns,
            "shares": [vars(share) for share in verdict.shares],
            "causes": [vars(cause) for cause in verdict.causes],
        },
        "coverage": dict(verdict.coverage),
        "whatif": {
            "bounds": _convert_to_json(report.whatif.bounds),
            "map": _convert_to_json(report.whatif.map),
            "why_not": report.whatif.why or None,
        },
        "sections": [
            {
                "id": section.id,
                "title": section.title,
                "answers": [
                    _convert_to_json(a.result) for a in section.answers if a.result is not None
                ],
            }
            for section in report.sections
        ],
        "unanswered": [{"analysis": a.name, "why": a.why} for a in report.unanswered],
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _convert_to_json(result: Result | None) -> Fields | None:
    return None if result is None else result.to_json()
