"""The example of `vigil.testing`, under `vigil up` and with a real service that fails at first."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.testing.test_service_is_up import EXAMPLE

FETCH = """
    async with httpx.AsyncClient() as client:
        answer = await client.get(url)
        return answer.raise_for_status().json()
"""
RESTART = """
    async with httpx.AsyncClient() as client:
        given = {"Idempotency-Key": ctx.idempotency_key}
        answer = await client.post(f"http://{service}/restart", headers=given)
        return answer.raise_for_status().text
"""


def example() -> str:
    """Return the example with code in its tools, and a sleep that a test can wait for."""
    text = "import httpx\n" + EXAMPLE
    for elided, becomes in [
        ("-> dict: ...", f"-> dict:{FETCH}"),
        ("-> str: ...          # ctx.idempotency_key", f"-> str:{RESTART}"),
        ("ctx.sleep(30)", "ctx.sleep(6)"),  # Still too long for a node to keep the episode.
    ]:
        assert text.count(elided) == 1
        text = text.replace(elided, becomes)
    return text


class Service(BaseHTTPRequestHandler):
    """Refuses the first request of each page, and keeps what it is asked."""

    asked: Counter[str]
    keys: list[str]

    def do_GET(self) -> None:
        self.asked[self.path] += 1
        if self.asked[self.path] == 1:
            return self._answer(503, b"not now")
        return self._answer(200, json.dumps({"page": self.path}).encode())

    def do_POST(self) -> None:
        self.asked[self.path] += 1
        self.keys.append(self.headers["Idempotency-Key"])
        self._answer(200, b"restarted")

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(service: type[Service]) -> Iterator[str]:
    """Yield where `service` is."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), service)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_service_that_fails_is_looked_at_and_restarted_once_it_is_approved(vigil, tmp_path):
    (tmp_path / "service_is_up.py").write_text(example())
    service = type("Failing", (Service,), {"asked": Counter(), "keys": []})
    with serving(service) as place, vigil.running("up", "--app", "service_is_up:app") as up:
        up.wait_said("node up")
        probe = json.dumps({"service": place})
        assert vigil.run("publish", "probe.failed", probe).returncode == 0
        (asks,) = vigil.wait_for("inbox", until=bool)
        assert (asks["approvers"], service.keys) == (["ops"], [])
        stranger = vigil.run("episodes", "approve", asks["id"], "--yes", "--by", "zoe")
        assert "'zoe' is none of those who may decide: ops" in stranger.stderr
        done = vigil.run("episodes", "approve", asks["id"], "--yes", "--by", "ops")
        assert done.returncode == 0, done.stderr
        (found,) = vigil.wait_for("findings", "list", until=bool)
        (ended,) = vigil.wait_for("episodes", "list", "--status", "done", until=bool)
        steps = vigil.ask("episodes", "steps", asks["id"])
        assert up.stop(signal.SIGTERM) == 0

    assert (found["finding_key"], found["severity"]) == (f"service:down:{place}", "high")
    assert ended["episode_id"] == asks["id"]
    assert service.asked == {"/a": 2, "/b": 2, "/restart": 1}
    assert service.keys[0].startswith(asks["id"])
    assert Counter(step["error_class"] for step in steps)["tool_unavailable"] == 2
