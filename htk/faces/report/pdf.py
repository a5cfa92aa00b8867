"""A report as PDF: its page, printed by a Chromium that is there already."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from htk.base.errors import HtkError, UsageError

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_SECONDS = 120


def find_chromium() -> str:
    """Return where Chromium is."""
    configured = os.environ.get("HTK_CHROMIUM")
    browser = configured or next((path for name in _NAMES if (path := shutil.which(name))), None)
    if browser is None or not Path(browser).exists():
        raise UsageError(
            "PDF needs Chromium, and none was found: install it or set HTK_CHROMIUM to it, "
            "or write --format html and print that from a browser"
        )
    return browser


def print_to_pdf(html: str, output: Path) -> None:
    """Print a page to a file."""
    browser = find_chromium()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        pdf = Path(folder) / "report.pdf"
        page.write_text(html, encoding="utf-8")
        command = [
            browser,
            "--headless=new",
            "--disable-gpu",
            "--no-pdf-header-footer",
            f"--user-data-dir={folder}/profile",
            "--virtual-time-budget=20000",
            f"--print-to-pdf={pdf}",
            page.as_uri(),
        ]
        if hasattr(os, "geteuid") and os.geteuid() == 0:  # Chromium's sandbox refuses root
            command.insert(1, "--no-sandbox")
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise HtkError(f"Chromium did not print within {_SECONDS} s") from None
        if not pdf.exists():
            why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise HtkError(f"Chromium printed nothing: {why}")
        shutil.copyfile(pdf, output)
