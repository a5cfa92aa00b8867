"""A report on its way out."""

import sys
from pathlib import Path

from htk.base.core.whole_file import write_whole
from htk.faces.report.content import Report


def write_report(report: Report, form: str, output: str | None) -> Path | None:
    """Write it in that form; None: it went to stdout."""
    if form in ("md", "json"):
        from htk.faces.report.text import render_report_markdown, to_json

        text = render_report_markdown(report) if form == "md" else to_json(report)
        if output is None or output == "-":
            sys.stdout.write(text)
            return None
        target = Path(output)
        write_whole(target, text)
        return target
    target = Path(output or f"report.{form}")
    if form == "xlsx":
        from htk.answers.output.workbook import build_workbook
        from htk.verdicts.overview.summary import build_summary_result

        answers = [a.result for s in report.sections for a in s.answers if a.result is not None]
        write_whole(target, build_workbook([build_summary_result(report.verdict), *answers]))
        return target
    from htk.faces.report.page import render_report_page

    if form == "pdf":
        from htk.faces.report.pdf import print_to_pdf

        print_to_pdf(render_report_page(report), target)
    else:
        write_whole(target, render_report_page(report))
    return target
