"""Why a job hangs, from whatever it left behind."""

import json

import pyarrow as pa

from htk.base.core.analysis import analysis, with_coverage
from htk.base.errors import MissingTable
from htk.base.schema import INT64, TEXT, table
from htk.quantities.measures.desync import list_ranks
from htk.quantities.measures.post_mortem.verdict import gather_evidence, judge_evidence

RETURNS = table(
    finding=(
        TEXT,
        "missing_rank, wrong_group, type/size/dtype/order/root_mismatch, cycle, not_completed, "
        "network_error, gpu_error, out_of_memory, program_error, crashed, rank_error, "
        "cannot_decide, nothing_pending; then waiting, evidence, note (of what all completed, of "
        "who moved between dumps), to_decide.",
    ),
    ranks=(TEXT, "Whom it is about: 0-2,7."),
    group=(TEXT, "Process group name."),
    group_desc=(TEXT, "Process group description."),
    group_ranks=(TEXT, "Its global ranks, compact JSON."),
    seq=(INT64, "Sequence number of the call; for messages, their number between two ranks."),
    type=(TEXT, "What the call was."),
    source=(TEXT, "Who shows it: flight_recorder, watchdog, nccl_debug, ras, python_stacks, …"),
    text=(TEXT, "The finding in words."),
    frames=(TEXT, "Where Python stood, innermost first, one frame a line."),
)


@analysis(returns=RETURNS)
def hang(
    collectives: pa.Table,
    comm_groups: pa.Table,
    comm_inits: pa.Table,
    comm_counts: pa.Table,
    comm_notes: pa.Table,
    python_stacks: pa.Table,
) -> pa.Table:
    """Why does the job hang: who never came, who made another call, who only waits?

    From whatever a dead or hanging job left: flight recorder dumps of all or some ranks, PyTorch's
    watchdog lines, NCCL's debug log, RAS reports, Python stacks. Causes come first, then who waits
    for them, then the evidence of each other source, then what would decide what is open. A rank
    that never came to a collective is told from one that waits elsewhere itself; calls that differ
    are judged by the majority; waits that form a circle are named.
    """
    evidence = gather_evidence(
        collectives, comm_groups, comm_inits, comm_counts, comm_notes, python_stacks
    )
    if not evidence.sources:
        raise MissingTable(
            "nothing here tells of a hang: no flight recorder dump, watchdog line, NCCL log, RAS "
            "report or Python stack. Set TORCH_FR_BUFFER_SIZE=2000 and "
            "TORCH_NCCL_DUMP_ON_TIMEOUT=1, and give the files comm_lib_trace_rank_* and the log"
        )
    verdict = judge_evidence(evidence)
    rows = [finding.row(list_ranks(finding.ranks)) for finding in verdict.findings]
    excluded = verdict.excluded
    exclude_ranks = json.dumps(excluded, separators=(",", ":")) if excluded else None
    return with_coverage(
        pa.Table.from_pylist(rows, schema=RETURNS),
        verdict=verdict.words,
        decided=verdict.decided,
        sources=evidence.sources,
        dumps=list_ranks(evidence.history.dumped),
        dumps_missing=list_ranks(verdict.undumped) or None,
        exclude_ranks=exclude_ranks,
    )
