"""The menu: every analysis of htk, its module and the question it answers.

In: tables of a recording, and options. Out: one table for each question, of a declared schema.
May import base, physics and quantities. Questions of other packages stand in the menu by name.

`python -m htk.analyses.menu` writes it anew from the modules; nothing is imported to print it.
"""

import importlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from htk.base import plugins
from htk.base.errors import HtkError, UnknownAnalysis

if TYPE_CHECKING:
    from htk.base.core.analysis import Analysis


@dataclass(frozen=True)
class MenuEntry:
    """One line of the menu."""

    module: str  # below htk
    question: str
    needs: tuple[str, ...] = field(default=(), kw_only=True)  # tables that must all hold rows
    reads: tuple[str, ...] = field(default=(), kw_only=True)  # else those of which one must

    @property
    def subject(self) -> str:
        """Return the name of the folder that the question lies in."""
        return self.module.split(".")[-2]

    def load(self, name: str) -> "Analysis[...]":
        analysis: Analysis[...] = getattr(importlib.import_module(f"htk.{self.module}"), name)
        return analysis


# fmt: off
ANALYSES: dict[str, MenuEntry] = {
    "alltoall_balance": MenuEntry("analyses.comm.alltoall_balance", "How uneven are the all-to-alls: who sends or receives most, and by how much?", needs=("collectives",)),
    "annotation_breakdown": MenuEntry("analyses.ops.annotation_breakdown", "What do user ranges cost, on the CPU and on the GPU?", needs=("annotations",)),
    "bucket_study": MenuEntry("analyses.comm.bucket_study", "Are the buffers large enough: how does bandwidth grow with the size of a collective?", needs=("collectives",)),
    "change_points": MenuEntry("analyses.time.change_points", "From which step on did a kernel, or the step, become slower or faster?", needs=("step_windows",)),
    "clock_alignment": MenuEntry("analyses.comm.clock_alignment", "How far are the clocks of the ranks apart, and how well is that known?", needs=("collectives",)),
    "collective_times": MenuEntry("analyses.comm.collective_times", "When did each collective run on each rank, how long did it wait, how fast was it?", needs=("collectives",)),
    "comm_compute_overlap": MenuEntry("analyses.time.comm_compute_overlap", "How much of the communication is hidden behind compute?", needs=("rank_windows",)),
    "comm_compute_ratio": MenuEntry("analyses.time.comm_compute_ratio", "How much does each GPU communicate for what it computes?", needs=("rank_windows",)),
    "comm_excess": MenuEntry("analyses.comm.comm_excess", "Which transfers take longer than their size should cost, in which groups, rails and nodes?", needs=("collectives",)),
    "comm_matrix": MenuEntry("analyses.comm.comm_matrix", "Which ranks (or nodes) send how much to each other, point to point and in all-to-alls?", needs=("collectives",)),
    "comm_model": MenuEntry("analyses.comm.comm_model", "How does the time of a collective grow with its size: what latency, what bandwidth?", reads=("collectives", "bench_points")),
    "comm_overlap_by_group": MenuEntry("analyses.comm.comm_overlap_by_group", "Which group's communication hides behind compute, and which is exposed?", needs=("collectives",)),
    "comm_progress": MenuEntry("analyses.comm.comm_progress", "Which ranks of a communicator are behind the others, or do not answer?", needs=("comm_counts",)),
    "comm_proxy": MenuEntry("analyses.comm.comm_proxy", "What did NCCL's proxies wait for in each collective: the GPU, the peer, the network?", needs=("proxy_steps",)),
    "comm_sources": MenuEntry("analyses.comm.comm_sources", "Which algorithm, protocol and channels did each collective use, as NCCL's records say?", needs=("collectives",)),
    "comm_summary": MenuEntry("analyses.comm.comm_summary", "How much is communicated, by what, how fast, and how much of it is exposed?", needs=("collectives",)),
    "comm_wait": MenuEntry("analyses.comm.comm_wait", "How long does each rank wait in collectives, and who makes the others wait?", needs=("collectives",)),
    "compile_graph_coverage": MenuEntry("analyses.run.compile_graph_coverage", "How much of the GPU time runs in CUDA graphs, compiled or eagerly?", needs=("kernels",)),
    "critical_path": MenuEntry("verdicts.causes.critical_path", "What bounds the step: which work lies on its critical path?", needs=("kernels", "launches")),
    "flops": MenuEntry("analyses.ops.flops", "How much work is done, and what share of the peak is that (MFU)?", needs=("rank_windows",)),
    "fsdp_units": MenuEntry("analyses.run.fsdp_units", "How are FSDP's units gathered and reduced: how large, how early, how exposed?", needs=("collectives",)),
    "fusible_chains": MenuEntry("verdicts.causes.fusible_chains", "Which chains of memory-bound kernels could be one kernel, and what would a step gain?", needs=("cpu_ops", "kernels")),
    "gpu_speed": MenuEntry("analyses.kernels.gpu_speed", "Does a GPU run the same kernels slower than the others, or slower than before?", needs=("kernels",)),
    "hang": MenuEntry("analyses.comm.hang", "Why does the job hang: who never came, who made another call, who only waits?", reads=("collectives", "comm_groups", "comm_inits", "comm_counts", "comm_notes", "python_stacks")),
    "hideable_comm": MenuEntry("verdicts.causes.hideable_comm", "Which communication does nothing hide, and which independent work could?", needs=("collectives", "kernels")),
    "host_stalls": MenuEntry("analyses.time.host_stalls", "What does the host wait for (synchronising, allocating, loading, compiling), at what cost?", reads=("launches", "cpu_ops", "annotations", "python_calls")),
    "idle_breakdown": MenuEntry("analyses.time.idle_breakdown", "Why was each GPU idle: was the host late, and doing what?", needs=("rank_windows",)),
    "iteration_gaps": MenuEntry("analyses.run.iteration_gaps", "What do a server's GPUs wait for, between iterations and within them?", needs=("annotations", "kernels")),
    "iteration_times": MenuEntry("analyses.run.iteration_times", "How long do a server's iterations take, by phase, batch and context, and how much is padding?", needs=("annotations", "kernels")),
    "kernel_families": MenuEntry("analyses.kernels.kernel_families", "What kinds of kernels does the GPU run, and do they use its tensor cores?", needs=("kernels",)),
    "kernel_gap": MenuEntry("verdicts.causes.kernel_gap", "How far are products, experts and attention from what was measured at their size?", needs=("cpu_ops", "kernels")),
    "kernel_kinds": MenuEntry("analyses.time.kernel_kinds", "Which kinds of activity run alone, and which at the same time?", needs=("rank_windows",)),
    "kernel_metrics": MenuEntry("analyses.kernels.kernel_metrics", "What did the profiler's hardware counters measure for each kernel?", reads=("counters",)),
    "kernel_occupancy": MenuEntry("analyses.kernels.kernel_occupancy", "How well do kernels fill the GPU?", needs=("kernels",)),
    "kernel_sequences": MenuEntry("analyses.kernels.kernel_sequences", "Which sequences of kernels do operators launch again and again?", needs=("cpu_ops", "kernels")),
    "kernel_top": MenuEntry("analyses.kernels.kernel_top", "Which kernels cost most GPU time?", needs=("kernels",)),
    "late_arrivals": MenuEntry("analyses.comm.late_arrivals", "In which collectives did ranks wait longest, and for whom?", needs=("collectives",)),
    "launch_stats": MenuEntry("analyses.kernels.launch_stats", "How long do launches take, and how long does the launched work wait?", needs=("kernels", "launches")),
    "link_counters": MenuEntry("analyses.comm.link_counters", "Do the counters of NVLink and network adapters see what collectives should send?", reads=("link_samples", "collectives")),
    "matrix_calls": MenuEntry("analyses.ops.matrix_calls", "Which matrix products, attention calls and convolutions ran, and how fast by shape?", needs=("kernels",)),
    "memory_bandwidth": MenuEntry("analyses.kernels.memory_bandwidth", "How fast are copies and sets, in each direction?", needs=("kernels",)),
    "memory_peaks": MenuEntry("analyses.memory.memory_peaks", "When is memory at its highest, and what holds it then?", needs=("memory",)),
    "memory_replay": MenuEntry("analyses.memory.memory_replay", "What does the allocator reserve for these allocations, and if they were larger or smaller?", needs=("memory",)),
    "memory_timeline": MenuEntry("analyses.memory.memory_timeline", "How much memory is in use, over time?", needs=("memory",)),
    "module_breakdown": MenuEntry("analyses.ops.module_breakdown", "Which modules take the time, in forward and in backward?", needs=("cpu_ops",)),
    "moe_balance": MenuEntry("analyses.run.moe_balance", "How evenly do tokens spread over the ranks that hold the experts, layer by layer?", needs=("collectives",)),
    "op_breakdown": MenuEntry("analyses.ops.op_breakdown", "Which operators take the time, on the CPU and on the GPU?", needs=("cpu_ops",)),
    "op_tree": MenuEntry("analyses.ops.op_tree", "Where in the call tree do operators take their time?", needs=("cpu_ops",)),
    "phase_breakdown": MenuEntry("analyses.time.phase_breakdown", "How does the time divide into data loading, forward, backward and optimizer?", reads=("kernels", "cpu_ops", "annotations")),
    "pipeline_bubble": MenuEntry("analyses.run.pipeline_bubble", "How much of a step does each pipeline stage stand idle?", needs=("kernels",)),
    "python_hotspots": MenuEntry("analyses.ops.python_hotspots", "Which Python functions take the time?", needs=("python_calls",)),
    "queue_length": MenuEntry("analyses.kernels.queue_length", "How much launched work waits, and is the CPU held up by a full queue?", needs=("kernels", "launches")),
    "recommendations": MenuEntry("verdicts.causes.recommendations", "What should be changed first, and how much would a step gain without each cause?", reads=("collectives", "comm_transports", "comm_inits", "cpu_ops", "annotations", "python_calls", "kernels", "counters")),
    "roofline": MenuEntry("analyses.ops.roofline", "How close does each operator come to what its GPU can do?", needs=("cpu_ops", "kernels")),
    "serving_iterations": MenuEntry("analyses.run.serving_iterations", "What does each iteration of an inference server do, and how long does it take?", needs=("annotations",)),
    "short_kernels": MenuEntry("analyses.kernels.short_kernels", "How much runs in kernels too short to pay for their launch?", needs=("kernels",)),
    "slow_links": MenuEntry("analyses.comm.slow_links", "Which adapter, link, node or GPU slows communication down, and what would decide it?", needs=("collectives",)),
    "slowdown_by_stage": MenuEntry("analyses.jobs.slowdown_by_stage", "Which pipeline stage slows the job: is the model split evenly?", needs=("job_operations",)),
    "slowdown_by_type": MenuEntry("analyses.jobs.slowdown_by_type", "Which type of operation slows the job: compute, pipeline transfers or reductions?", needs=("job_operations",)),
    "slowdown_by_worker": MenuEntry("analyses.jobs.slowdown_by_worker", "Which worker (data-parallel rank and stage) slows the job, and in how many of its steps?", needs=("job_operations",)),
    "step_times": MenuEntry("analyses.time.step_times", "How long did each step take, on the GPU and on the host?"),
    "step_variance": MenuEntry("analyses.time.step_variance", "Why do some steps take longer than the median step: kernels, work, waiting or the host?", needs=("step_windows",)),
    "straggler_causes": MenuEntry("analyses.jobs.straggler_causes", "Why is the job slower than its peers' operations allow: a bad worker, uneven stages, lengths?", needs=("job_operations",)),
    "straggler_slowdown": MenuEntry("analyses.jobs.straggler_slowdown", "How much slower is the job than it would be if no operation were slower than its peers?", needs=("job_operations",)),
    "straggler_steps": MenuEntry("verdicts.causes.straggler_steps", "Is it the same rank that is late in every step, one node, or another rank each time?", needs=("collectives", "step_window_times")),
    "straggler_whatif": MenuEntry("analyses.jobs.straggler_whatif", "What would a step take without that worker, with even stages, balanced lengths, …?", needs=("job_operations",)),
    "stragglers": MenuEntry("verdicts.causes.stragglers", "Which rank is late, in what, and how much does it cost the others?", reads=("collectives",)),
    "time_breakdown": MenuEntry("analyses.time.time_breakdown", "Where does each GPU's time go: compute, communication, copies or idle?", needs=("rank_windows",)),
}
# fmt: on


