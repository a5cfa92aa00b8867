"""Calls of the operating system: what the launching thread waits in while its GPU is idle."""

from pathlib import Path

from htk.answers.ask import ask_trace
from htk.traces.trace.trace import Trace
from sample_traces.nsight_export import SESSION_NS, Export, Process
from tests.parsers.opened_files import opened, rows

US = 1_000


def recording(path: Path) -> Trace:
    """Write two kernels, between whose launches their thread reads for 700 us, and another polls.

    The table has the columns of Nsight Systems 2026.
    """
    export = Export(path)
    export.header()
    process = Process(export, 900, 0)
    export.connection.execute(
        "create table OSRT_API(start, end, eventClass, globalTid, correlationId, nameId, "
        "returnValue, nestingLevel, callchainId)"
    )
    export.columns["OSRT_API"] = ["start", "end", "globalTid", "correlationId", "nameId"]
    for k, start in enumerate((0, 950)):
        process.call("cudaLaunchKernel_v7000", start * US, (start + 5) * US, k + 1)
        process.kernel("add", (start + 10) * US, (start + 110) * US, k + 1)
    for name, thread, start, end in (("read", 0, 200, 900), ("poll", 5, 0, 2_000)):
        export.add(
            "OSRT_API",
            start=start * US,
            end=end * US,
            globalTid=process.thread(thread),
            correlationId=1,
            nameId=export.string(name),
        )
    export.close()
    return opened(path)


def test_the_launching_thread_waits_in_them(tmp_path: Path) -> None:
    trace = recording(tmp_path / "t.sqlite")
    calls = [(c["name"], c["api"], c["correlation"]) for c in rows(trace, "launches")]
    cuda = ("cudaLaunchKernel", "cuda_runtime")
    assert calls == [(*cuda, 1), ("read", "os_runtime", None), (*cuda, 2)]
    (read,) = (c for c in rows(trace, "launches") if c["name"] == "read")
    assert read["start_ns"] - SESSION_NS == 200 * US

    idle = {row["cause"]: row["idle_ns"] for row in ask_trace(trace, "idle_breakdown").to_pylist()}
    assert idle["host_system_call"] == 700 * US
    assert sum(idle.values()) == 850 * US

    (stall,) = ask_trace(trace, "host_stalls").to_pylist()
    assert (stall["cause"], stall["name"], stall["host_ns"]) == ("system call", "read", 700 * US)
    assert stall["gpu_idle_caused_ns"] == 700 * US


def test_they_are_no_work_of_the_gpu(tmp_path: Path) -> None:
    trace = recording(tmp_path / "t.sqlite")
    assert [row["launched_by"] for row in ask_trace(trace, "launch_stats").to_pylist()] == [
        "cudaLaunchKernel"
    ]
    (times,) = ask_trace(trace, "time_breakdown").to_pylist()
    assert times["busy_ns"] == 200 * US
