"""HTA's `TraceAnalysis`: the same methods, arguments and columns.

`visualize` and `image_renderer` show a figure and change no number. An unrecorded rank, or
data that was not recorded, is an error in one clear line, where HTA has a traceback.
"""

import logging
from collections.abc import Callable, Sequence
from enum import Flag, auto
from functools import cached_property, reduce
from operator import or_
from pathlib import Path
from typing import Any

import pandas as pd

from htk.base.errors import UsageError
from htk.hta import breakdown, counters, kernels, paths
from htk.hta.frames import Frames, show_bar_chart
from htk.hta.handover import hta_trace
from htk.hta.paths import CriticalPath
from htk.traces.trace.opening import open_trace
from htk.traces.trace.trace import Trace

_FULL_QUEUE = 1024
_log = logging.getLogger(__name__)
Ranks = Sequence[int] | None
Tables = dict[int, pd.DataFrame]


class TimeSeriesTypes(Flag):
    QUEUE_LENGTH = auto()
    MEMCPY_BANDWIDTH = auto()

    @classmethod
    def of(cls, flags: Flag) -> "TimeSeriesTypes":
        """Return the members of HTA's own enum as ours, by name."""
        names = [flag.name or "" for flag in flags]
        unknown = [name for name in names if name not in cls.__members__]
        if unknown:
            raise UsageError(
                f"time_series: {', '.join(unknown)} is not one of {', '.join(cls.__members__)}"
            )
        return reduce(or_, (cls[name] for name in names), cls(0))


