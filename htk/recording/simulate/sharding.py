"""The work of each strategy around a unit: gather its parameters, reduce its gradients."""

from dataclasses import replace

from htk.recording.simulate.host import SimulatedHost
from htk.recording.simulate.instructions import (
    COMPUTE,
    COPY_IN,
    GATHER,
    REDUCE,
    REPLICATE,
    Activity,
    StreamEvent,
)
from htk.recording.simulate.operator_inputs import OperatorInputs, Tensors, build_operator_inputs
from htk.recording.simulate.stages import Chunk, root_parameters


class Strategy:
    """Acts around each unit of a chunk of the model. Unit numbers: its layers, then what is in no
    layer (the root), which may be empty."""

    last = True  # of the micro-batches

    def __init__(self, host: SimulatedHost, chunk: Chunk) -> None:
        self.host = host
        config = host.config
        layer = config.decoder.layer_parameters // config.tensor_parallel
        root = root_parameters(config, chunk)
        n = config.shards
        sizes = [layer] * len(chunk.layers) + [root]
        self.elements = [-(-size // n) * n for size in sizes]  # padded to be shared out
        self.root = len(chunk.layers)
        self.size = config.element_bytes
        self.kind = config.element_type

    def before_forward(self, unit: int) -> None:
        """Act before a unit's parameters are used."""

    def after_forward(self, unit: int) -> None:
        """Act after a unit's forward pass: its parameters are not needed until the backward."""

    def before_backward(self, unit: int) -> None:
        """Act before a unit's parameters are used again."""

    def after_backward(self, unit: int) -> None:
        """Act when all gradients of a unit are ready."""

    def gradient_ready(self, elements: int) -> None:
        """Act when one gradient is ready."""

    def expert_gradient_ready(self, elements: int) -> None:
        """Act when one gradient of the experts that this rank holds is ready."""
        self.gradient_ready(elements)

    def finish(self) -> None:
        """Act when the backward pass is over."""


class DataParallel(Strategy):
    """DDP: gradients are reduced in buckets of 25 MB while the backward pass goes on."""

    def __init__(self, host: SimulatedHost, chunk: Chunk) -> None:
        super().__init__(host, chunk)
        self._filled = {"data": 0, "expert_replicate": 0}  # elements, by the group that reduces
        self._sent: StreamEvent | None = None

    def gradient_ready(self, elements: int) -> None:
        self._fill("data", elements)

    def expert_gradient_ready(self, elements: int) -> None:
        """Add a gradient to the bucket that the ranks with the same experts reduce."""
        spread = self.host.config.expert_parallel > 1
        self._fill("expert_replicate" if spread else "data", elements)

    def finish(self) -> None:
        for group in self._filled:
            self._send(group)
        if self._sent:
            self.host.wait(COMPUTE, self._sent)
            self._sent = None

    def _fill(self, group: str, elements: int) -> None:
        self._filled[group] += elements
        if self.size * self._filled[group] >= self.host.config.bucket_bytes:
            self._send(group)

    def _send(self, group: str) -> None:
        reduces = self.last or not self.host.config.no_sync
        if self._filled[group] and reduces and self.host.groups[group].size > 1:
            self._reduce_compressed(group)
            self._sent = self.host.record(REDUCE)
        self._filled[group] = 0

    def _reduce_compressed(self, group: str) -> None:
        """Reduce a bucket, in as many bytes as are sent: packed before and unpacked after."""
        elements = self._filled[group]
        share = self.host.config.gradients_sent
        moved = round(self.size * elements * (1 + share))
        passed = Activity("pack_gradients", "compute", COMPUTE, self.host.times.elementwise(moved))
        if share < 1:
            self.host.launch(passed)
        self.host.order(COMPUTE, REDUCE)
        self.host.collective("all_reduce", round(share * elements), group, REDUCE)
        if share < 1:
            self.host.launch(replace(passed, name="unpack_gradients", stream=REDUCE))


class FullyShard(Strategy):
    """FSDP2: `fully_shard` on every layer and on the root."""

    def __init__(self, host: SimulatedHost, chunk: Chunk, reshard: bool) -> None:
        super().__init__(host, chunk)
        self._reshard = reshard
        self._gathered: dict[int, StreamEvent] = {}  # all-gathers that were issued
        self._whole: set[int] = set()  # units whose parameters are whole
        self._copied: list[StreamEvent] = []  # ends of copies out
        self._reduced: StreamEvent | None = None
        self._replicated: StreamEvent | None = None

    def before_forward(self, unit: int) -> None:
        with self.host.range("FSDP::pre_forward", annotation=True):
            self.host.think(35_000)
            if unit == self.root:
                self._wait_for_optimizer()
            self._unshard_unit(unit)

    def after_forward(self, unit: int) -> None:
        if self._reshard and unit != self.root:
            self._free(unit)

    def before_backward(self, unit: int) -> None:
        with self.host.range("FSDP::pre_backward", annotation=True):
            self.host.think(25_000)
            self._unshard_unit(unit)
            following = self.root - 1 if unit == self.root else unit - 1
            ahead = self.host.config.gathers_ahead
            if ahead and following >= 0 and following not in self._whole:
                self._gather(following)

    def after_backward(self, unit: int) -> None:
        self._free(unit)
        with self.host.range("FSDP::post_backward_reduce", annotation=True):
            self.host.think(30_000)
            if self.elements[unit]:
                self._reduce(unit)

    def finish(self) -> None:
        for event in (self._reduced, self._replicated):
            if event:
                self.host.wait(COMPUTE, event)
        self._reduced = self._replicated = None

    def _wait_for_optimizer(self) -> None:
        """Make gathers wait until the parameters are updated."""
        updated = self.host.record(COMPUTE)
        for stream in (COPY_IN, GATHER):
            self.host.wait(stream, updated)

    def _unshard_unit(self, unit: int) -> None:
        if unit in self._whole or not self.elements[unit]:
            return
        if unit not in self._gathered:
            self._gather(unit)
        self.host.wait(COMPUTE, self._gathered.pop(unit))
        self._copy_out(unit)
        self._whole.add(unit)
        self.host.memory(self.size * self.elements[unit])

    def _copy_out(self, unit: int) -> None:
        with (
            self.host.range("FSDP::all_gather_copy_out", annotation=True),
            self.host.range("fsdp::split_with_sizes_copy", inputs=self._split(unit)),
        ):
            name = "void at::native::split_with_sizes_copy_out_contiguous_no_cast_kernel"
            self.host.launch(self._copy(name, COMPUTE, 2 * self.elements[unit]))
        self._copied.append(self.host.record(COMPUTE))

    def _gather(self, unit: int) -> None:
        share = self.elements[unit] // self.host.config.shards
        with self.host.range("FSDP::all_gather", annotation=True):
            total = self.elements[unit]
            own = f"[{share}]"
            parts = build_operator_inputs(
                self.kind, Tensors(((share,),)), (total,), own, str(share), "0"
            )
            with self.host.range("fsdp::all_gather_copy_in", inputs=parts):
                name = "void at::native::CatArrayBatchedCopy_contig<OpaqueType<2u>, 1, 64, 64>"
                self.host.launch(self._copy(name, COPY_IN, 2 * share))
            self.host.order(COPY_IN, GATHER)
            ahead = self.host.config.gathers_ahead
            if not ahead:
                self.host.order(COMPUTE, GATHER)
            elif len(self._copied) >= ahead:
                self.host.wait(GATHER, self._copied[-ahead])
            self.host.collective("all_gather", self.elements[unit], "shard", GATHER)
            self._gathered[unit] = self.host.record(GATHER)

    def _free(self, unit: int) -> None:
        if unit in self._whole:
            self._whole.discard(unit)
            self.host.memory(-self.size * self.elements[unit])

    def _reduce(self, unit: int) -> None:
        if self._reduced:
            self.host.wait(COMPUTE, self._reduced)
        n = self.host.config.shards
        total = self.elements[unit]
        parts = build_operator_inputs(self.kind, Tensors(((total,),)), "0", str(n), (n, total // n))
        with self.host.range("fsdp::chunk_cat", inputs=parts):
            name = "void at::native::chunk_cat_cuda_kernel<c10::BFloat16, c10::BFloat16>"
            self.host.launch(self._copy(name, COMPUTE, 2 * total))
        self.host.order(COMPUTE, REDUCE)
        self.host.collective("reduce_scatter", self.elements[unit], "shard", REDUCE)
        self._reduced = self.host.record(REDUCE)
        if self.host.config.replicas > 1:
            self.host.order(REDUCE, REPLICATE)
            share = self.elements[unit] // self.host.config.shards
            self.host.collective("all_reduce", share, "replicate", REPLICATE)
            self._replicated = self.host.record(REPLICATE)

    def _split(self, unit: int) -> OperatorInputs:
        n = self.host.config.shards
        shape = (n, self.elements[unit] // n)
        return build_operator_inputs(self.kind, shape, f"[{shape[1]}]", "1", Tensors((shape,)))

    def _copy(self, name: str, stream: int, elements: int) -> Activity:
        """Return a kernel that moves `elements`, those read and those written."""
        moved = self.size * elements
        ns = self.host.times.elementwise(moved)
        return Activity(name, "compute", stream, ns, grid=(max(1, moved // 65536), 1, 1))


class FlatShard(FullyShard):
    """FSDP1: one flat parameter for each unit, nothing to copy; all-gathers are held back."""

    def __init__(self, host: SimulatedHost, chunk: Chunk, reshard: bool) -> None:
        super().__init__(host, chunk, reshard)
        self._freed: list[StreamEvent] = []

    def _copy_out(self, unit: int) -> None:
        """Do nothing: what was gathered is the parameter."""

    def _gather(self, unit: int) -> None:
        with self.host.range("FullyShardedDataParallel._unshard", annotation=True):
            if len(self._freed) > 1:  # limit_all_gathers: two at most in flight
                self.host.synchronize(self._freed.pop(0))
            self.host.collective("all_gather", self.elements[unit], "shard", GATHER)
            self._gathered[unit] = self.host.record(GATHER)

    def _free(self, unit: int) -> None:
        if unit in self._whole:
            self._freed.append(self.host.record(COMPUTE))
        super()._free(unit)

    def _reduce(self, unit: int) -> None:
        self.host.order(COMPUTE, REDUCE)
        self.host.collective("reduce_scatter", self.elements[unit], "shard", REDUCE)
        if self.host.config.replicas > 1:
            share = self.elements[unit] // self.host.config.shards
            self.host.collective("all_reduce", share, "replicate", REDUCE)
        self._reduced = self.host.record(REDUCE)


def strategy_of(host: SimulatedHost, chunk: Chunk) -> Strategy:
    config = host.config
    if config.strategy == "ddp":
        return DataParallel(host, chunk)
    reshard = config.strategy != "shard_grad_op"
    sharded = FullyShard if config.fsdp == 2 else FlatShard
    return sharded(host, chunk, reshard)
