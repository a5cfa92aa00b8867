"""The commands that are no analysis: one module each, imported when its command runs."""

import importlib
from dataclasses import dataclass

import click


@dataclass(frozen=True)
class Command:
    module: str
    help: str

    def load(self) -> click.Command:
        found: click.Command = importlib.import_module(self.module).command
        return found


COMMANDS: dict[str, Command] = {
    "summary": Command("htk.commands.summary", "A first verdict: where did the time go?"),
    "timeline": Command("htk.commands.timeline", "The timeline as one file, to open anywhere."),
    "report": Command("htk.commands.report", "One file that tells it all, to forward."),
    "diff": Command("htk.commands.diff", "What changed between two recordings, or two ranks?"),
    "baseline": Command("htk.commands.baseline", "Keep what steps cost, to compare with later."),
    "whatif": Command("htk.commands.whatif", "What would a step take if this were changed?"),
    "plan": Command("htk.commands.plan", "What would training this model take, on what cluster?"),
    "doctor": Command(
        "htk.commands.doctor", "What was recorded, what is missing, what is damaged?"
    ),
    "dashboard": Command("htk.commands.dashboard", "Open the dashboard in a browser."),
    "convert": Command(
        "htk.commands.convert", "Write tables as Parquet, Arrow or CSV, or one merged trace."
    ),
    "open": Command("htk.commands.open", "Open a trace in Perfetto's viewer, offline."),
    "trim": Command("htk.commands.trim", "Write smaller traces: chosen ranks, steps, times."),
    "scrub": Command("htk.commands.scrub", "Write traces without names, paths, stacks, shapes."),
    "sql": Command("htk.commands.sql", "Ask in SQL: one query, or a prompt."),
    "overlay": Command("htk.commands.overlay", "Draw the critical path into copies of the trace."),
    "cache": Command("htk.commands.cache", "List or clear the parsed traces that are kept."),
    "analyses": Command("htk.commands.analyses", "List the questions that htk answers."),
    "formats": Command("htk.commands.formats", "List the file formats that htk reads."),
    "simulate": Command("htk.commands.simulate", "Write the traces of a simulated cluster."),
}