class Added(MenuEntry):
    """A question that another package answers; nothing of it is imported before it is asked."""

    def load(self, name: str) -> "Analysis[...]":
        from htk.base.core.analysis import Analysis

        analysis = plugins.list_added("htk.analyses")[name].load()
        if not isinstance(analysis, Analysis) or analysis.name != name:
            raise HtkError(f"{name!r} of {self.question} is not an analysis of that name")
        return analysis


for _name, _one in plugins.list_added("htk.analyses").items():
    if _name not in ANALYSES:  # what htk answers stays its own
        ANALYSES[_name] = Added(f"plugins.{_name}", f"from the package {_one.package}")


def find_analysis(name: str) -> "Analysis[...]":
    """Return the analysis of that name, with hyphens or underscores."""
    identifier = name.replace("-", "_")
    if identifier not in ANALYSES:
        raise UnknownAnalysis(f"no analysis {name!r}; `htk analyses` lists them")
    return ANALYSES[identifier].load(identifier)


def load_analyses() -> Iterator[tuple[str, "Analysis[...]"]]:
    """Yield every question by name; one that cannot be imported is left out with a warning."""
    return _load_entries(ANALYSES)


def needed_tables() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield which tables each question needs, by its name; of these only what other packages add
    is imported."""
    added = {name: entry for name, entry in ANALYSES.items() if isinstance(entry, Added)}
    for name in sorted({*ANALYSES} - {*added}):
        yield name, ANALYSES[name].needs
    for name, question in _load_entries(added):
        yield name, question.needs


def _load_entries(entries: Mapping[str, MenuEntry]) -> Iterator[tuple[str, "Analysis[...]"]]:
    for name, entry in sorted(entries.items()):
        try:
            yield name, entry.load(name)
        except HtkError as error:
            warnings.warn(str(error), stacklevel=2)
