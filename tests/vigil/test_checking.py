"""`vigil check`: an app is imported, and what a replay would do otherwise is listed."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs

from vigil.serving.app import load, tell_found

APP = """
import time
from vigil import Actor, App, every

clocks = Actor("clocks")


@clocks.expectation(on=every("1h"))
async def time_goes_on(ctx, trigger):
    {line}


app = App(actors=[clocks])
"""


@pytest.fixture
def write(tmp_path):
    return lambda line: (tmp_path / "clocks.py").write_text(APP.format(line=line))


def test_an_app_whose_functions_can_be_replayed_is_fine(vigil, write):
    write("await ctx.observe(str(ctx.now()))")
    done = vigil.run("check", "clocks:app")
    assert (done.returncode, done.stdout) == (0, "clocks:app: 1 actor(s), nothing found\n")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("lease_z = 3", "lease_z"),
        ('[retention]\nepisods = "7d"', "there is no 'episods'"),
        ('[archive]\nstore = "ftp://x"', "'ftp://x' is no folder"),
    ],
)
def test_settings_that_cannot_work_are_told_before_a_node_starts(
    vigil, write, tmp_path, said, told
):
    write("await ctx.observe(str(ctx.now()))")
    (tmp_path / "vigil.toml").write_text(said)
    done = vigil.run("check", "clocks:app")
    assert done.returncode == 2
    assert told in done.stderr


def test_what_a_replay_does_otherwise_is_listed_with_its_line(vigil, write):
    write("await ctx.observe(time.time())")
    done = vigil.run("check", "clocks:app", "--json")
    (row,) = json.loads(done.stdout)
    assert done.returncode == 1
    assert row == {
        "actor": "clocks",
        "expectation": "time_goes_on",
        "place": "clocks.py:10",
        "found": "time.time()",
        "instead": "ctx.now()",
    }


def test_an_app_that_is_not_there_is_named(vigil):
    done = vigil.run("check", "nowhere:app")
    assert done.returncode != 0
    assert "no module named 'nowhere'" in done.stderr
    assert "--app" not in done.stderr


def test_the_app_is_that_of_the_command_line_else_of_the_environment_else_of_the_file(
    vigil, write, tmp_path
):
    write("await ctx.observe(str(ctx.now()))")
    (tmp_path / "vigil.toml").write_text('app = "clocks:app"\n')

    assert vigil.run("check").stdout == "clocks:app: 1 actor(s), nothing found\n"
    by_variable = vigil.run("check", VIGIL_APP="elsewhere:app")
    assert "VIGIL_APP elsewhere:app: no module named 'elsewhere'" in by_variable.stderr
    assert vigil.run("check", "clocks:app", VIGIL_APP="elsewhere:app").returncode == 0


def test_without_an_app_a_node_says_where_to_name_one(vigil):
    done = vigil.run("node")
    assert done.returncode == 2
    assert 'vigil: which app? give --app, such as watch:app; or write app = "watch:app"' in (
        done.stderr
    )


NAMED = """
import time
from vigil import App


async def time_goes_on(ctx, trigger):
    await ctx.observe(time.time())


app = App(strategies={"clocks:time_goes_on": time_goes_on})
"""


def test_functions_that_definitions_may_name_are_looked_at_too(vigil, tmp_path):
    (tmp_path / "clocks.py").write_text(NAMED)
    (row,) = json.loads(vigil.run("check", "clocks:app", "--json").stdout)
    assert (row["expectation"], row["place"]) == ("clocks:time_goes_on", "clocks.py:7")


TWICE = """
import time
from vigil import Actor, App, every


def later():
    return time.time()


async def time_goes_on(ctx, trigger):
    await ctx.observe(later())
    await ctx.observe(time.time())
    time.sleep(1)


clocks = Actor("clocks")
clocks.expect("first", time_goes_on, on=every("1h"))
clocks.expect("second", time_goes_on, on=every("1h"))
app = App(actors=[clocks])
"""


def test_what_is_found_is_listed_once_by_line_however_often_it_is_registered(vigil, tmp_path):
    (tmp_path / "clocks.py").write_text(TWICE)
    rows = json.loads(vigil.run("check", "clocks:app", "--json").stdout)
    assert [(row["expectation"], row["place"]) for row in rows] == [
        ("first", "clocks.py:7"), ("first", "clocks.py:12"), ("first", "clocks.py:13"),
    ]  # fmt: skip


WRONG = """
from vigil import Actor, App, every, raise_finding, tool


@tool
async def fetch(url: str) -> str:
    return url


names = Actor("names", tools=[fetch])


@names.expectation(on=every("1h"))
async def all_is_well(ctx, trigger):
    await ctx.call("fetsh.call")
    await ctx.output("pager", {})
    return raise_finding("k", class_="c", severity="hgh")


