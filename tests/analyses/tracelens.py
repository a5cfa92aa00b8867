"""Public traces with reports of TraceLens, which tests compare with."""

import csv
from pathlib import Path

REFERENCES = (
    "h100/Falconsai_nsfw_image_detection__1016002",
    "h100/Qwen_Qwen1.5-0.5B-Chat__1016005",
    "h100/facebook_timesformer-base-finetuned-k400__1016002",
    "h100/gaunernst_bert-small-uncased__1016001",
    "mi300/Falconsai_nsfw_image_detection__1016002",
    "mi300/Qwen_Qwen1.5-0.5B-Chat__1016005",
    "mi300/facebook_timesformer-base-finetuned-k400__1016002",
    "mi300/gaunernst_bert-small-uncased__1016001",
    "torch_compile_triton/trace",
)


def report(folder: Path, name: str, sheet: str) -> list[dict[str, str]]:
    """A sheet of the report on one of the traces."""
    with open(folder / f"{name}_perf_report_csvs/{sheet}.csv", newline="") as file:
        return list(csv.DictReader(file))
