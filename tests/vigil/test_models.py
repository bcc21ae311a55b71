"""An app that asks a model, on real servers: the model's is a process of its own, too."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import httpx2

from tests.vigil.program import LOOK_S, ROOT

ANSWERS = """
from vigil.testing import HangingAnswer, TextAnswer

asked = []


def answer(request):
    asked.append(request)
    return HangingAnswer() if len(asked) == 1 else TextAnswer("rotate the logs")
"""

APP = """
from vigil import Actor, App, ConvergeResult, Model, event

adviser = Actor("adviser")


@adviser.expectation(on=event("disk.full"), subject_key="host")
async def somebody_helps(ctx, trigger):
    advice = await ctx.synthesize({"disk of": trigger.payload["host"]})
    return ConvergeResult(summary=advice)


app = App(actors=[adviser], synthesizer=Model("openai-chat:small", instructions="Help."))
"""

LEASE_S = "2"


@contextmanager
def model_server(folder):
    (folder / "answers.py").write_text(ANSWERS)
    command = [sys.executable, "-m", "vigil.testing.model_server", "--script", "answers:answer"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(ROOT)}
    ) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def ledger(url: str, *, requests: int) -> dict:
    """Return the ledger of a server of models once there were so many requests."""
    while (said := httpx2.get(f"{url}/ledger").json())["requests"] < requests:
        threading.Event().wait(LOOK_S)
    return said


def test_a_model_is_asked_again_under_the_same_key_when_a_node_dies(connected, tmp_path):
    (tmp_path / "advice.py").write_text(APP)
    with model_server(tmp_path) as url:
        node = ("node", "--app", "advice:app", "--log", "json")
        given = {
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "test",
            "VIGIL_LEASE_S": LEASE_S,
        }
        with connected.running(*node, **given) as first:
            first.wait_said('"event": "node up"')
            connected.run("publish", "disk.full", '{"host": "web-1"}', "--id", "one")
            ledger(url, requests=1)
            first.stop(signal.SIGKILL)
        with connected.running(*node, **given):
            (episode,) = connected.wait_for(
                "episodes", "list", "--status", "done", until=lambda rows: len(rows) == 1
            )
        said = ledger(url, requests=2)

    assert episode["summary"] == "rotate the logs"
    keys = {each["request"]["idempotency_key"] for each in said["calls"]}
    assert (said["requests"], len(keys)) == (2, 1)
    assert said["calls"][1]["request"]["system"].startswith("Help.")
