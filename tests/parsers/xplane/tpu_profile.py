"""An XLA profile of TPUs as libtpu writes it, of a program that is made up."""

from collections.abc import Sequence

from sample_traces.xplane_export import LINE_NS, Plane, Row

BEGAN_NS = 1_771_000_000_000_000_000
STEP_NS = 4_000
FIRST_STEP = 7
CORES = 2
_SHAPE = "f32[8,128]{1,0:T(8,128)}"
_HOST = "f32[8,128]{1,0:T(8,128)S(5)}"
BYTES = 8 * 128 * 4
# Operators of a step: start and end in ns, and what the program's line and the category say.
OPERATORS = {
    "fusion.1": (0, 100, f"{_SHAPE} fusion({_SHAPE} %p), kind=kLoop", "loop fusion"),
    "while.5": (100, 1_100, f"({_SHAPE}) while(({_SHAPE}) %tuple), body=%b", "while"),
    "fusion.2": (150, 450, f"{_SHAPE} fusion({_SHAPE} %p), kind=kOutput", "convolution fusion"),
    "all-gather-start.1": (
        450, 460, f"({_SHAPE}, f32[32,128]{{1,0}}) all-gather-start({_SHAPE} %fusion.2),"
        " channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}", "all-gather",
    ),
    "fusion.3": (460, 800, f"{_SHAPE} fusion({_SHAPE} %p), kind=kLoop", "loop fusion"),
    "all-gather-done.1": (
        800, 1_000, f"f32[32,128]{{1,0}} all-gather-done(({_SHAPE}, f32[32,128]{{1,0}})"
        " %all-gather-start.1)", "all-gather",
    ),
    "psum.4": (
        1_100, 1_400, f"{_SHAPE} all-reduce({_SHAPE} %fusion.3), replica_groups={{{{0,1}}}},"
        " to_apply=%add", "all-reduce",
    ),
    "copy-start.6": (
        1_400, 1_410, f"({_HOST}, {_SHAPE}, u32[]{{:S(2)}}) copy-start({_SHAPE} %psum.4)",
        "async-copy",
    ),
    "fusion.7": (1_410, 1_500, f"{_SHAPE} fusion({_SHAPE} %p), kind=kLoop", "loop fusion"),
    "copy-done.6": (
        1_500, 1_560, f"{_HOST} copy-done(({_HOST}, {_SHAPE}, u32[]) %copy-start.6)", "copy-done"
    ),
    "fusion.8": (1_600, 1_900, f"{_SHAPE} fusion({_SHAPE} %p), kind=kCustom", "custom fusion"),
    "reduce.9": (1_650, 1_700, f"f32[] reduce({_SHAPE} %p)", "reduce"),
    "outfeed.2": (1_900, 1_950, f"token[] outfeed({_SHAPE} %fusion.8, token[] %t)", "outfeed"),
}  # fmt: skip
BESIDE = {"all-gather-start.1": (450, 1_000), "copy-start.6": (1_400, 1_560)}
# What counts: the compute, communication and copies of a step.
COMPUTE = [(0, 100), (150, 450), (460, 800), (1_410, 1_500), (1_600, 1_900)]
COMM = [(450, 1_000), (1_100, 1_400)]
COPIES = [(1_400, 1_560), (1_900, 1_950)]
ORIGIN_NS = BEGAN_NS + LINE_NS


def begin_of(core: int, step: int) -> int:
    """Return when a core begins a step, in ns from the first line's begin."""
    return 1_000 + STEP_NS * step + 50 * core


def tpu_profile(
    *, steps: int = 2, cores: int = CORES, beside: bool = True, marks: str = "device"
) -> bytes:
    """Return a profile whose steps the host marks, or a line of the device, or nobody."""
    facts = {"device_type_string": "TPU v6 Lite", "peak_teraflops_per_second": 918}
    host = Plane("/host:CPU")
    launches: list[Row] = []
    marked: list[Row] = []
    for step in range(steps):
        begin = 100 + STEP_NS * step
        marked.append(("train", begin, 700, {"step_num": FIRST_STEP + step}))
        launch = {"_pt": 12, "_p": 500 + step}
        launches.append(("DoEnqueueProgram", begin + 100, 300, launch))
    host.line("main", marked if marks == "host" else [])
    host.line("tfrt", launches)
    planes = [_core_plane(core, steps, beside, marks == "device", facts) for core in range(cores)]
    began = Plane("Task Environment", profile_start_time=BEGAN_NS)
    return b"".join(plane.bytes() for plane in (*planes, host, began))


def _core_plane(
    core: int, steps: int, beside: bool, with_steps: bool, facts: dict[str, object]
) -> Plane:
    plane = Plane(f"/device:TPU:{core}", **facts)
    for name, (_, _, text, category) in OPERATORS.items():
        line = f"%{name} = {text}"
        plane.describe(name, line, hlo_category=category, tf_op=_framework(name))
        if name in BESIDE:  # there all of a kind are called the same
            shown = "async-" + name.partition("-start")[0]
            plane.describe(f"{name} beside", line, shown, hlo_category=category)
    begins = [begin_of(core, step) for step in range(steps)]
    steps_of: list[Row] = [(str(FIRST_STEP + k), t - 10, 2_000, {}) for k, t in enumerate(begins)]
    programs: list[Row] = [
        ("jit_step(99)", t - 10, 2_000, {"_ct": 12, "_c": 500 + k, "run_id": k})
        for k, t in enumerate(begins)
    ]
    plane.line("Steps", steps_of if with_steps else [])
    plane.line("XLA Modules", programs)
    plane.line("XLA Ops", _rows({n: o[:2] for n, o in OPERATORS.items()}, begins))
    if beside:
        plane.line("Async XLA Ops", _rows(BESIDE, begins, " beside"))
    plane.line("XLA TraceMe", [("barrier-cores", t, 5, {}) for t in begins])
    plane.line("Framework Ops", [("MatMul", t, 100, {}) for t in begins])
    return plane


def _framework(name: str) -> str:
    return "jit(f)/dot_general" if name == "fusion.2" else "jit(f)/add"


def _rows(spans: dict[str, tuple[int, int]], begins: Sequence[int], beside: str = "") -> list[Row]:
    rows: list[Row] = []
    for begin in begins:
        for name, (start, end) in spans.items():
            done = {"hlo_op": name.replace("start", "done"), "flow": begin}
            rows.append((name + beside, begin + start, end - start, done if beside else {}))
    return rows
