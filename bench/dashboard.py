"""Twenty people clicking through the dashboard for a minute: how long they wait, what it holds.

    python bench/dashboard.py [TRACE] [--users 20] [--seconds 60]

Starts `htk dashboard TRACE` (default: the 8-rank sample), visits every page once so that answers
are kept, then measures what one person sees (dashboard_browser.py), and lets simulated people open
pages, with all their parts, change filters among a few and move through the timeline, each with a
pause of half a second to two between clicks. Prints one JSON object: ms until things are drawn,
requests, failures, median and p95 in ms of each kind of request, and the server's memory before and
after. Needs locust, psutil and playwright.
"""

import argparse
import json
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gevent
import psutil
from locust import HttpUser, between, events, task
from locust.env import Environment

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "sample_traces/simulated/llama2-7b"
SEARCHES = ("", "?ranks=4", "?steps=12")
PAGES = ("", "kernels", "operators", "communication", "memory", "idle", "kernel_top", "step_times")


class Visitor(HttpUser):
    """Somebody who opens pages, and everything on them."""

    wait_time = between(0.5, 2)
    frame = part = ""  # callbacks by their outputs

    def on_start(self) -> None:
        self.client.get("/", name="app")
        calls = self.client.get("/_dash-dependencies", name="app").json()
        outputs = [call["output"] for call in calls]
        self.frame = next(o for o in outputs if "page.children...menu" in o)
        self.part = next(o for o in outputs if '"type":"part"' in o)

    @task(6)
    def page(self) -> None:
        self.see(random.choice(PAGES), random.choice(SEARCHES))

    @task(3)
    def timeline(self) -> None:
        start = random.random() * 5e8
        end = start + 10 ** random.uniform(5, 9)
        self.client.get(f"/timeline/view?start={start}&end={end}&width=1400", name="timeline")

    @task(1)
    def export(self) -> None:
        self.client.get("/export/kernel_top.csv", name="export")

    def see(self, path: str, search: str) -> None:
        frame = self.call(self.frame, _frame_inputs(path, search), [], "page")
        if frame is None:
            return
        where = [_value("address", "pathname", f"/{path}"), _value("address", "search", search)]
        parts = [p for p in _parts(frame) if p["page"] == (path or "overview")]
        for panel in parts:
            outputs = [{"id": panel, "property": prop} for prop in ("children", "isAnswered")]
            inputs = [{"id": panel, "property": "isWanted", "value": True}]
            whose = {"id": panel, "property": "id", "value": panel}
            state = [whose, *where, _value("dark", "data", False)]
            self.call(self.part, inputs, state, "part", outputs)

    def call(
        self, output: str, inputs: list[Any], state: list[Any], name: str, target: Any = None
    ) -> Any:
        body = {
            "output": output,
            "outputs": target or _outputs(output),
            "inputs": inputs,
            "changedPropIds": [],
            "parsedChangedPropsIds": [],
            "state": state,
        }
        answer = self.client.post("/_dash-update-component", json=body, name=name)
        return answer.json() if answer.ok else None


def _frame_inputs(path: str, search: str) -> list[Any]:
    return [
        _value("address", "pathname", f"/{path}"),
        _value("address", "search", search),
        _value("dark", "data", False),
        _value("again", "data", None),
        _value("followed", "data", None),
    ]


def _value(name: str, prop: str, value: object) -> dict[str, Any]:
    return {"id": name, "property": prop, "value": value}


def _outputs(output: str) -> list[dict[str, str]]:
    pairs = [output_name.rsplit(".", 1) for output_name in output.strip(".").split("...")]
    return [{"id": name, "property": prop} for name, prop in pairs]


def _parts(value: Any) -> list[dict[str, str]]:
    """The places of a page that are filled one by one."""
    if isinstance(value, list):
        return [part for each in value for part in _parts(each)]
    if not isinstance(value, dict):
        return []
    own = [value] if value.get("type") == "part" and "part" in value else []
    return own + [part for each in value.values() for part in _parts(each)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", nargs="?", default=str(SAMPLE))
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=60)
    arguments = parser.parse_args()
    port = free_port()
    host = f"http://127.0.0.1:{port}"
    options = ["--no-browser", "--no-token"]
    command = [sys.executable, "-m", "htk", "dashboard", arguments.trace, *options]
    server = subprocess.Popen([*command, "--port", str(port)], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        Visitor.host = host
        warm(host)
        seen = in_browser(host)
        before = held(server.pid)
        env = Environment(user_classes=[Visitor], events=events, host=host)
        runner = env.create_local_runner()
        runner.start(arguments.users, spawn_rate=5)
        gevent.sleep(arguments.seconds / 2)
        middle = held(server.pid)
        gevent.sleep(arguments.seconds / 2)
        runner.quit()
        after = held(server.pid)
        users = {"users": arguments.users, **report(env, before, middle, after)}
        print(json.dumps({"browser": seen, "users": users}, indent=2))
        return int(env.stats.total.num_failures > 0)
    finally:
        server.terminate()
        server.wait(10)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    """Until the server listens; a minute at most."""
    for _ in range(120):
        with socket.socket() as probe:
            if not probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.5)
    raise SystemExit("the dashboard did not start")


def warm(host: str) -> None:
    """Every page under every filter once: what is measured is what is kept."""
    env = Environment(user_classes=[Visitor], host=host)
    visitor = Visitor(env)
    visitor.on_start()
    for path in PAGES:
        for search in SEARCHES:
            visitor.see(path, search)
    visitor.timeline()
    time.sleep(1)


def in_browser(host: str) -> dict[str, Any]:
    """Return what one person sees, in a process whose sockets locust has not changed."""
    script = Path(__file__).with_name("dashboard_browser.py")
    done = subprocess.run([sys.executable, str(script), host], stdout=subprocess.PIPE, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def held(pid: int) -> float:
    """MB of memory of the server."""
    return round(psutil.Process(pid).memory_info().rss / 1e6, 1)


def report(env: Environment, before: float, middle: float, after: float) -> dict[str, Any]:
    total = env.stats.total
    return {
        "requests": total.num_requests,
        "failures": total.num_failures,
        "requests_a_second": round(total.total_rps, 1),
        "p50_ms": total.get_response_time_percentile(0.5),
        "p95_ms": total.get_response_time_percentile(0.95),
        "by_kind": {
            name: {
                "requests": entry.num_requests,
                "p50_ms": entry.get_response_time_percentile(0.5),
                "p95_ms": entry.get_response_time_percentile(0.95),
            }
            for (name, _), entry in sorted(env.stats.entries.items())
        },
        "memory_mb": {"before": before, "half_way": middle, "after": after},
    }


if __name__ == "__main__":
    raise SystemExit(main())
