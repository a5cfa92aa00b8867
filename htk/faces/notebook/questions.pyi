"""Every analysis as a method, written by `python -m htk.analyses.menu`."""

# fmt: off
from typing import Literal

from htk.answers.output.result import Result

class Questions:
    def alltoall_balance(self, *, n: int = 20, align: bool = True) -> Result:
        """How uneven are the all-to-alls: who sends or receives most, and by how much?"""

    def annotation_breakdown(self, *, match: str | None = None) -> Result:
        """What do user ranges cost, on the CPU and on the GPU?"""

    def bucket_study(self, *, align: bool = True) -> Result:
        """Are the buffers large enough: how does bandwidth grow with the size of a collective?"""

    def change_points(self, *, min_pct: float = 1.0) -> Result:
        """From which step on did a kernel, or the step, become slower or faster?"""

    def clock_alignment(self) -> Result:
        """How far are the clocks of the ranks apart, and how well is that known?"""

    def collective_times(self, *, align: bool = True, source: str | None = None) -> Result:
        """When did each collective run on each rank, how long did it wait, how fast was it?"""

    def comm_compute_overlap(self, *, per: Literal['rank', 'step'] = 'rank', by: Literal['total', 'group', 'collective'] = 'total', compat: Literal['hta'] | None = None) -> Result:
        """How much of the communication is hidden behind compute?"""

    def comm_compute_ratio(self, *, per: Literal['rank', 'step'] = 'rank') -> Result:
        """How much does each GPU communicate for what it computes?"""

    def comm_excess(self, *, by: Literal['group', 'size', 'rank', 'rail', 'node', 'call'] = 'group', baseline: Literal['best', 'benchmark', 'trace', 'links'] = 'best', intra_gbps: float | None = None, inter_gbps: float | None = None, n: int = 20, align: bool = True) -> Result:
        """Which transfers take longer than their size should cost, in which groups, rails and nodes?"""

    def comm_matrix(self, *, per: Literal['rank', 'node'] = 'rank', align: bool = True) -> Result:
        """Which ranks (or nodes) send how much to each other, point to point and in all-to-alls?"""

    def comm_model(self, *, basis: Literal['all', 'benchmark', 'trace'] = 'all', align: bool = True) -> Result:
        """How does the time of a collective grow with its size: what latency, what bandwidth?"""

    def comm_overlap_by_group(self, *, align: bool = True) -> Result:
        """Which group's communication hides behind compute, and which is exposed?"""

    def comm_progress(self) -> Result:
        """Which ranks of a communicator are behind the others, or do not answer?"""

    def comm_proxy(self, *, by: Literal['call', 'channel', 'link'] = 'call', n: int = 20, align: bool = True) -> Result:
        """What did NCCL's proxies wait for in each collective: the GPU, the peer, the network?"""

    def comm_sources(self) -> Result:
        """Which algorithm, protocol and channels did each collective use, as NCCL's records say?"""

    def comm_summary(self, *, by: Literal['size', 'group', 'type'] = 'size', intra_gbps: float | None = None, inter_gbps: float | None = None, align: bool = True) -> Result:
        """How much is communicated, by what, how fast, and how much of it is exposed?"""

    def comm_wait(self, *, align: bool = True) -> Result:
        """How long does each rank wait in collectives, and who makes the others wait?"""

    def compile_graph_coverage(self) -> Result:
        """How much of the GPU time runs in CUDA graphs, compiled or eagerly?"""

    def critical_path(self, *, step: int | None = None, by: Literal['kind', 'event', 'piece'] = 'kind', n: int = 20) -> Result:
        """What bounds the step: which work lies on its critical path?"""

    def flops(self, *, by: Literal['all', 'kernel', 'family', 'op', 'shape', 'module', 'source', 'stream', 'phase'] = 'all', source_depth: int = 1, per: Literal['rank', 'step'] = 'rank', gpu: str | None = None, peak_tflops: float | None = None) -> Result:
        """How much work is done, and what share of the peak is that (MFU)?"""

    def fsdp_units(self, *, per: Literal['all', 'rank', 'step'] = 'all') -> Result:
        """How are FSDP's units gathered and reduced: how large, how early, how exposed?"""

    def fusible_chains(self, *, n: int = 20) -> Result:
        """Which chains of memory-bound kernels could be one kernel, and what would a step gain?"""

    def gpu_speed(self, *, per: Literal['rank', 'step', 'time'] = 'rank', slices: int = 50, min_count: int = 5) -> Result:
        """Does a GPU run the same kernels slower than the others, or slower than before?"""

    def hang(self) -> Result:
        """Why does the job hang: who never came, who made another call, who only waits?"""

    def hideable_comm(self) -> Result:
        """Which communication does nothing hide, and which independent work could?"""

    def host_stalls(self, *, n: int = 20) -> Result:
        """What does the host wait for (synchronising, allocating, loading, compiling), at what cost?"""

    def idle_breakdown(self, *, per: Literal['rank', 'step'] = 'rank', by: Literal['device', 'stream'] = 'device', compat: Literal['hta'] | None = None) -> Result:
        """Why was each GPU idle: was the host late, and doing what?"""

    def iteration_gaps(self, *, match: str | None = None) -> Result:
        """What do a server's GPUs wait for, between iterations and within them?"""

    def iteration_times(self, *, by: Literal['size', 'phase'] = 'size', match: str | None = None) -> Result:
        """How long do a server's iterations take, by phase, batch and context, and how much is padding?"""

    def kernel_families(self, *, per: Literal['all', 'rank', 'step'] = 'all') -> Result:
        """What kinds of kernels does the GPU run, and do they use its tensor cores?"""

    def kernel_gap(self, *, by: Literal['shape', 'kernel', 'family', 'op', 'module', 'source', 'stream', 'phase'] = 'shape', source_depth: int = 1, n: int = 20, gain: bool = False) -> Result:
        """How far are products, experts and attention from what was measured at their size?"""

    def kernel_kinds(self, *, per: Literal['rank', 'step'] = 'rank', compat: Literal['hta'] | None = None) -> Result:
        """Which kinds of activity run alone, and which at the same time?"""

    def kernel_metrics(self, *, zeros: bool = False, n: int = 20) -> Result:
        """What did the profiler's hardware counters measure for each kernel?"""

    def kernel_occupancy(self, *, n: int = 20) -> Result:
        """How well do kernels fill the GPU?"""

    def kernel_sequences(self, *, match: str | None = None, min_length: int = 3, n: int = 20) -> Result:
        """Which sequences of kernels do operators launch again and again?"""

    def kernel_top(self, *, by: Literal['kernel', 'family', 'op', 'shape', 'module', 'source', 'stream', 'phase'] = 'kernel', source_depth: int = 1, n: int = 20, sort_by: Literal['total', 'count', 'mean', 'max'] = 'total', per: Literal['all', 'rank', 'step'] = 'all') -> Result:
        """Which kernels cost most GPU time?"""

    def late_arrivals(self, *, n: int = 20, align: bool = True) -> Result:
        """In which collectives did ranks wait longest, and for whom?"""

    def launch_stats(self, *, by: Literal['call', 'kernel', 'operator'] = 'call', call_cutoff_us: float = 50, delay_cutoff_us: float = 100, n: int = 20) -> Result:
        """How long do launches take, and how long does the launched work wait?"""

    def link_counters(self, *, by: Literal['host', 'port'] = 'host', align: bool = True) -> Result:
        """Do the counters of NVLink and network adapters see what collectives should send?"""

    def matrix_calls(self, *, n: int = 20) -> Result:
        """Which matrix products, attention calls and convolutions ran, and how fast by shape?"""

    def memory_bandwidth(self) -> Result:
        """How fast are copies and sets, in each direction?"""

    def memory_peaks(self, *, by: Literal['holder', 'category'] = 'holder', n: int = 20) -> Result:
        """When is memory at its highest, and what holds it then?"""

    def memory_replay(self, *, activations_by: float = 1.0, gradients_by: float = 1.0, optimizer_by: float = 1.0, capacity_gib: float | None = None, max_split_mib: int | None = None, recomputed_segments: int | None = None, offloaded_segments: int | None = None, ways: bool = False) -> Result:
        """What does the allocator reserve for these allocations, and if they were larger or smaller?"""

    def memory_timeline(self, *, slices: int = 50, by: Literal['device', 'category'] = 'device') -> Result:
        """How much memory is in use, over time?"""

    def module_breakdown(self, *, n: int = 20) -> Result:
        """Which modules take the time, in forward and in backward?"""

    def moe_balance(self) -> Result:
        """How evenly do tokens spread over the ranks that hold the experts, layer by layer?"""

    def op_breakdown(self, *, by: Literal['name', 'shape', 'source', 'module', 'thread'] = 'name', per: Literal['all', 'rank', 'step'] = 'all', n: int = 20) -> Result:
        """Which operators take the time, on the CPU and on the GPU?"""

    def op_tree(self, *, depth: int | None = None, min_pct: float = 1.0, per: Literal['all', 'rank'] = 'all') -> Result:
        """Where in the call tree do operators take their time?"""

    def phase_breakdown(self, *, per: Literal['rank', 'step'] = 'rank') -> Result:
        """How does the time divide into data loading, forward, backward and optimizer?"""

    def pipeline_bubble(self) -> Result:
        """How much of a step does each pipeline stage stand idle?"""

    def python_hotspots(self, *, n: int = 20) -> Result:
        """Which Python functions take the time?"""

    def queue_length(self, *, by: Literal['stream', 'device'] = 'stream') -> Result:
        """How much launched work waits, and is the CPU held up by a full queue?"""

    def recommendations(self, *, min_pct: float = 1.0) -> Result:
        """What should be changed first, and how much would a step gain without each cause?"""

    def roofline(self, *, by: Literal['shape', 'kernel', 'family', 'op', 'module', 'source', 'stream', 'phase'] = 'shape', source_depth: int = 1, per: Literal['all', 'rank', 'step'] = 'all', gpu: str | None = None, launch_us: float = 2, n: int = 20) -> Result:
        """How close does each operator come to what its GPU can do?"""

    def serving_iterations(self, *, match: str | None = None) -> Result:
        """What does each iteration of an inference server do, and how long does it take?"""

    def short_kernels(self, *, by: Literal['duration', 'kernel', 'family', 'op', 'shape', 'module', 'source', 'stream', 'phase'] = 'duration', source_depth: int = 1, threshold_us: float = 10, bins: int = 10, n: int = 20) -> Result:
        """How much runs in kernels too short to pay for their launch?"""

    def slow_links(self, *, intra_gbps: float | None = None, inter_gbps: float | None = None, align: bool = True) -> Result:
        """Which adapter, link, node or GPU slows communication down, and what would decide it?"""

    def slowdown_by_stage(self) -> Result:
        """Which pipeline stage slows the job: is the model split evenly?"""

    def slowdown_by_type(self) -> Result:
        """Which type of operation slows the job: compute, pipeline transfers or reductions?"""

    def slowdown_by_worker(self) -> Result:
        """Which worker (data-parallel rank and stage) slows the job, and in how many of its steps?"""

    def step_times(self) -> Result:
        """How long did each step take, on the GPU and on the host?"""

    def step_variance(self) -> Result:
        """Why do some steps take longer than the median step: kernels, work, waiting or the host?"""

    def straggler_causes(self) -> Result:
        """Why is the job slower than its peers' operations allow: a bad worker, uneven stages, lengths?"""

    def straggler_slowdown(self, *, gpus: int | None = None) -> Result:
        """How much slower is the job than it would be if no operation were slower than its peers?"""

    def straggler_steps(self, *, align: bool = True) -> Result:
        """Is it the same rank that is late in every step, one node, or another rank each time?"""

    def straggler_whatif(self, *, dp_rank: int | None = None, stage: int | None = None, operation: str | None = None, gpus: int | None = None) -> Result:
        """What would a step take without that worker, with even stages, balanced lengths, …?"""

    def stragglers(self, *, align: bool = True) -> Result:
        """Which rank is late, in what, and how much does it cost the others?"""

    def time_breakdown(self, *, per: Literal['rank', 'step'] = 'rank', compat: Literal['hta'] | None = None) -> Result:
        """Where does each GPU's time go: compute, communication, copies or idle?"""