class TraceAnalysis:
    """A trace, asked as HTA is asked."""

    def __init__(
        self,
        trace_files: dict[int, str] | Sequence[str] | None = None,
        trace_dir: str = "/tmp/trace",
        include_last_profiler_step: bool | None = False,
    ) -> None:
        folder = Path(trace_dir).expanduser()
        if isinstance(trace_files, dict):  # the keys are HTA's ranks: ours are in the files
            trace_files = list(trace_files.values())
        paths = [str(folder / name) for name in trace_files] if trace_files else [str(folder)]
        self._frames = Frames(open_trace(paths), bool(include_last_profiler_step))

    @cached_property
    def t(self) -> Any:
        """HTA's own `Trace` with these events, for HTA's other modules (needs the `hta` extra)."""
        return hta_trace(self._frames)

    @property
    def trace(self) -> Trace:
        """The trace that is asked."""
        return self._frames.trace

    @classmethod
    def of(cls, trace: Trace, include_last_profiler_step: bool = False) -> "TraceAnalysis":
        """Return the analysis of a trace that is open."""
        analysis = cls.__new__(cls)
        analysis._frames = Frames(trace, include_last_profiler_step)
        return analysis

    def get_comm_comp_overlap(self, visualize: bool = True) -> pd.DataFrame:
        """Return how much of the communication of each rank has compute beside it, in percent."""
        overlap = breakdown.measure_overlap(self._frames)
        if visualize:
            show_bar_chart(
                overlap, "rank", "comp_comm_overlap_pctg", "Communication beside computation, %"
            )
        return overlap

    def get_profiler_steps(self) -> list[int]:
        """Return the numbers of the profiler steps."""
        return self._frames.steps

    def get_potential_stragglers(
        self,
        profiler_steps: Sequence[int] | None = None,
        num_candidates: int = 2,
        visualize: bool = False,
        straggler_identification_impl: Callable[..., pd.Series] | None = None,
    ) -> list[int]:
        """Return the ranks that start the most uneven collective late, the most often late first.

        An implementation of one's own is given all GPU activities in one frame (with `rank`),
        None, the number of candidates and `visualize`, and returns counts by rank.
        """
        recorded = self._frames.steps
        steps = recorded if profiler_steps is None else [s for s in profiler_steps if s in recorded]
        if not steps:
            raise UsageError(f"profiler_steps={profiler_steps}: the trace has {recorded}")
        most = max(num_candidates, 1)
        if straggler_identification_impl is None:
            return kernels.find_stragglers(self._frames, steps, most)
        every = pd.concat([gpu.assign(rank=r) for r, gpu in self._frames.gpu.items()])
        chosen = every[every["iteration"].isin(steps)]
        counts = straggler_identification_impl(chosen, None, most, visualize)
        return [int(r) for r in counts.sort_values(ascending=False).index[:most]]

    def get_gpu_kernel_breakdown(
        self,
        visualize: bool = True,
        duration_ratio: float = 0.8,
        num_kernels: int = 10,
        include_memory_kernels: bool = True,
        image_renderer: str = "",
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Time by kinds of kernels that run alone or at once; statistics by kernel and rank."""
        kinds, named = breakdown.sum_kernels(
            self._frames, duration_ratio, num_kernels, include_memory_kernels
        )
        if visualize:
            show_bar_chart(kinds, "kernel_type", "percentage", "GPU time by kind, %")
        return kinds, named

    def get_gpu_kernels_with_user_annotations(
        self,
        rank: int,
        expand_names: bool = True,
        shorten_names: bool = True,
        *,
        shortern_names: bool = True,
    ) -> pd.DataFrame | None:
        """GPU activities of a rank with the innermost user range on their stream.

        HTA 0.5 spells `shorten_names` with another r.
        """
        shorten = shorten_names and shortern_names
        return breakdown.kernels_with_annotations(self._frames, rank, expand_names, shorten)

    def get_gpu_user_annotation_breakdown(
        self,
        use_gpu_annotation: bool = True,
        visualize: bool = True,
        duration_ratio: float = 0.8,
        num_kernels: int = 1000,
        allowlist_patterns: Sequence[str] | None = None,
        image_renderer: str | None = None,
    ) -> pd.DataFrame | None:
        """Statistics of user ranges by name and rank, on the GPU or on the CPU."""
        ranges = breakdown.sum_annotations(
            self._frames, use_gpu_annotation, duration_ratio, num_kernels, allowlist_patterns
        )
        if visualize and ranges is not None:
            show_bar_chart(ranges, "name", "sum (us)", "User ranges")
        return ranges

    def get_temporal_breakdown(self, visualize: bool = True) -> pd.DataFrame:
        """Idle, compute and other time of each rank."""
        times = breakdown.measure_gpu_time(self._frames)
        if visualize:
            shares = ["idle_time_pctg", "compute_time_pctg", "non_compute_time_pctg"]
            show_bar_chart(times, "rank", shares, "Where the time went, %")
        return times

    def get_frequent_cuda_kernel_sequences(
        self,
        operator_name: str,
        output_dir: str,
        min_pattern_len: int = 3,
        rank: int = 0,
        top_k: int = 5,
        visualize: bool = False,
        compress_other_kernels: bool = True,
    ) -> pd.DataFrame:
        """Sequences of kernels that operators of a name launch; marks them in a copy.

        The copy keeps all other events whole, whatever `compress_other_kernels` says.
        """
        folder = Path(output_dir).expanduser()
        sequences = kernels.find_kernel_sequences(
            self._frames, operator_name, folder, min_pattern_len, rank, top_k
        )
        if visualize:
            show_bar_chart(sequences[:top_k], "pattern", "count", "Frequent sequences")
        return sequences

    def get_aten_op_kernels_and_delay(
        self, ranks: Ranks = None, sort_by: Sequence[str] | None = None
    ) -> Tables:
        """Return the kernels of each ATen operator, and the mean delays to the first of them."""
        by = sort_by or ["occurrence_count"]
        return {r: kernels.aten_delays(self._frames, r, by) for r in ranks or [0]}

    def get_cuda_kernel_launch_stats(
        self,
        ranks: Ranks = None,
        runtime_cutoff: int = 50,
        launch_delay_cutoff: int = 100,
        include_memory_events: bool = True,
        visualize: bool = True,
    ) -> Tables:
        """Time of the call, of the activity, and the delay between, of every launch."""
        launches = {
            r: kernels.list_launches(self._frames, r, include_memory_events) for r in ranks or [0]
        }
        for rank, frame in launches.items() if visualize else ():
            longest = frame.nlargest(launch_delay_cutoff, "launch_delay")
            title = f"Rank {rank}: longest launch delays, us"
            show_bar_chart(
                longest.astype({"correlation": str}), "correlation", "launch_delay", title
            )
        return launches

    def generate_trace_with_counters(
        self,
        time_series: Flag | None = None,
        ranks: Ranks = None,
        output_suffix: str = "_with_counters",
    ) -> None:
        """Copies of the ranks' files, beside them, with counters drawn in."""
        wanted = TimeSeriesTypes.of(time_series) if time_series else ~TimeSeriesTypes(0)
        chosen = list(ranks or [0])
        series: dict[str, Tables] = {}
        if TimeSeriesTypes.QUEUE_LENGTH in wanted:
            series["Queue Length"] = counters.queue_lengths(self._frames, chosen)
        if TimeSeriesTypes.MEMCPY_BANDWIDTH in wanted:
            series["Memcpy BW"] = counters.build_bandwidth_series(self._frames, chosen)
        for rank in chosen:
            counters.write_counter_copy(
                self._frames, rank, series, output_suffix or "_with_counters"
            )

    def get_queue_length_summary(self, ranks: Ranks = None) -> pd.DataFrame | None:
        """Statistics of the queue lengths by rank and stream."""
        return counters.queue_summary(self.get_queue_length_time_series(ranks))

    def get_queue_length_summary_from_time_series(
        self, queue_length_dict: Tables
    ) -> pd.DataFrame | None:
        """Statistics of given queue lengths by rank and stream."""
        return counters.queue_summary(queue_length_dict)

    def get_queue_length_time_series(self, ranks: Ranks = None) -> Tables:
        """Return the activities launched and not begun, on each stream, after each change."""
        return counters.queue_lengths(self._frames, ranks or [0])

    def get_time_spent_blocked_on_full_queue(
        self, queue_length_dict: Tables, max_queue_length: int = _FULL_QUEUE
    ) -> pd.DataFrame | None:
        """Return how long the queues were full, a row for each stream that ever was."""
        return counters.measure_full_queues(self._frames, queue_length_dict, max_queue_length)

    def get_memory_bw_summary(self, ranks: Ranks = None) -> pd.DataFrame | None:
        """Statistics of the bandwidth of copies and sets, by rank and direction."""
        return counters.bandwidth_summary(self.get_memory_bw_time_series(ranks))

    def get_memory_bw_time_series(self, ranks: Ranks = None) -> Tables:
        """Bandwidth of copies and sets by direction, after each change."""
        return counters.build_bandwidth_series(self._frames, ranks or [0])

    def get_idle_time_breakdown(
        self,
        ranks: Ranks = None,
        streams: Sequence[int] | None = None,
        visualize: bool = True,
        visualize_pctg: bool = True,
        show_idle_interval_stats: bool = False,
        consecutive_kernel_delay: int = 30,
    ) -> tuple[pd.DataFrame, pd.DataFrame | None]:
        """Return the gaps of each stream by HTA's three causes (delay in microseconds)."""
        of_ranks = [
            breakdown.sum_idle_gaps(
                self._frames, r, streams, consecutive_kernel_delay, show_idle_interval_stats
            )
            for r in ranks or [0]
        ]
        idle = pd.concat([gaps for gaps, _ in of_ranks], ignore_index=True)
        stats = [more for _, more in of_ranks if more is not None]
        if visualize:
            column = "idle_time_ratio" if visualize_pctg else "idle_time"
            show_bar_chart(idle.astype({"stream": str}), "stream", column, "Idle time by stream")
        return idle, pd.concat(stats) if stats else None

    def get_cupti_counter_data_with_operators(self, ranks: Ranks = None) -> list[pd.DataFrame]:
        """CUPTI's counters by kernel, with the operators that launched it."""
        frames = [kernels.read_cupti_counters(self._frames, r) for r in ranks or [0]]
        return [frame for frame in frames if frame is not None]

    def critical_path_analysis(
        self,
        rank: int,
        annotation: str,
        instance_id: int | tuple[int, int] | None,
        data_load_events: Sequence[str] | None = None,
    ) -> tuple[CriticalPath | None, bool]:
        """Return the critical path of the GPU step that an instance of a range lies in.

        `data_load_events` are regular expressions: pieces of the path on the CPU whose name
        one of them matches are bound by data loading.
        """
        return paths.critical_path(
            self._frames, rank, annotation, instance_id, data_load_events or ()
        )

    def overlay_critical_path_analysis(
        self,
        rank: int,
        critical_path_graph: CriticalPath,
        output_dir: str,
        only_show_critical_events: bool = True,
        show_all_edges: bool = False,
    ) -> str:
        """Return a copy of the rank's file with the path drawn in, and its name.

        The copy keeps all events, whatever the last two arguments say.
        """
        return paths.write_path_overlay(
            self._frames, rank, critical_path_graph, Path(output_dir).expanduser()
        )
