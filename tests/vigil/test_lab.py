"""`vigil lab`: recorded episodes with the code of today, from a stack and from files."""

from __future__ import annotations

import json

import pytest

from tests.vigil.program import NOWHERE, RUN_S_MAX
from tests.vigil.test_command_line import one_line
from tests.vigil.warm import run_warm

APP = '''
"""An agent that looks into disks."""

from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from vigil import Actor, App, Budget, ConvergeResult, event, raise_finding


def model(messages, info):
    host = messages[0].parts[0].content
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("disk", {"host": host}, "call-1")])
    if messages[-1].instructions == "be careful" and host.startswith("batch"):
        return ModelResponse([TextPart("fine")])
    return ModelResponse([TextPart(str(messages[-1].parts[0].content))])


agent = Agent(FunctionModel(model, model_name="disks"), name="triage", instructions="PROMPT")


@agent.tool_plain
async def disk(host: str) -> str:
    """Look at the disk of a host."""
    with Path("looked").open("a") as file:
        file.write("x")
    return "full"


desk = Actor("desk")


@desk.expectation(on=event("host.seen"), budget=Budget(turns=20, tokens=0))
async def has_room(ctx, trigger):
    host = trigger.payload["host"]
    said = (await ctx.agent(agent, host)).output
    found = [raise_finding(f"disk:{host}", class_="disk_full", severity="high")]
    return ConvergeResult(
        classification={"disk": said}, findings=found if said == "full" else []
    )


app = App(actors=[desk])
'''

OF_STACK = ("--actor", "desk", "--expectation", "has_room")


def run_tests(vigil, folder):
    return run_warm(
        ("-q", "-p", "no:cacheprovider", folder),
        folder=vigil.folder,
        environ=vigil.environ,
        stdin=b"",
        most_s=RUN_S_MAX,
        program="pytest",
    )


@pytest.fixture
def prompted(tmp_path):
    """Write the app with another prompt."""
    return lambda prompt: (tmp_path / "desk.py").write_text(APP.replace("PROMPT", prompt))


@pytest.fixture
def episodes(connected, prompted):
    """The ids of three episodes that have ended, one of them of a batch host."""
    prompted("be brief")
    with connected.running("node", "--app", "desk:app") as node:
        node.wait_said("node up")
        connected.wait_for("episodes", "list", until=lambda rows: rows == [])
        ids = {}
        for host in ("web-1", "batch-1", "web-2"):
            payload = json.dumps({"host": host})
            done = connected.run("fire", "desk", "has_room", "--payload", payload, "--wait")
            assert done.returncode == 0, done.stderr
            ids[host] = done.stdout.splitlines()[0]
        connected.run("fire", "desk", "has_room", "--payload", payload, "--wait", "--dry-run")
        yield ids


