"""Write docs/quality.md from what the commands measured.

    python bench/quality.py

Each figure comes from a file of bench/quality, which `make quality` renews:

    python bench/damage.py -o bench/quality/damage.json
    python bench/mutation.py --mutants 150 -o bench/quality/mutation.json
    python bench/kills.py -o bench/quality/kills.json
    python bench/soak.py -o bench/quality/soak.json
    native/fuzz/run 3600 python3 bench/quality/fuzz.json
"""

import json
from pathlib import Path
from typing import Any

from bench.mutation import KEY, listed

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/quality.md"
HEAD = """# How htk is tested

Figures of the commands named beside them, as they were last run; `make quality` runs all of them
and writes this page. What is promised, and what is not, is in [Security](security.md).

"""
TWINS = (  # what, against what, where
    (
        "the compiled reader",
        "its twin in Python, on valid and damaged documents",
        "`tests/parsers/kineto/test_fuzz.py`",
    ),
    ("both readers", "plain JSON with exact decimals", "`tests/parsers/kineto/test_truth.py`"),
    (
        "a file in pieces",
        "the same file whole",
        "`tests/parsers/kineto/test_damage.py`, `make fuzz`",
    ),
    ("calls within calls", "all pairs compared", "`tests/htk/base/columns/test_nesting.py`"),
    (
        "interval arithmetic",
        "nanoseconds counted one by one",
        "`tests/htk/base/columns/test_intervals.py`",
    ),
    (
        "waits and lateness",
        "each call asked whom it depends on",
        "`tests/htk/quantities/derived/test_waits.py`, `test_lateness.py`",
    ),
    (
        "windows and steps",
        "their definition, row by row",
        "`tests/htk/quantities/derived/test_windows.py`",
    ),
    ("causes of idle time", "every instant asked", "`tests/htk/quantities/derived/test_idle.py`"),
    (
        "the order of rows, compiled",
        "with NumPy, and as Python sorts",
        "`tests/htk/base/columns/test_order.py`",
    ),
    (
        "what runs beside what, compiled",
        "with NumPy, and every nanosecond asked",
        "`tests/htk/quantities/graph/test_overlaps.py`",
    ),
    (
        "the caching allocator, compiled",
        "its twin in Python, and worked by hand",
        "`tests/htk/physics/test_allocator_replay.py`",
    ),
    ("the replay, compiled", "its twin in Python", "`tests/htk/quantities/graph/test_replay.py`"),
    (
        "selections",
        "rows filtered one by one, in any order of choices",
        "`tests/htk/traces/trace/test_selection_machine.py`",
    ),
    (
        "the cache",
        "what was written, after any damage",
        "`tests/htk/base/io/test_store_machine.py`",
    ),
    (
        "a folder that changes",
        "what lies there now",
        "`tests/htk/traces/trace/test_opening_machine.py`",
    ),
    (
        "temporal, idle and communication figures",
        "HTA on its own test traces",
        "`tests/analyses/test_hta_truth.py`",
    ),
    (
        "FLOPs and bytes",
        "TraceLens, and products counted by hand",
        "`tests/analyses/test_tracelens_truth.py`",
    ),
    ("all totals of a trace", "a second, independent reading", "`htk verify`"),
    (
        "predictions",
        "jobs simulated again with the change",
        "`tests/htk/whatif/test_resimulated.py`",
    ),
)


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the page of the recorded figures."""
    parts = (mutation, damage, fuzz, kills, soak)
    return HEAD + "\n".join([*(part(_figures(part.__name__)) for part in parts), twins()])


def twins() -> str:
    """What is computed in two ways in each run of the tests."""
    lines = [
        "## Differential suites",
        "",
        "What must be the same by two ways is computed by both:",
        "",
        "| what | against what | where |",
        "|---|---|---|",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in TWINS)]) + "\n"


def _figures(name: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((ROOT / f"bench/quality/{name}.json").read_text())
    return figures


def mutation(figures: dict[str, Any]) -> str:
    """Of a draw: killed by package, and each survivor."""
    equivalent = {tuple(entry[k] for k in KEY) for entry in listed()}
    survivors = [m for m in figures["survivors"] if tuple(m[k] for k in KEY) not in equivalent]
    judged = len(figures["survivors"]) - len(survivors)  # equivalent, since they were drawn
    killed, count = figures["killed"], figures["mutants"] - judged
    since = {tuple(m[k] for k in KEY) for m in figures.get("killed_since", ())}
    newly = sum(tuple(m[k] for k in KEY) in since for m in survivors)
    lines = [
        "## Small mistakes that tests notice",
        "",
        "`python bench/mutation.py` changes one expression of the code that makes numbers (a",
        "comparison, an operator, a constant by one, a side, two arguments swapped) and runs the",
        "tests nearest to it, then those of what uses it, up to ten files; tests further off are",
        "not asked. Mutants that are judged equivalent are listed, with reasons, in",
        "`bench/mutation_equivalents.toml`, and are not drawn. The goal is 85 %; where a draw is",
        "short of it, most survivors are constants and rare cases of one edit, operator or parser",
        "that no test works out by hand, and tests are written there next.",
        "",
        f"**{killed} of {count} killed ({100 * killed / count:.0f} %)**, drawn with seed "
        f"{figures['seed']}; {judged} more that survived are judged equivalent since. Tests "
        f"written since kill {newly} of the survivors, which says nothing about others.",
        "",
        "| package | mutants | killed |",
        "|---|--:|--:|",
    ]
    for package, counts in figures["packages"].items():
        lines.append(f"| {package} | {sum(counts.values())} | {counts.get('killed', 0)} |")
    lines += [
        "",
        "Survivors:",
        "",
        "| where | mutant | |",
        "|---|---|---|",
    ]
    for mutant in survivors:
        before, after = (
            " ".join(mutant[k].split()).replace("|", "\\|") for k in ("before", "after")
        )
        mark = "killed since" if tuple(mutant[k] for k in KEY) in since else ""
        lines.append(f"| `{mutant['path']}` | `{before}` → `{after}` | {mark} |")
    return "\n".join(lines) + "\n"


def damage(figures: dict[str, Any]) -> str:
    """What is left, by kind of damage."""
    lines = [
        "## Damaged files",
        "",
        f"`python bench/damage.py`: a trace of {figures['events']:,} events, each kind of damage "
        f"at {figures['seeds']} places. Silent: events are missing and nothing says so, as where "
        "what was lost began and ended at the same place of an event: what is left is whole.",
        "",
        "| damage | events kept | readers differ | silent |",
        "|---|--:|--:|--:|",
    ]
    for row in figures["rows"]:
        low, high = row["kept_pct_min"], row["kept_pct_max"]
        kept = f"{low:g} %" if low == high else f"{low:g}–{high:g} %"
        lines.append(f"| {row['damage']} | {kept} | {row['differ']} | {row['silent']} |")
    return "\n".join(lines) + "\n"


def fuzz(figures: dict[str, Any]) -> str:
    led = "led by coverage" if figures["led_by_coverage"] else "without coverage"
    otherwise = figures.get("read_otherwise", 0)
    rows = {
        "parse": "reader: whole against in pieces",
        "nest": "calls within calls, against all pairs",
        "memory": "blocks of memory on the heap and in files",
        "bindings": "Python bindings and replay, with any argument",
        "twins": "documents kept, read by both engines",
    }
    rows = {target: meaning for target, meaning in rows.items() if target in figures}
    listed = "\n".join(f"| {meaning} | {figures[target]:,} |" for target, meaning in rows.items())
    targets = len(rows) - 1  # all but the documents kept
    each = figures["seconds"] // targets
    outcome = f"no crash or leak; {otherwise} of the documents kept is read otherwise by one engine"
    return f"""## Fuzzing

