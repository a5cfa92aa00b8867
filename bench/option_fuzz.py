"""Does any combination of options end a command otherwise than with an answer or a refusal?

    python -m bench.option_fuzz [--seed N] [--runs 5000] [-v]

Each run draws a command, some of its options (the examples of their help, edges of their types, and
what no option takes) and one or two of five small traces. It runs in a process forked from one that
has imported htk. An internal error, a traceback, a signal, more than 60 s or 2 GB is listed with
its command line; exit code 1.
"""

import argparse
import os
import random
import re
import resource
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

SAMPLES = Path(__file__).parents[1] / "sample_traces"
TRACES = (
    "simulated",
    "simulated",
    "kineto/rank0.pt.trace.json",
    "flight_recorder/hang_missing_rank_v2.10",
    "memory_snapshot",
    "nsight",
)
SERVERS = {"dashboard", "mcp", "open"}  # these answer until they are stopped
MOST_SECONDS = 60
MOST_BYTES = 2 << 30
WORDS = ("", "all", "0", "1", "-1", "x", "nan", "inf", "1e308", "[", "(", ".*", "é", "\x1b[2J")
WORDS += ("0..1", "3..1", "10..13", "first:1", "last:2", "name", "a=b", "a=1,b=2", "1ms", "5s", "-")
WORDS += ("2x", "0x", "1e18", "H100", "8", "7b", "' or 1=1", "x" * 3000, "99999999999999999999")
NUMBERS = ("0", "1", "2", "7", "64", "-1", "1000000000", str(2**31), str(2**63), "1e3", "x", "")
FRACTIONS = ("0", "1", "0.5", "2.5", "-1", "nan", "inf", "-inf", "1e-300", "1e308", "1e18", "x", "")
HUGE = ("0", "1e18", "1e308", "9" * 30, "9" * 400)  # in the place of an example's number
_EXAMPLES = re.compile(r"e\.g\. ([^;()]+)")


class Outcome(NamedTuple):
    """How one command line ended."""

    argv: list[str]
    code: int
    why: str  # empty: as it should
    seconds: float


def list_commands() -> Iterator[tuple[list[str], click.Command]]:
    """Yield the words of each command, or subcommand, with it."""
    from htk.faces.cli.main import htk

    context = click.Context(htk)
    for name in htk.list_commands(context):
        command = htk.get_command(context, name)
        if name in SERVERS or command is None:
            continue
        if isinstance(command, click.Group):
            yield from (([name, word], inner) for word, inner in command.commands.items())
        else:
            yield [name], command


def draw_argv(dice: random.Random, words: list[str], command: click.Command) -> list[str]:
    """Return a command line with some of the command's options."""
    argv = list(words)
    wanted = dice.choice((0, 1, 1, 1, 2, 2, 3))
    options = [p for p in command.params if isinstance(p, click.Option)]
    required = [o for o in options if o.required and dice.random() < 0.95]
    for option in required + dice.sample(options, min(wanted, len(options))):
        argv += _spell_option(dice, option)
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            argv += _draw_arguments(dice, parameter)
    return argv


def _spell_option(dice: random.Random, option: click.Option) -> list[str]:
    flag = dice.choice([*option.opts, *option.secondary_opts])
    if option.is_flag or option.count:
        return [flag]
    times = dice.choice((1, 1, 1, 2)) if option.multiple else 1
    return [word for _ in range(times) for word in (flag, *_draw_values(dice, option))]


def _draw_values(dice: random.Random, option: click.Option) -> list[str]:
    return [_draw_value(dice, option) for _ in range(max(1, option.nargs))]


def _draw_value(dice: random.Random, option: click.Option) -> str:
    examples = [e for text in _EXAMPLES.findall(option.help or "") for e in _split(text)]
    if examples and dice.random() < 0.8:
        example = dice.choice(examples)
        huge = dice.choice(HUGE) if dice.random() < 0.2 else r"\g<0>"
        return re.sub(r"\d+(\.\d+)?", huge, example, count=1)
    kind = option.type
    if isinstance(kind, click.Choice):
        choices = [c for c in kind.choices if c != "ray"]  # a cluster takes a minute to start
        return str(dice.choice([*choices * 5, "x"]))
    if isinstance(kind, click.Path) or option.metavar in ("FILE", "PATH", "FOLDER"):
        return _draw_path(dice, writes=option.name in ("output", "json_output", "to"))
    if isinstance(kind, (click.IntRange, click.types.IntParamType)):
        return dice.choice(NUMBERS)
    if isinstance(kind, (click.FloatRange, click.types.FloatParamType)):
        return dice.choice(FRACTIONS)
    return dice.choice(WORDS + NUMBERS + FRACTIONS)


