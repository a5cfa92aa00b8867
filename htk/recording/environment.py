"""What is recorded of the job around a recording: its Slurm or Kubernetes names, and its commit.

Only what is listed here is read, so that no secret of the environment gets into a file. The commit
is read from the files of Git's folder; nothing is run, and whether files were changed since is not
known.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from htk.base.schema.environment_facts import ENVIRONMENT_KEY, FACTS, MOST_LENGTH

_MOST_BYTES = 4 << 20  # of a file of Git's
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_REFERENCE = re.compile(r"ref: (refs/[\w./\-]{1,180})")


def recorded_environment(
    variables: Mapping[str, str] | None = None, folder: Path | None = None
) -> dict[str, str]:
    """Return the facts on the job: of these variables, and of the repository round a folder."""
    environment = os.environ if variables is None else variables
    facts = {
        fact: value
        for fact, names in FACTS.items()
        if (
            value := next(
                (_keep_printable(environment[n]) for n in names if environment.get(n)), ""
            )
        )
    }
    if "git_commit" not in facts:
        facts = _read_git(folder or Path.cwd()) | facts
    return facts


def _keep_printable(value: str) -> str:
    """Return the value without what does not print, of a bounded length."""
    return "".join(c for c in value if c.isprintable())[:MOST_LENGTH]


def _read_git(start: Path) -> dict[str, str]:
    """Return commit and branch of the repository that a folder lies in, if it is one."""
    try:
        folder = next((d / ".git" for d in (start, *start.parents) if (d / ".git").exists()), None)
        if folder is None:
            return {}
        if folder.is_file():  # a work tree, or a submodule
            folder = folder.parent / _read_content(folder).removeprefix("gitdir:").strip()
        head = _read_content(folder / "HEAD").strip()
        if _COMMIT.fullmatch(head):
            return {"git_commit": head}
        match = _REFERENCE.fullmatch(head)
        commit = _commit_of(folder, match[1]) if match else ""
        if not match or not commit:
            return {}
        return {"git_commit": commit, "git_branch": match[1].removeprefix("refs/heads/")}
    except (OSError, ValueError):
        return {}


def _commit_of(folder: Path, reference: str) -> str:
    """Return the commit of a reference; work trees share the references of their repository."""
    common = folder / "commondir"
    folders = [folder, *([folder / _read_content(common).strip()] if common.is_file() else [])]
    for each in folders:
        if (each / reference).is_file():
            commit = _read_content(each / reference).strip()
            return commit if _COMMIT.fullmatch(commit) else ""
    packed = folders[-1] / "packed-refs"
    lines = _read_content(packed).splitlines() if packed.is_file() else []
    named = (line.split(" ", 1) for line in lines if line.endswith(f" {reference}"))
    return next((words[0] for words in named if _COMMIT.fullmatch(words[0])), "")


def _read_content(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_MOST_BYTES)


def environment_recorded(profile: Any) -> Any:
    """Return torch's profiler (the class) that writes these facts into each file."""

    class ProfileWithEnvironment(profile):  # type: ignore[misc]
        def start_trace(self) -> None:
            super().start_trace()
            facts = recorded_environment()
            if facts:
                self.add_metadata_json(ENVIRONMENT_KEY, json.dumps(facts))

    return ProfileWithEnvironment
