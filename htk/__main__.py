"""`htk` and `python -m htk`."""

import sys
import warnings
from typing import Any


def main(argv: list[str] | None = None) -> None:
    from htk.cli.main import run

    warnings.formatwarning = _one_line
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def _one_line(message: Warning | str, *_: Any, **__: Any) -> str:
    return f"htk: {' '.join(str(message).split())}\n"


if __name__ == "__main__":
    main()