`make fuzz` builds the compiled parts with AddressSanitizer and UndefinedBehaviorSanitizer. Of the
last run, {figures["seconds"]:,} s in sum, {each:,} s for each of {targets} targets, {led}:
{outcome if otherwise else "no crash, leak or difference"}.
How many inputs that makes depends on what else the machine does.

| target | inputs |
|---|--:|
{listed}
"""


def kills(figures: dict[str, Any]) -> str:
    disks = ", ".join(
        f"{name.replace('_', ' ')}: {'right' if right else 'WRONG'}"
        for name, right in figures["disks"].items()
    )
    return f"""## Kills

`python bench/kills.py`: two versions of htk read one job into one cache and are killed at a random
moment (SIGKILL). {figures["kills"]} kills, {figures["answers"]} answers from the cache afterwards,
{figures["wrong_answers"]} of them wrong; {figures["left_behind"]} half-written folders were left
behind, {"and all were swept" if figures["swept"] else "NOT all were swept"}. Readers whose cache
cannot be written, or whose disk takes 20 ms for each opening, creation and renaming of a file,
answer too ({disks}). {figures["stalls"]} times a reader was stopped at a random moment, as by a
disk that does not answer, while another one used and cleared the same cache:
{figures["wrong_after_stalls"]} of their answers were wrong.
"""


def soak(figures: dict[str, Any]) -> str:
    answers = sum(figures["answers"].values())
    rows = [
        f"| {name} | {' | '.join(f'{mib} MiB' for mib in quarters)} |"
        for name, quarters in figures["mib"].items()
    ]
    lines = [
        "## Under load",
        "",
        f"`python bench/soak.py`: dashboard and agents' server under {figures['clients']} clients "
        f"for {figures['minutes']:g} minutes while runs were added, written anew, cut short and "
        f"removed {figures['changes']} times. {answers:,} answers, {figures['refused']:,} of them "
        "refusals of runs that were gone or could not be read; "
        f"{figures['errors']} errors of a server, {figures['tracebacks']} tracebacks.",
        "",
        "| most memory in each quarter | 1 | 2 | 3 | 4 |",
        "|---|--:|--:|--:|--:|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