def _split(text: str) -> list[str]:
    """Return the examples of a sentence: `4GB, or 2%.` has two."""
    words = re.split(r",? or | and |, (?=\S+ =)", text.strip().rstrip("."))
    return [word.strip(" .`'\"") for word in words]


def _draw_path(dice: random.Random, *, writes: bool) -> str:
    names = [
        "new.json",
        "new",
        "out.csv",
        "out.md",
        "out.xlsx",
        "out.html",
        "/nowhere/x",
        "old",
        "",
    ]
    if not writes:
        names += ["old/file.txt", "old/empty.toml", "sample", str(SAMPLES / dice.choice(TRACES))]
    return dice.choice(names)


def _draw_arguments(dice: random.Random, argument: click.Argument) -> list[str]:
    """Return paths, or words where the argument is none."""
    traces = [str(SAMPLES / name) for name in TRACES]
    others = ["old", "old/file.txt", "missing", "sample", ""]
    count = 1 if argument.nargs == 1 else dice.choice((1, 1, 1, 2, 0))
    is_path = argument.name in ("path", "paths", "base", "new", "runs", "trace", "recording")
    drawn = []
    for _ in range(count if argument.nargs < 1 else argument.nargs):
        is_odd = dice.random() < 0.1
        if is_path:
            drawn.append(dice.choice(others if is_odd else traces))
        else:
            drawn.append(dice.choice((*WORDS, *traces, "select 1", "select * from kernels")))
    return drawn


def run_argv(argv: list[str], folder: Path) -> Outcome:
    """Return how a command ends, in a process of its own with limits."""
    printed = folder.parent / "printed"
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        _run_in_child(argv, folder, printed)
    _, status, usage = os.wait4(child, 0)
    text = printed.read_text(errors="replace")
    spent = time.perf_counter() - started
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return Outcome(argv, code, _judge(code, text, usage.ru_maxrss << 10), spent)


def _run_in_child(argv: list[str], folder: Path, printed: Path) -> None:
    code = 99
    try:
        os.chdir(folder)
        target = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(target, 1)
        os.dup2(target, 2)
        signal.alarm(5 * MOST_SECONDS)
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        from htk.faces.cli.main import run_command_line

        code = run_command_line(argv)
        sys.stdout.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def _judge(code: int, text: str, peak_bytes: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    if code not in range(6) or code == 1 or "Traceback" in text:
        return text[-600:].strip() or f"exit code {code}"
    return f"{peak_bytes >> 20} MB" if peak_bytes > MOST_BYTES else ""


def prepare_folder(folder: Path) -> Path:
    """Make the folder in which each command runs, and homes for what it keeps."""
    work = folder / "work"
    (work / "old").mkdir(parents=True)
    (work / "old" / "file.txt").write_text("no trace\n")
    (work / "old" / "empty.toml").write_text("")
    for name in ("HOME", "HTK_CACHE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR"):
        (folder / name).mkdir()
        os.environ[name] = str(folder / name)
    tempfile.tempdir = None
    return work


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("-v", "--verbose", action="store_true", help="name every run")
    arguments = parser.parse_args()
    dice = random.Random(arguments.seed)
    bad, codes = 0, dict.fromkeys(range(-64, 100), 0)
    with tempfile.TemporaryDirectory() as name:
        work = prepare_folder(Path(name))
        run_argv(["summary", str(SAMPLES / TRACES[1])], work)
        from htk.faces.cli.main import run_command_line

        run_command_line(
            ["kernel-top", str(SAMPLES / TRACES[1]), "-o", f"{name}/first.csv"]
        )  # imports most
        commands = list(list_commands())
        for _ in range(arguments.runs):
            outcome = run_argv(draw_argv(dice, *dice.choice(commands)), work)
            codes[outcome.code] += 1
            bad += bool(outcome.why)
            if outcome.why or arguments.verbose:
                line = shlex.join(["htk", *outcome.argv])[:700]
                print(
                    f"{outcome.seconds:.1f} s, {outcome.code}: {line}\n    {outcome.why}",
                    flush=True,
                )
    ends = ", ".join(f"{code}: {count}" for code, count in codes.items() if count)
    print(f"seed {arguments.seed}: {bad} of {arguments.runs} runs end badly; exit codes {ends}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
