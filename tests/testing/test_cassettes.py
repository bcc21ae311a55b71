"""Answers of a model that are recorded once."""

from __future__ import annotations

import json

import pytest

from tests.engine.stage import HAPPENED, Scripted
from vigil import Actor, App, Synthesis, event, synthesize
from vigil.testing import Cassette, Unstubbed, run

FIRST, SECOND = synthesize({"ask": 1}), synthesize({"ask": 2}, transient={"key": "s3cret"})


class Model:
    asked = 0

    async def __call__(self, prompt, transient, ctx):
        self.asked += 1
        return Synthesis(content=f"answer {prompt['ask']}", output_tokens=7, model="m")


def app_asking(*plan) -> App:
    actor = Actor("worker", synthesizer=Model())
    actor.expect("thing", Scripted(*plan), on=event(HAPPENED))
    return App(actors=[actor])


async def answers(cassette, *plan):
    async with run(app_asking(*plan), synthesizer=cassette) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.run_until_idle()
        return vigil.episode().classification["seen"], vigil.episode().tokens


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cassettes" / "advice.json"


async def test_what_was_recorded_is_played_in_any_order_with_its_tokens(path):
    model = Model()
    recorded = await answers(Cassette(path, model=model, records=True), FIRST, SECOND)
    played = await answers(Cassette(path, model=model), SECOND, FIRST)

    assert recorded == (["answer 1", "answer 2"], 14)
    assert played == (["answer 2", "answer 1"], 14)
    assert model.asked == 2


async def test_what_is_known_is_not_asked_again_while_it_records(path):
    model = Model()
    await answers(Cassette(path, model=model, records=True), FIRST)
    await answers(Cassette(path, model=model, records=True), FIRST, SECOND)
    assert model.asked == 2


async def test_what_is_transient_is_not_kept(path):
    await answers(Cassette(path, model=Model(), records=True), SECOND)
    assert "s3cret" not in path.read_text()
    assert [each["prompt"] for each in json.loads(path.read_text()).values()] == [{"ask": 2}]


async def test_a_prompt_without_a_recording_fails_the_test(path):
    with pytest.raises(Unstubbed, match=r'no answer to \{"ask":1\}; VIGIL_TEST_RECORD=1 asks'):
        await answers(Cassette(path, model=Model()), FIRST)
    with pytest.raises(Unstubbed, match="give it a model to record"):
        await answers(Cassette(path, records=True), FIRST)


async def test_a_variable_lets_it_record(path, monkeypatch):
    monkeypatch.setenv("VIGIL_TEST_RECORD", "1")
    assert (await answers(Cassette(path, model=Model()), FIRST))[0] == ["answer 1"]


def test_a_file_that_is_none_is_refused(path):
    path.parent.mkdir()
    path.write_text("[]")
    with pytest.raises(ValueError, match=r"advice.json is no cassette"):
        Cassette(path)
