"""The commands that are no analysis: one module each, imported when its command runs."""

import importlib
from dataclasses import dataclass

import click


@dataclass(frozen=True)
class Command:
    module: str
    help: str

    def load(self) -> click.Command:
        loaded: click.Command = importlib.import_module(self.module).command
        return loaded


COMMANDS: dict[str, Command] = {
    "summary": Command("htk.faces.cli.commands.summary", "A first verdict: where did the time go?"),
    "timeline": Command(
        "htk.faces.cli.commands.timeline", "Write the timeline as one file that opens anywhere."
    ),
    "report": Command("htk.faces.cli.commands.report", "Write one document to forward."),
    "diff": Command(
        "htk.faces.cli.commands.diff", "What changed between two recordings, or two ranks?"
    ),
    "diff-tree": Command(
        "htk.faces.cli.commands.diff_tree", "Where do the call trees of two recordings differ?"
    ),
    "baseline": Command(
        "htk.faces.cli.commands.baseline", "Write what steps cost to a file, to compare with later."
    ),
    "history": Command(
        "htk.faces.cli.commands.history",
        "How do runs compare over weeks, and when did they change?",
    ),
    "whatif": Command(
        "htk.faces.cli.commands.whatif", "What would a step take if this were changed?"
    ),
    "plan": Command(
        "htk.faces.cli.commands.plan", "What would training this model take, on what cluster?"
    ),
    "calibrate": Command(
        "htk.faces.cli.commands.calibrate", "What do this site's GPUs and jobs reach?"
    ),
    "claim": Command("htk.faces.cli.commands.claim", "Is this published number plausible?"),
    "kernel-time": Command(
        "htk.faces.cli.commands.kernel_time", "How long does a kernel of this size take?"
    ),
    "prices": Command("htk.faces.cli.commands.prices", "Which GPU runs this at the lowest cost?"),
    "job-time": Command(
        "htk.faces.cli.commands.job_time", "How long does a whole job take, part by part?"
    ),
    "goodput": Command(
        "htk.faces.cli.commands.goodput", "What do failures and checkpoints leave of a job's time?"
    ),
    "doctor": Command(
        "htk.faces.cli.commands.doctor", "What was recorded, what is missing, what is damaged?"
    ),
    "verify": Command(
        "htk.faces.cli.commands.verify", "Is this number right? Recompute, and compare."
    ),
    "dashboard": Command("htk.faces.cli.commands.dashboard", "Open the dashboard in a browser."),
    "mcp": Command("htk.faces.cli.commands.mcp", "Serve the questions to agents, as tools (MCP)."),
    "convert": Command(
        "htk.faces.cli.commands.convert",
        "Write tables as Parquet, Arrow or CSV, or one merged trace.",
    ),
    "open": Command("htk.faces.cli.commands.open", "Open a trace in Perfetto's viewer, offline."),
    "trim": Command(
        "htk.faces.cli.commands.trim", "Write smaller traces: chosen ranks, steps, times."
    ),
    "scrub": Command(
        "htk.faces.cli.commands.scrub", "Write traces without names, paths, stacks, shapes."
    ),
    "sql": Command("htk.faces.cli.commands.sql", "Ask in SQL: one query, or a prompt."),
    "overlay": Command(
        "htk.faces.cli.commands.overlay", "Draw the critical path into copies of the trace."
    ),
    "map": Command(
        "htk.faces.cli.commands.map", "Parse a share of many files into a shared store."
    ),
    "cache": Command("htk.faces.cli.commands.cache", "List, check or clear the cached traces."),
    "analyses": Command("htk.faces.cli.commands.analyses", "List the questions that htk answers."),
    "formats": Command("htk.faces.cli.commands.formats", "List the file formats that htk reads."),
    "simulate": Command(
        "htk.faces.cli.commands.simulate", "Write the traces of a simulated cluster."
    ),
}
