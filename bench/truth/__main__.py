"""Hold every answer about one GPU to random recordings.

usage: python -m bench.truth [--first SEED] [--seeds N]
"""

import argparse
import os
import tempfile
from collections import Counter
from pathlib import Path

from bench.truth.compare import differences, selected_differences
from bench.truth.made import make_recording


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=20, help="random recordings")
    arguments = parser.parse_args()
    compared, different = 0, 0
    by_question: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HTK_CACHE_DIR"] = folder
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            path = Path(folder) / f"{seed}.json"
            values, differing = differences(make_recording(seed, path), path)
            selected, of_selections = selected_differences(path)
            path.unlink()
            compared += values + selected
            differing += of_selections
            different += bool(differing)
            by_question.update(line.partition(":")[0].partition(" (")[0] for line in differing)
            for line in differing:
                print(f"seed {seed}: {line}", flush=True)
    for question, count in by_question.most_common():
        print(f"{count:6} {question}")
    print(f"{arguments.seeds} recordings, {compared:,} values, {different} recordings differ")
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
