"""Lookups in embedding tables, and what surrounds them."""

import json

import pytest

from htk.physics.op_costs import compute_call_cost
from htk.physics.op_costs.call import Cost
from tests.htk.physics.op_costs.operator_costs import of

FORWARD = "fbgemm::split_embedding_codegen_lookup_{}_function"
BACKWARD = "torch::autograd::CppNode<SplitLookupFunction_{}_Op>"


def lookup(
    name: str, total: str = "", tables: int = 1, many: int = 10, call: str = FORWARD
) -> Cost | str:
    """Indices into 20 rows of 16 halves, for four bags of each table."""
    dims: list = [[0], [320], [0], [0, 0], [tables], [tables], [tables + 1], [], [], [tables + 1]]
    dims += [[], [many], [4 * tables + 1], [], [many], [], [0], [], [], [], [20], [0]]
    longs = {9, 11, 12}
    types = ["long" if k in longs else "c10::Half" if k == 1 else "float" for k in range(22)]
    values = [""] * 7 + [total] + [""] * 5 + ["0"]
    return compute_call_cost(
        call.format(name),
        json.dumps(dims), json.dumps(types), json.dumps(values),
    )  # fmt: skip


def test_lookups_in_embedding_tables() -> None:
    """Rows, indices and their factors in, bags of floats out; a multiplication and an addition."""
    one = lookup("rowwise_adagrad")
    assert isinstance(one, Cost)
    assert one.bytes == 10 * 16 * 2 + 10 * 8 + 5 * 8 + 10 * 4 + 4 * 16 * 4
    assert (one.flops, one.assumed) == (2 * 10 * 16, None)
    assert lookup("adagrad", "16") == one, "the width as a recorded value"
    assert lookup("adagrad") == "shapes incomplete"
    two = lookup("rowwise_adagrad", "48", 2)
    assert isinstance(two, Cost) and two.assumed
    assert two.bytes == 10 * 24 * 2 + 10 * 8 + 9 * 8 + 10 * 4 + 8 * 24 * 4
    often = lookup("rowwise_adagrad", many=1000)
    assert isinstance(often, Cost)
    assert often.bytes == 20 * 16 * 2 + 1000 * 8 + 5 * 8 + 1000 * 4 + 4 * 16 * 4, "no row twice"


@pytest.mark.parametrize(
    ("optimizer", "numbers"),
    [
        ("sgd", 0),
        ("adagrad", 160),  # one of each element of ten rows of 16
        ("rowwise_adagrad", 10),
        ("rowwise_weighted_adagrad", 10),
        ("adam", 320),
        ("partial_rowwise_adam", 170),  # its first moment is of elements, its second of rows
        ("lamb", 320),
    ],
)
def test_gradients_of_bags_update_rows_and_the_optimizers_state(
    optimizer: str, numbers: int
) -> None:
    """Gradients and indices in; rows and numbers of the state read and written."""
    work = lookup(optimizer, "16", call=BACKWARD)
    assert isinstance(work, Cost)
    assert work.bytes == 4 * 16 * 4 + 10 * 8 + 5 * 8 + 2 * 160 * 2 + 2 * numbers * 4
    assert work.flops == 10 * 16 + 4 * 160


def test_what_surrounds_embedding_tables() -> None:
    floats = ["float", ""]
    permuted = of(
        "fbgemm::permute_2D_sparse_data", [[6], [4, 8], [40], [], []],
        types=["int", "int", "long", "", ""],
    )  # fmt: skip
    assert permuted.bytes == 2 * (32 * 4 + 40 * 8) * 6 // 4 and permuted.assumed
    assert of("fbgemm::permute_pooled_embs_auto_grad", [[8, 16]], types="float").bytes == 2 * 512
    narrow = of("fbgemm::FloatToFP8RowwiseQuantized", [[4, 256], []], types=floats)
    assert narrow.bytes == 4 * 256 * 4 + 4 * 264
    wide = of("fbgemm::FP8RowwiseQuantizedToFloat", [[4, 264], []], types=["unsigned char", ""])
    assert wide.bytes == narrow.bytes
    assert of("fbgemm::FloatToHFP8Quantized", [[64], []], types=floats).bytes == 64 * 5


@pytest.mark.parametrize(("pooling", "bags"), [(0, 12), (1, 12), (2, 50), (None, 12)])
@pytest.mark.parametrize("weighted", [True, False])
def test_a_dense_lookup_has_its_arguments_elsewhere(
    pooling: int | None, bags: int, weighted: bool
) -> None:
    """dev_weights, weights_offsets, D_offsets, total_D, max_D, hash_size_cumsum,
    total_hash_size_bits, indices, offsets, pooling_mode, indice_weights, …: three tables of rows
    of 8, 50 indices in 12 bags."""
    dims = [[1000], [3], [4], [], [], [4], [], [50], [13], [], [50] if weighted else [], []]
    long, single = "long int", "float"
    types = [single, long, "int", "", "", long, "", long, long, "", single if weighted else "", ""]
    values = ["", "", "", "24", "10", "", "9", "", "", "" if pooling is None else str(pooling), ""]
    work = of("fbgemm::dense_embedding_codegen_lookup_function", dims, types=types, values=values)
    assert work.flops == 50 * 8 * (2 if weighted else 1)
    read = 4 * 50 * 8 + 8 * 50 + 8 * 13 + (4 * 50 if weighted else 0)
    assert work.bytes == read + 4 * bags * 8
    assert work.assumed == "rows of mean width"


def test_a_lookup_reads_no_more_than_the_table() -> None:
    """One table of 100 elements in rows of 8: of 50 indices no row is read twice."""
    dims = [[100], [1], [2], [], [], [2], [], [50], [13], [], [], []]
    long = "long int"
    types = ["float", long, "int", "", "", long, "", long, long, "", "", ""]
    values = ["", "", "", "8", "8", "", "9", "", "", "0", ""]
    work = of("fbgemm::dense_embedding_codegen_lookup_function", dims, types=types, values=values)
    assert work.bytes == 4 * 100 + 8 * 50 + 8 * 13 + 4 * 12 * 8
    assert work.assumed is None
