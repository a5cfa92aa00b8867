"""`htk` and `python -m htk`."""

import sys


def main(argv: list[str] | None = None) -> None:
    from htk.cli import run

    sys.exit(run(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    main()
