"""The example that investigates: its story, its people, its tools, and nodes that die."""

from __future__ import annotations

import gzip
import json

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from tests.moments import STRIDE
from vigil import ToolFailed
from vigil.demo import investigation
from vigil.demo.investigation import app, compress, investigator, largest, last_lines, reader
from vigil.demo.scripted_model import LOG, investigate, read
from vigil.testing import JsonAnswer, TextAnswer, ToolCallsAnswer, crash_everywhere, run

LINES = "".join(f"12:00:0{n % 10} DEBUG basket {n} is the same\n" for n in range(300))


def model(messages, info):
    """Answer by the script of the demo."""
    parts = [part for each in messages for part in each.parts]
    told = [_text(part.content) for part in parts if isinstance(part, ToolReturnPart)]
    is_reader = any(each.name == "last_lines" for each in info.function_tools)
    match read(told) if is_reader else investigate(told):
        case ToolCallsAnswer(calls=calls):
            return ModelResponse([ToolCallPart(each.name, each.args) for each in calls])
        case JsonAnswer(value=value):
            return ModelResponse([ToolCallPart("final_result", value)])
        case TextAnswer(text=text):
            return ModelResponse([TextPart(text)])


def _text(content):
    return content if isinstance(content, str) else json.dumps(content)


class ScriptedModel(FunctionModel):
    """The model of the script, by the name that has a price."""

    @property
    def system(self):
        return "openai"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(investigation, "FOLDER", tmp_path / "files")
    scripted = ScriptedModel(model, model_name="scripted")
    with investigator.override(model=scripted), reader.override(model=scripted):
        yield tmp_path / "files"


def fill(folder):
    """Write a large log, as it was before anybody came."""
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    (folder / LOG).write_text(LINES)
    (folder / f"{LOG}.gz").unlink(missing_ok=True)
    (folder / "small").write_text("x")


def investigated(folder):
    """Return an app that may use its tools, on a folder that is full."""
    fill(folder)
    return run(app, allow=("largest.*", "last_lines.*", "compress.*"))


async def filled(vigil):
    await vigil.publish("folder.filling", {"folder": "web-1", "used_fraction": 0.93})
    await vigil.run_until_idle()


async def test_the_agent_finds_the_cause_and_mends_it_once_people_agree(folder):
    async with investigated(folder) as vigil:
        await filled(vigil)
        assert (folder / LOG).exists(), "people are asked before"
        await vigil.approve()
        await vigil.run_until_idle()

        finding = vigil.finding("folder:web-1")
        assert (finding.class_, finding.severity) == ("filled_by_log", "low")
        assert "40 of its last 40 lines" in finding.summary
        (note,) = vigil.deliveries("notes")
        assert note.payload["text"].startswith("Set the log level")
    assert gzip.decompress((folder / f"{LOG}.gz").read_bytes()).decode() == LINES
    assert not (folder / LOG).exists()


async def test_what_people_deny_is_not_done_and_the_finding_says_how_bad_it_is(folder):
    async with investigated(folder) as vigil:
        await filled(vigil)
        await vigil.deny(reason="we need it")
        await vigil.run_until_idle()

        assert vigil.finding("folder:web-1").severity == "high"
    assert (folder / LOG).read_text() == LINES


async def test_a_node_may_die_at_every_moment(folder):
    async def story(vigil):
        await filled(vigil)
        await vigil.approve()
        await vigil.run_until_idle()
        assert vigil.finding("folder:web-1").severity == "low"
        assert len({each.idempotency_key for each in vigil.calls("compress.call")}) == 1
        assert len({each.idempotency_key for each in vigil.deliveries("notes")}) == 1

    assert await crash_everywhere(lambda: investigated(folder), story, every=STRIDE) > 20


def test_the_largest_files_come_first(folder):
    fill(folder)
    assert largest() == [{"file": LOG, "bytes": len(LINES)}, {"file": "small", "bytes": 1}]


def test_a_file_that_is_compressed_already_stays_as_it_is(folder):
    fill(folder)
    assert compress(file=LOG) == compress(file=LOG)
    assert gzip.decompress((folder / f"{LOG}.gz").read_bytes()).decode() == LINES


@pytest.mark.parametrize("file", ["../secret", "/etc/passwd", "logs/../../secret"])
def test_a_model_gets_at_no_file_outside_of_the_folder(folder, file):
    fill(folder)
    for each in (last_lines, compress):
        with pytest.raises(ToolFailed, match="not_here"):
            each(file=file)
