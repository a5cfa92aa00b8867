"""What a result answers: its name, the question, and how it likes to be drawn."""

from dataclasses import dataclass

from htk.base.core.chart import Chart


@dataclass(frozen=True)
class Label:
    """The name of a question, the question itself, and its chart, if it has one."""

    name: str
    question: str
    chart: Chart | None = None
