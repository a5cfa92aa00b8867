"""What rows of GPU activities may stand for, in every question and every face."""

from typing import Literal, get_args

By = Literal["kernel", "family", "op", "shape", "module", "source", "stream", "phase"]
BySizes = Literal["shape", By]  # where calls of one size are what a question is about first
WORDS: tuple[By, ...] = get_args(By)
