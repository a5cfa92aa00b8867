"""The tools that htk is measured against: their environments, and the same question as a script.

Each tool runs in an environment of its own, made on first use in a folder that is kept. HTA comes
from the package index at one version. TraceLens is on no index (a package of that name there is
another product) and is installed from a checkout.
"""

import subprocess
import sys
from pathlib import Path

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
