"""Mistakes in an event: its payload, and what programs publish without Vigil."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs

from streams.ports.domain_events import EVENT_BYTES_MAX
from tests.mistakes.mistake import Mistake
from tests.vigil.program import NOWHERE, Vigil
from tests.vigil.test_command_line import one_line
from vigil import Actor, App, event
from vigil.testing import run

monitor = Actor("monitor")


@monitor.expectation(on=event("host.seen"))
async def disk_has_room(ctx, trigger):
    used = f"{trigger.payload['used']:.0%}"
    return used and None


app = App(actors=[monitor])

WRONG_TYPE = Mistake(
    70,
    "the payload has a text where the function expects a number",
    '{"used": "all"}',
    "crash: ValueError: Unknown format code '%' for object of type 'str'",
    "log",
)

TYPED = [
    Mistake(
        71,
        "the payload on the command line is not JSON",
        "{a}",
        "host.seen: unreadable: not JSON: JSON is malformed: object keys must be strings (byte 1)",
        "command",
    ),
    Mistake(
        71,
        "the payload on the command line is a list",
        "[1]",
        "host.seen: not_an_object: a JSON list, not an object",
        "command",
    ),
    Mistake(
        73,
        "nothing comes on standard input",
        "",
        "host.seen: the payload is empty; give a JSON object, such as {}",
        "command",
    ),
    Mistake(
        74,
        "the event is over 512 KiB",
        '{"a": "…"}',
        "host.seen: too_large: over 524,288 bytes, the limit of an event",
        "command",
    ),
]

BAD_NAME = Mistake(
    71,
    "the name of the event on the command line has an empty word",
    "host..seen",
    "'host..seen' is not a dotted name; use words of A-Z a-z 0-9 _ - joined by dots",
    "command",
)

RAW = [
    Mistake(
        72,
        "a program publishes what is not JSON",
        "{a}",
        "unreadable: not JSON: JSON is malformed: object keys must be strings (byte 1)",
        "log",
    ),
    Mistake(
        72,
        "a program publishes a list",
        "[1]",
        "not_an_object: a JSON list, not an object",
        "log",
    ),
    Mistake(
        74,
        "a program publishes more than 512 KiB",
        '{"a": "…"}',
        "too_large: 524,297 bytes, the limit is 524,288",
        "log",
    ),
]

MISTAKES = [WRONG_TYPE, *TYPED, BAD_NAME, *RAW]


def payload(mistake: Mistake) -> bytes:
    """Return what is published, where `…` stands for a long text."""
    return mistake.done.replace("…", "x" * EVENT_BYTES_MAX).encode()


@pytest.mark.parametrize("mistake", TYPED, ids=lambda each: each.made)
def test_what_no_engine_would_take_is_not_published(tmp_path, mistake):
    vigil = Vigil(tmp_path)
    done = vigil.run("publish", "host.seen", "-", stdin=payload(mistake), **NOWHERE)
    assert one_line(done, code=2) == f"vigil: {mistake.said}\n"


def test_a_name_that_none_can_be_is_not_published(tmp_path):
    done = Vigil(tmp_path).run("publish", BAD_NAME.done, "{}", **NOWHERE)
    assert BAD_NAME.said in one_line(done, code=2)


@pytest.mark.parametrize("mistake", RAW, ids=lambda each: each.made)
async def test_what_other_programs_publish_becomes_a_dead_letter(mistake, capsys):
    async with run(app) as vigil:
        vigil.ports.domain_events.publish_raw("host.seen", payload(mistake), {})
        await vigil.run_until_idle()
        (letter,) = vigil.dead_letters()
    assert f"{letter.reason}: {letter.detail}" == mistake.said
    assert letter.detail in capsys.readouterr().out


async def test_a_payload_of_another_type_fails_its_episode_with_the_line():
    with capture_logs() as logged:
        async with run(app) as vigil:
            await vigil.publish("host.seen", json.loads(WRONG_TYPE.done))
            await vigil.run_until_idle()
    (line,) = [each for each in logged if each["event"] == "episode failed"]
    assert f"{line['error_class']}: {line['detail']}" == WRONG_TYPE.said
    assert line["at"].startswith("test_publishing.py:")