app = App(actors=[names])
"""


def test_names_that_do_not_exist_are_listed_with_line_and_those_that_do(vigil, tmp_path):
    (tmp_path / "names.py").write_text(WRONG)
    done = vigil.run("check", "names:app", "--json")
    assert [(row["place"], row["found"], row["instead"]) for row in json.loads(done.stdout)] == [
        ("names.py:15", "tool 'fetsh.call'", "one of fetch.call"),
        ("names.py:16", "output 'pager'", "there is none"),
        ("names.py:17", "severity 'hgh'", "one of low, medium, high, critical"),
    ]
    assert done.returncode == 1
    assert "3 place(s) that cannot work" in done.stderr


AGENTS = """
from pydantic_ai import Agent
from vigil import Actor, App, Budget, manual, tool
from vigil.agents import toolset


@tool
async def fetch(url: str) -> str:
    return url


one = Agent("test", name="triage", toolsets=[toolset(fetch)])
other = Agent("test", name="triage")
desk = Actor("desk", tools=[fetch])


@desk.expectation(on=manual())
async def all_is_well(ctx, trigger):
    await ctx.agent(one, "why?")
    await ctx.agent(other, "why?")


app = App(actors=[desk])
"""


def test_two_agents_of_one_name_are_a_warning_and_a_tool_that_is_lacking_is_none(vigil, tmp_path):
    (tmp_path / "agents.py").write_text(AGENTS)
    done = vigil.run("check", "agents:app")
    assert done.returncode == 0, done.stderr
    assert "another agent has this name" in done.stdout
    assert "agents:app: 1 actor(s), 1 warning(s)" in done.stdout

    (tmp_path / "agents.py").write_text(AGENTS.replace(", tools=[fetch]", ""))
    done = vigil.run("check", "agents:app")
    assert done.returncode == 1
    assert "tool of agent 'triage' 'fetch.call'" in done.stdout
    assert "1 place(s) that cannot work" in done.stderr


SECRET = """
from vigil.adapters import Webhook, env

hook = Webhook("https://pager.example/x", secret=env("NO_SUCH_SECRET"))
app = App(actors=[names], outputs={"hook": hook})
"""


def test_a_node_that_starts_says_so_too(connected, tmp_path):
    (tmp_path / "names.py").write_text(WRONG + SECRET)
    with connected.running("node", "--no-project", "--app", "names:app", "--log", "json") as node:
        said = node.wait_said('"event": "node up"')
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    told = [line for line in lines if line["event"] == "this cannot work"]
    assert [(line["at"], line["found"]) for line in told] == [
        ("names.py:15", "tool 'fetsh.call'"),
        ("names.py:16", "output 'pager'"),
        ("names.py:17", "severity 'hgh'"),
    ]
    assert told[0]["instead"] == "one of fetch.call"
    assert told[0]["expectation"] == "names.all_is_well"
    lacking = [each for each in lines if each["event"] == "an output cannot be delivered here"]
    assert [(each["output"], each["not_set"]) for each in lacking] == [("hook", "NO_SUCH_SECRET")]


MODEL = """
from vigil import Model

app = App(actors=[names], synthesizer=Model("nobody:clever"))
"""


def test_a_node_whose_model_cannot_be_asked_does_not_start(connected, tmp_path):
    (tmp_path / "names.py").write_text(WRONG + MODEL)
    done = connected.run("node", "--no-project", "--app", "names:app")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == (
        "vigil: the app: synthesizer: model 'nobody:clever': Unknown model: nobody:clever"
    )


ASKS = """
from pydantic_ai import Agent
from vigil import Actor, App, Price, Spending, manual

triage = Agent("test", name="triage", model_settings={"max_tokens": 100})
desk = Actor("desk", spending=[Spending(usd=5)])


@desk.expectation(on=manual())
async def look(ctx, trigger):
    await ctx.agent(triage, "why?")


app = App(actors=[desk])
priced = App(actors=[desk], prices={"test": Price(input_per_million=1, output_per_million=1)})
"""


def test_a_model_whose_price_nobody_knows_is_listed_with_the_key_to_write(vigil, tmp_path):
    (tmp_path / "asks.py").write_text(ASKS)
    done = vigil.run("check", "asks:app", "--json")
    (row,) = json.loads(done.stdout)
    assert done.returncode == 1
    assert row == {
        "actor": "desk",
        "expectation": "look",
        "place": "asks.py:11",
        "found": "agent 'triage'",
        "instead": (
            "nobody knows the price of 'test:test', and a limit in dollars applies;"
            " App(prices={'test:test': Price(…)}), or App(unpriced=\"zero\")"
        ),
    }
    done = vigil.run("check", "asks:priced")
    assert (done.returncode, done.stdout) == (0, "asks:priced: 1 actor(s), nothing found\n")


def test_a_node_that_starts_tells_it_too(tmp_path, monkeypatch):
    (tmp_path / "at_start.py").write_text(ASKS)
    monkeypatch.syspath_prepend(tmp_path)
    with capture_logs() as logged:
        tell_found(load("at_start:app", option="--app"))
        tell_found(load("at_start:priced", option="--app"))
    (line,) = logged
    assert (line["event"], line["at"]) == ("this cannot work", "at_start.py:11")
    assert line["instead"].startswith("nobody knows the price of 'test:test'")


def test_the_app_that_the_demo_recommends_at_its_end_tells_nothing():
    with capture_logs() as logged:
        tell_found(load("vigil.demo.investigation:app", option="--app"))
    assert logged == []