def test_the_last_episodes_of_an_actor_are_run_and_what_differs_is_told_and_exported(
    connected, episodes, prompted, tmp_path
):
    looked = (tmp_path / "looked").read_text()
    same = connected.run("lab", "--app", "desk:app", *OF_STACK)
    assert same.returncode == 0, same.stderr
    assert same.stdout.startswith("3 episodes, none differs; 0 requests made; ")

    prompted("be careful")
    done = connected.run("lab", "--app", "desk:app", *OF_STACK, "--export", "failing", "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert (found["episodes"], found["differing"], found["asked"]) == (3, 1, 6)
    (broken,) = [each for each in found["verdicts"] if not each["is_same"]]
    assert broken["episode_id"] == episodes["batch-1"]
    assert broken["divergence"] == {
        "request": "request 2 of triage", "path": "1.m2.1", "then": "full", "now": "fine"
    }  # fmt: skip
    assert (tmp_path / "looked").read_text() == looked

    files = [f"failing/{episodes['batch-1']}.jsonl", "failing/test_lab.py"]
    assert found["files"] == files
    told = connected.run("lab", "--app", "desk:app", "failing")
    assert told.returncode == 1
    assert "request 2 of triage" in told.stdout
    assert "1 of 1 episodes differs; 2 requests made; " in told.stdout
    for prompt, code in (("be careful", 1), ("be brief", 0)):
        prompted(prompt)
        tried = run_tests(connected, "failing")
        assert tried.returncode == code, tried.stdout.decode()
    newest = connected.ask("lab", "--app", "desk:app", "--actor", "desk", "--last", "1")
    assert [each["episode_id"] for each in newest["verdicts"]] == [episodes["web-2"]]


WRONG = {
    "nothing to run": ((), "give files with histories, or --actor"),
    "both": (("a.jsonl", "--actor", "desk"), "give files with histories, or --actor"),
    "no file": (("a.jsonl",), "a.jsonl: there is no such file"),
    "an empty folder": (("empty",), "empty: there is no history, no *.jsonl, in this folder"),
    "no history": (("bad.jsonl",), "bad.jsonl: line 1: "),
    "no model": (("bad.jsonl", "--model", "nobody:x"), "model nobody:x: Unknown model: nobody:x"),
    "an expectation alone": (
        ("bad.jsonl", "--expectation", "x"),
        "--expectation goes with --actor",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_run_is_a_mistake(vigil, prompted, tmp_path, what):
    prompted("be brief")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.jsonl").write_text("{}\n")
    words, told = WRONG[what]
    done = vigil.run("lab", "--app", "desk:app", *words, **NOWHERE)
    assert told in one_line(done, code=2)


def test_an_actor_without_episodes_is_a_mistake(connected, episodes):
    done = connected.run("lab", "--app", "desk:app", "--actor", "desk", "--expectation", "other")
    assert done.returncode == 2
    assert "desk.other: the stack has no episode of it" in done.stderr


PARTS = '''
"""The tool of an agent that is defined in a file."""

from pathlib import Path

from vigil import Actor, App, manual, tool


@tool
async def disk(host: str) -> str:
    """Look at the disk of a host."""
    with Path("looked").open("a") as file:
        file.write("x")
    return "full"


desk = Actor("desk")


@desk.expectation(on=manual())
async def has_room(ctx, trigger):
    await ctx.call(disk, host="web-1")


app, coded = App(tools=[disk]), App(actors=[desk], tools=[disk])
'''

DEFINED = """
id: desk
expectations:
  has_room:
    on: {manual: true}
    budget: {turns: 20, tokens: 0}
    strategy:
      template: agentic_task
      config:
        agent: {model: test, name: triage, instructions: Look.}
        prompt: How is the disk?
        tools: [disk]
        classes: [CLASS]
"""


@pytest.fixture
def defined(tmp_path):
    """Write a definition whose agent answers with another class; return the file's name."""

    def write(class_, name="desk.yaml"):
        (tmp_path / name).write_text(DEFINED.replace("CLASS", class_))
        return name

    (tmp_path / "parts.py").write_text(PARTS)
    return write


@pytest.fixture
def revisions(connected, defined):
    """The ids of two episodes: of the first revision of a definition, and of the second."""
    ids = []
    with connected.running("node", "--app", "parts:app") as node:
        node.wait_said("node up")
        for class_ in ("full", "filling"):
            applied = connected.run("actors", "apply", defined(class_), "--by", "ann")
            assert applied.returncode == 0, applied.stderr
            done = connected.run("fire", "desk", "has_room", "--wait")
            assert done.returncode == 0, done.stderr
            ids.append(done.stdout.splitlines()[0])
        connected.wait_for(
            "episodes", "list", "--status", "done", until=lambda rows: len(rows) == 2
        )
        yield ids


LAB = ("lab", "--app", "parts:app")


def test_an_actor_that_was_applied_as_a_file_is_run_as_each_episode_began(
    connected, revisions, tmp_path
):
    looked = (tmp_path / "looked").read_text()
    found = connected.ask(*LAB, "--actor", "desk")
    assert [each["episode_id"] for each in found["verdicts"]] == revisions[::-1]
    assert (found["differing"], found["asked"]) == (0, 0)

    again = connected.ask(*LAB, "--actor", "desk", "--ask-all")
    assert (again["differing"], again["asked"]) == (0, 4)
    assert (tmp_path / "looked").read_text() == looked


def test_another_definition_file_is_tried_on_its_episodes_before_it_is_applied(
    connected, revisions, defined, tmp_path
):
    wanted = ("--actor", "desk", "--definition", defined("full", "next.yaml"))
    done = connected.run(*LAB, *wanted, "--export", "failing", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["episodes"], found["asked"]) == (2, 2)
    (broken,) = [each for each in found["verdicts"] if not each["is_same"]]
    assert broken["episode_id"] == revisions[1]
    (classified, raised) = broken["differences"]
    assert [classified["then"]["primary"], classified["now"]["primary"]] == ["filling", "full"]
    assert raised["now"] == "raised, full, low"

    for class_, code in (("full", 1), ("filling", 0)):
        defined(class_, "next.yaml")
        tried = run_tests(connected, "failing")
        assert tried.returncode == code, tried.stdout.decode()
        assert connected.run(*LAB, "failing", *wanted[2:]).returncode == code

    alone = connected.run(*LAB, "failing")
    told = "actor 'desk' is defined in a file; give it as --definition FILE"
    assert told in one_line(alone, code=2)
    exported = connected.run(*LAB, "--actor", "desk", "--export", "failing")
    assert told in one_line(exported, code=2)


REVIEW = """
name: review
on: {event: client.changed}
steps:
  look: {actor: desk, expectation: has_room}
"""

UNFIT = {
    "a workflow": ("app", REVIEW, "name a file that defines one actor"),
    "another actor": ("app", DEFINED.replace("id: desk", "id: clerk"), "is of 'clerk'"),
    "an unknown tool": ("app", DEFINED.replace("[disk]", "[dsk]"), "did you mean disk?"),
    "an actor in code": ("coded", DEFINED, "the app has 'desk' in its code, which counts"),
}


def test_a_definition_that_cannot_be_tried_is_a_mistake(connected, revisions, tmp_path):
    for app, text, told in UNFIT.values():
        (tmp_path / "next.yaml").write_text(text)
        wanted = ("--actor", "desk", "--definition", "next.yaml")
        done = connected.run("lab", "--app", f"parts:{app}", *wanted)
        assert told in one_line(done, code=2)
