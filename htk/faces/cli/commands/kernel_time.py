"""`htk kernel-time`: how long a described kernel takes on a GPU, or each kernel of a file."""

from typing import Any

import click

from htk.base.errors import UsageError
from htk.faces.cli.commands.common import gpu_file_option, writing_options


@click.command("kernel-time")
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option("--gpu", help="GPU of the hardware catalogue: h100.")
@click.option("--op", help="matmul, attention_prefill, attention_decode, experts, all_reduce, …")
@click.option("--precision", help="Type of matrix products, keys and values; by default bf16.")
@click.option("--m", help="Rows of a product; tokens of experts.")
@click.option("--n", help="Columns of a product; width of each expert.")
@click.option("--k", help="Depth of a product; hidden width of experts.")
@click.option("--batch", help="Sequences of attention.")
@click.option("--seq", help="Tokens per sequence: of a prompt, or cached where one is decoded.")
@click.option("--heads", help="Attention heads of queries.")
@click.option("--kv-heads", help="Key-value heads on this GPU.")
@click.option("--head-dim", help="Width of a head.")
@click.option("--window", help="Tokens that attention looks back; by default all.")
@click.option("--experts", help="Experts per layer.")
@click.option("--topk", help="Experts of a token; by default one product of groups of rows.")
@click.option("--tp", help="GPUs that share each expert.")
@click.option("--ep", help="GPUs that share out the experts.")
@click.option("--distribution", help="Of tokens over experts: balanced, power_law.")
@click.option("--elements", help="Elements of a collective's message.")
@click.option("--ranks", help="GPUs of a collective, within a node.")
@gpu_file_option
@writing_options
def command(file: str | None, form: str, output: str | None, limit: int, **sizes: Any) -> None:
    """How long does a kernel of this size take on this GPU?

    Of one kernel, by options, or of each row of a CSV file whose columns are named as the options
    (kv_heads, head_dim). Options stand in for columns that the file does not have. Times are of the
    kernel alone, as a trace shows it.
    """
    from htk.answers.output.render import write_result
    from htk.verdicts.claims.kernel_question import time_kernel

    described = {name: value for name, value in sizes.items() if value is not None}
    answer = time_kernel(file, **described)
    if file is None and answer.coverage["unanswered"]:
        raise UsageError(f"kernel-time: {answer['basis'][0]}")
    write_result(answer, form, output, limit=limit)
