"""`vigil mcp pins`: the servers of an app are asked for their tools."""

from __future__ import annotations

import json

import pytest

from tests.engine.toolbox.reaching import process

APP = """
from vigil import Actor, App, manual
from vigil.tools import McpTool, mcp_server

notes = mcp_server(
    tools={tools},
    **{place!r},
)
scribe = Actor("scribe", tools={{"notes": notes}})


@scribe.expectation(on=manual())
async def nothing(ctx, trigger): ...


app = App(actors=[scribe])
"""


@pytest.fixture
def write(tmp_path):
    def written(tools: str, **place) -> None:
        text = APP.format(tools=tools, place=place or process())
        (tmp_path / "scribes.py").write_text(text)

    return written


def listed(vigil, *options: str, code: int = 0) -> dict[str, dict]:
    done = vigil.run("mcp", "pins", "scribes:app", "--json", *options)
    assert done.returncode == code, done.stderr
    return {each["tool"]: each for each in json.loads(done.stdout)}


def test_each_tool_is_printed_with_the_line_that_allows_it_as_it_is(vigil, write):
    write('{"find": McpTool("read", name="search")}')
    rows = listed(vigil)
    find, add = rows["find"], rows["add"]

    assert (find["server"], find["state"], find["risk"]) == ("notes", "no pin", "read")
    assert find["line"] == f'"find": McpTool("read", pin="{find["pin"]}", name="search"),'
    assert find["description"] == "Find notes."
    assert find["input_schema"]["required"] == ["query"]
    assert (add["state"], add["pinned"]) == ("not allowed", None)
    assert add["line"] == f'"add": McpTool("read|change|destroy", pin="{add["pin"]}"),'

    write("{" + find["line"] + "}")
    assert listed(vigil)["find"]["state"] == "as pinned"


def test_a_line_may_have_what_a_model_is_told_which_pins_the_tool_too(vigil, write):
    write('{"find": McpTool("read", name="search")}')
    find = listed(vigil, "--with-schemas")["find"]

    told = f"description='Find notes.', input_schema={find['input_schema']!r}"
    assert find["line"] == f'"find": McpTool("read", {told}, name="search"),'
    write("{" + find["line"] + "}")
    assert listed(vigil)["find"]["state"] == "as pinned"
    printed = vigil.run("mcp", "pins", "scribes:app", "--with-schemas").stdout
    assert find["line"] in printed


def test_a_tool_that_has_changed_or_is_missing_fails_the_command(vigil, write):
    write('{"search": McpTool("read", pin="' + "0" * 32 + '"), "burn": "destroy"}')
    done = vigil.run("mcp", "pins", "scribes:app")

    assert done.returncode == 1
    assert done.stderr.strip() == (
        "vigil: scribes:app: notes.search is changed; notes.burn is missing"
    )
    assert "\nnotes, as it is now:\n" in done.stdout
    assert '    "search": McpTool("read", pin="' in done.stdout


def test_a_server_that_is_away_fails_the_command_in_one_line(vigil, write):
    write('{"search": "read"}', command="/nowhere/notes")
    done = vigil.run("mcp", "pins", "scribes:app")

    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("vigil: scribes:app: notes: tool_unavailable: /nowhere/notes: ")


def test_a_risk_that_nobody_has_chosen_cannot_be_pasted(vigil, write):
    write('{"add": McpTool("read|change|destroy")}')
    done = vigil.run("mcp", "pins", "scribes:app")
    assert done.returncode == 2
    assert "is none of read, change, destroy" in done.stderr


def test_an_app_without_such_servers_has_nothing_to_print(vigil, tmp_path):
    (tmp_path / "scribes.py").write_text("from vigil import App\napp = App()\n")
    done = vigil.run("mcp", "pins", "scribes:app")
    assert (done.returncode, done.stdout) == (0, "scribes:app: no tools of MCP servers\n")
