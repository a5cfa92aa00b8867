"""Dashboard and agents' server under many clients while files come, change and go.

    python bench/soak.py [--minutes 30] [--clients 20] [-o FILE]

Both servers look at one folder of simulated runs. Clients ask for pages, exports, timelines, SQL
and tools without pause; beside them runs are added, written anew, cut short and removed. No server
may end, no answer be a server's error, and memory must be flat: what a server holds in the last
quarter is less than a quarter above what it held in the second. Ends with 1 otherwise.
"""

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job

ROOT = Path(__file__).parents[1]
JOB = Config("gpt3-126m", layers=2, gpus_per_node=2, seq=128, steps=2, stacks=False)
QUESTIONS = ("kernel_top", "time_breakdown", "comm_summary", "idle_breakdown", "op_breakdown")
FOLDER = "runs"
GROWTH = 1.25  # from the second quarter to the last
SETTLING_MIB = 150  # caches that are filled late


class Server:
    """A server of htk, and the address that it prints."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "htk", *command], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr
        address = re.search(r"http://\S+", self.process.stderr.readline())
        assert address, "no address printed"
        self.address = address[0]
        # What it says is read on, or it would wait for a reader.
        self.said: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.said = [*self.said[-200:], line]

    @property
    def mib(self) -> float:
        """Resident memory, with the processes that it started."""
        pids, pages = [self.process.pid], 0
        for pid in pids:
            folder = Path("/proc") / str(pid)
            try:
                pages += int((folder / "statm").read_text().split()[1])
                for task in (folder / "task").iterdir():
                    pids += [int(child) for child in (task / "children").read_text().split()]
            except OSError:  # it has ended meanwhile
                continue
        return pages * 4096 / 2**20

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


class Clients:
    """Threads that ask until they are told to stop."""

    def __init__(self, dashboard: str, agents: str, runs: list[str]) -> None:
        self.dashboard, self.agents, self.runs = dashboard, agents, runs
        self.answers: Counter[str] = Counter()
        self.errors: list[str] = []
        self.stop = threading.Event()

    def run(self, seed: int) -> None:
        """One client: a browser's cookies, and a session of the agents' protocol."""
        client = Client(self.dashboard, self.agents, self.runs, random.Random(seed))
        while not self.stop.is_set():
            name, request = client.next()
            try:
                with client.open(request, timeout=120) as response:
                    body = response.read()
                failed = b'"isError":true' in body.replace(b" ", b"")
                self.answers[f"{name} {'refused' if failed else response.status}"] += 1
            except urllib.error.HTTPError as error:
                self.answers[f"{name} {error.code}"] += 1
                if error.code >= 500:
                    answer_text = error.read()[:200]
                    self.errors.append(f"{request.full_url}: {error.code} {answer_text!r}")
            except OSError as error:
                if not self.stop.is_set():
                    self.errors.append(f"{request.full_url}: {error}")


class Client:
    """What one of them asks next."""

    def __init__(self, dashboard: str, agents: str, runs: list[str], dice: random.Random) -> None:
        self.base, self.agents, self.runs, self.dice = (
            dashboard.partition("?")[0],
            agents,
            runs,
            dice,
        )
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        self.open = opener.open
        self.open(dashboard).close()  # the link's token becomes a cookie
        with self.open(f"{self.base}_dash-dependencies") as response:
            calls = json.load(response)
        self.frame = next(c for c in calls if "page.children" in c["output"])
        self.session: dict[str, str] = {}
        info = {"clientInfo": {"name": "soak", "version": "1"}, "capabilities": {}}
        hello = self._message("initialize", {"protocolVersion": "2025-06-18", **info})
        with self.open(hello) as response:
            self.session = {"mcp-session-id": response.headers["mcp-session-id"]}
        self.open(self._message("notifications/initialized", None)).close()

    def next(self) -> tuple[str, urllib.request.Request]:
        return self.dice.choice((self._page, self._export, self._timeline, self._tool))()

    def _page(self) -> tuple[str, urllib.request.Request]:
        """A page with its frame, which opens the run that the address names."""
        page = self.dice.choice(("/", "/kernels", "/communication", "/idle", "/kernel_top", "/sql"))
        values = {"pathname": page, "search": f"?run={self._key()}", "data": None}
        parts = {
            part: [{**spec, "value": values.get(spec["property"])} for spec in self.frame[part]]
            for part in ("inputs", "state")
        }
        outputs = [part.rsplit(".", 1) for part in self.frame["output"].strip(".").split("...")]
        body = {
            "output": self.frame["output"],
            "outputs": [{"id": name, "property": kind} for name, kind in outputs],
            "changedPropIds": [],
            "parsedChangedPropsIds": [],
            **parts,
        }
        address = f"{self.base}_dash-update-component"
        headers = {"content-type": "application/json", "origin": self.base.rstrip("/")}
        return "page", urllib.request.Request(address, json.dumps(body).encode(), headers)

    def _export(self) -> tuple[str, urllib.request.Request]:
        question = self.dice.choice(QUESTIONS)
        return "export", urllib.request.Request(
            f"{self.base}export/{question}.csv?run={self._key()}"
        )

    def _timeline(self) -> tuple[str, urllib.request.Request]:
        start = self.dice.random() * 1e6
        view = {"start": start, "end": start + 10 ** self.dice.uniform(4, 8), "width": 900}
        query = urllib.parse.urlencode({**view, "run": self._key()})
        return "timeline", urllib.request.Request(f"{self.base}timeline/view?{query}")

    def _key(self) -> str:
        """How the dashboard names a run: by the folder that it was given, and what is in it."""
        return f"{FOLDER}/{self.dice.choice(self.runs)}"

    def _tool(self) -> tuple[str, urllib.request.Request]:
        asked = {
            "name": self.dice.choice(QUESTIONS),
            "arguments": {"path": self.dice.choice(self.runs)},
        }
        return "tool", self._message("tools/call", asked)

    def _message(self, method: str, params: object) -> urllib.request.Request:
        body: dict[str, object] = {"jsonrpc": "2.0", "method": method}
        body |= {"params": params} if params is not None else {}
        body |= {} if method.startswith("notifications") else {"id": self.dice.randrange(10**9)}
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **self.session,
        }
        return urllib.request.Request(self.agents, json.dumps(body).encode(), headers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("-o", "--output", type=Path, help="where the figures are written as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = soak(Path(folder), options.minutes, options.clients)
    print(json.dumps(figures, indent=1))
    if options.output:
        options.output.write_text(json.dumps(figures, indent=1) + "\n")
    return int(not figures["held"])


def soak(folder: Path, minutes: float, clients: int) -> dict[str, Any]:
    """Return what was answered, what went wrong and what the servers held."""
    store, runs = folder / "job", folder / FOLDER
    simulate_job(check_config(JOB), store)
    names = [f"run{k}" for k in range(5)]
    for name in names[:3]:
        shutil.copytree(store, runs / name)
    dashboard = Server("dashboard", str(runs), "--no-browser", "--port", "0")
    agents = Server("mcp", str(runs), "--http", str(free_port()))
    wait_for(agents.address)
    asking = Clients(dashboard.address, agents.address, names)
    held: dict[str, list[float]] = {"dashboard": [], "mcp": []}
    try:
        threads = [threading.Thread(target=asking.run, args=(k,)) for k in range(clients)]
        for thread in threads:
            thread.start()
        changes, until = 0, time.monotonic() + 60 * minutes
        dice = random.Random(1)
        while time.monotonic() < until:
            change(runs / dice.choice(names), store, dice)
            changes += 1
            held["dashboard"].append(dashboard.mib)
            held["mcp"].append(agents.mib)
            time.sleep(min(2.0, minutes))
        asking.stop.set()
        for thread in threads:
            thread.join()
        ended = [s.process.poll() for s in (dashboard, agents)] != [None, None]
    finally:
        asking.stop.set()
        dashboard.end()
        agents.end()
    flat = all(is_flat(values) for values in held.values())
    return {
        "minutes": minutes,
        "clients": clients,
        "answers": dict(sorted(asking.answers.items())),
        "changes": changes,
        "refused": sum(n for kind, n in asking.answers.items() if kind[-3:] not in ("200", "204")),
        "errors": len(asking.errors),
        "first_errors": asking.errors[:5],
        "tracebacks": sum("Traceback" in line for s in (dashboard, agents) for line in s.said),
        "mib": {name: [round(v) for v in quarters(values)] for name, values in held.items()},
        "held": flat and not ended and not asking.errors,
    }


def change(run: Path, store: Path, dice: random.Random) -> None:
    """A run is added or written anew, one of its files is cut short, or all of it goes."""
    how = dice.choice(("anew", "anew", "cut", "gone"))
    if how == "anew":
        shutil.copytree(store, run, dirs_exist_ok=True)
    elif how == "cut" and run.is_dir():
        file = dice.choice(sorted(file for file in run.iterdir() if file.is_file()))
        file.write_bytes(file.read_bytes()[: dice.randrange(1, file.stat().st_size + 2)])
    elif how == "gone":
        shutil.rmtree(run, ignore_errors=True)


def quarters(values: list[float]) -> list[float]:
    """Return the most that was held in each quarter of the time."""
    size = max(len(values) // 4, 1)
    return [max(values[k * size : (k + 1) * size], default=0.0) for k in range(4)]


def is_flat(values: list[float]) -> bool:
    _, second, _, last = quarters(values)
    return last <= GROWTH * second + SETTLING_MIB


def free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def wait_for(address: str) -> None:
    """Until something answers there, whatever it says."""
    for _ in range(600):
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
