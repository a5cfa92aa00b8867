"""A report on its way out."""

import sys
from pathlib import Path

from htk.base.core.whole_file import write_whole
from htk.faces.report.content import Report


def write(report: Report, form: str, output: str | None) -> Path | None:
    """Write it in that form; None: it went to stdout."""
    if form in ("md", "json"):
        from htk.faces.report.text import markdown, to_json

        text = markdown(report) if form == "md" else to_json(report)
        if output is None or output == "-":
            sys.stdout.write(text)
            return None
        target = Path(output)
        write_whole(target, text)
        return target
    target = Path(output or f"report.{form}")
    if form == "xlsx":
        from htk.answers.output.workbook import workbook
        from htk.verdicts.overview.summary import result

        answers = [a.result for s in report.sections for a in s.answers if a.result is not None]
        write_whole(target, workbook([result(report.verdict), *answers]))
        return target
    from htk.faces.report.page import page

    if form == "pdf":
        from htk.faces.report.pdf import printed

        printed(page(report), target)
    else:
        write_whole(target, page(report))
    return target
