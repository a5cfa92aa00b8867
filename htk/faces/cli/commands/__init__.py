"""The commands that are no analysis: one module each, imported when its command runs."""

import importlib

import click

# By what one wants, the most used first; each lies in the module of its name.
GROUPS: dict[str, dict[str, str]] = {
    "Most used": {
        "summary": "A first verdict: where did the time go?",
        "dashboard": "Open the dashboard in a browser.",
        "diff": "What changed between two recordings, or two ranks?",
        "whatif": "What would a step take if this were changed?",
        "doctor": "What was recorded, what is missing, what is damaged?",
        "report": "Write one document to forward.",
        "timeline": "Write the timeline as one file that opens anywhere.",
        "plan": "What would training this model take, on what cluster?",
        "sql": "Ask in SQL: one query, or a prompt.",
        "trim": "Write smaller traces: chosen ranks, steps, times.",
    },
    "Compare": {
        "diff-tree": "Where do the call trees of two recordings differ?",
        "baseline": "Write what steps cost to a file, to compare with later.",
        "history": "How do runs compare over weeks, and when did they change?",
    },
    "Predict": {
        "calibrate": "What do this site's GPUs and jobs reach?",
        "kernel-time": "How long does a kernel of this size take?",
    },
    "Plan without a trace": {
        "plan-serving": "What would a server of this model reach, on what GPUs?",
        "claim": "Is this published number plausible?",
        "prices": "Which GPU runs this at the lowest cost?",
        "job-time": "How long does a whole job take, part by part?",
        "goodput": "What do failures and checkpoints leave of a job's time?",
        "simulate": "Write the traces of a simulated cluster.",
    },
    "Check": {
        "verify": "Is this number right? Recompute, and compare.",
    },
    "Share": {
        "convert": "Write tables as Parquet, Arrow or CSV, or one merged trace.",
        "scrub": "Write traces without names, paths, stacks, shapes.",
        "repro": "Write a script that runs one recorded operator again, alone.",
        "overlay": "Draw the critical path into copies of the trace.",
        "open": "Open a trace in Perfetto's viewer, offline.",
    },
    "Serve": {
        "mcp": "Serve the questions to agents, as tools (MCP).",
    },
    "Manage": {
        "help": "Find commands, questions and columns by a word.",
        "analyses": "List the questions that htk answers.",
        "formats": "List the file formats that htk reads.",
        "map": "Parse a share of many files into a shared store.",
        "cache": "List, check or clear the cached traces.",
    },
}
COMMANDS = {name: text for commands in GROUPS.values() for name, text in commands.items()}


def load_command(name: str) -> click.Command:
    """Return a command, from its module."""
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    loaded: click.Command = module.command
    return loaded
