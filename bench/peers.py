"""Environments of htk and of the tools it is measured against, and a script for each question.

Each tool runs in an environment of its own, made on first use in a folder that is kept. HTA comes
from the package index at one version. TraceLens is on no index (a package of that name there is
another product) and is installed from a checkout. htk is installed anew from a wheel: how fast it
starts depends on that, as an editable checkout looks for each module twice.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[1]
HTA = "HolisticTraceAnalysis==0.5.0"

_HTA_OPEN = """
import sys
from pathlib import Path
from hta.trace_analysis import TraceAnalysis
path = Path(sys.argv[1])
paths = sorted(path.glob("rank*.json*")) if path.is_dir() else [path]
trace = TraceAnalysis(trace_files=dict(enumerate(map(str, paths))), trace_dir=str(paths[0].parent))
"""
_TRACELENS_OPEN = """
import sys
from pathlib import Path
from TraceLens import TreePerfAnalyzer
path = Path(sys.argv[1])
paths = sorted(path.glob("rank*.json*")) if path.is_dir() else [path]
"""
# The questions of `bench/commands.py`, as each tool's documentation asks them.
SCRIPTS = {
    "kernel-top": {
        "HTA": _HTA_OPEN + "print(trace.get_gpu_kernel_breakdown(visualize=False)[1].head(20))",
        "TraceLens": _TRACELENS_OPEN
        + "rows = TreePerfAnalyzer.from_file(str(paths[0])).get_df_kernels()\n"
        "print(rows.groupby('Kernel name')['Kernel duration (µs)'].sum().nlargest(20))",
    },
    "summary": {
        "HTA": _HTA_OPEN + "print(trace.get_temporal_breakdown(visualize=False))\n"
        "print(trace.get_comm_comp_overlap(visualize=False))\n"
        "print(trace.get_gpu_kernel_breakdown(visualize=False)[1].head(20))\n"
        "print(trace.get_idle_time_breakdown(visualize=False)[0])",
        "TraceLens": _TRACELENS_OPEN + "analyzer = TreePerfAnalyzer.from_file(str(paths[0]))\n"
        "print(analyzer.get_df_gpu_timeline())\n"
        "print(analyzer.get_df_kernel_launchers_summary(analyzer.get_df_kernel_launchers()).head(20))",
    },
    "time-breakdown": {
        "HTA": _HTA_OPEN + "print(trace.get_temporal_breakdown(visualize=False))",
        "TraceLens": _TRACELENS_OPEN + "for path in paths:\n"
        "    print(TreePerfAnalyzer.from_file(str(path)).get_df_gpu_timeline())",
    },
}


def interpreters(folder: Path, tracelens: Path | None) -> dict[str, Path]:
    """Return the Python of each tool's environment; a tool that cannot be installed is left out."""
    asked = {"HTA": [HTA]} | ({"TraceLens": [str(tracelens)]} if tracelens else {})
    by_tool = {tool: _environment(folder / tool, packages) for tool, packages in asked.items()}
    return {tool: python for tool, python in by_tool.items() if python is not None}


def _environment(folder: Path, packages: list[str]) -> Path | None:
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "-q", *packages], capture_output=True, text=True
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        print(f"{folder.name} is left out: {reason}", file=sys.stderr)
        return None
    (folder / "complete").touch()
    return python


def install_wheel(folder: Path) -> Path:
    """Return the Python of a new environment that holds htk's wheel, and this one's libraries."""
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # what is no longer there would be packed
    wheels = folder / "wheels"
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(ROOT))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    python = folder / "env/bin/python"
    _pip("--python", str(python), "install", "--no-deps", str(next(wheels.glob("*.whl"))))
    libraries = next((folder / "env/lib").glob("python*/site-packages"))
    # Packages of that folder, but not its own .pth files: no editable checkout comes along.
    (libraries / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


def environment_of_user() -> dict[str, str]:
    """Return this process' environment without the checkout's modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment_of_user())
    if done.returncode:
        raise SystemExit(f"pip {' '.join(words)[:200]}: {done.stderr.strip()[-500:]}")
