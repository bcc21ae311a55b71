"""Outputs as chat messages."""

from __future__ import annotations

import json

import pytest

from tests.engine.adapters.receiver import Receiver, answer
from tests.engine.adapters.samples import failure_of, output
from vigil.adapters import Slack, env

BLOCKS = {"text": "full", "blocks": [{"type": "divider"}]}


async def posted(payload, **options):
    """Return what a chat gets of `payload`."""
    async with Receiver(answer(200, b"ok")) as receiver:
        slack = Slack(receiver.url, **options)
        assert await slack.deliver(output(payload)) is None
        await slack.close()
    (request,) = receiver.requests
    return json.loads(request.body)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ("full", {"text": "full"}),
        (BLOCKS, BLOCKS),
        ({"attachments": [{"text": "x"}]}, {"attachments": [{"text": "x"}]}),
    ],
)
async def test_a_text_or_a_message_is_posted(payload, message):
    assert await posted(payload) == message


@pytest.mark.parametrize("payload", ["", None, 7, [], {}, {"text": ""}, {"channel": "x"}])
async def test_what_says_nothing_fails_for_good(payload):
    failure = await failure_of(Slack("https://chat.example/x"), payload)
    assert (failure.error_class, failure.permanent) == ("bad_payload", True)


async def test_a_chat_that_is_busy_says_for_how_long():
    async with Receiver(answer(429, b"rate_limited", retry_after="30")) as receiver:
        slack = Slack(receiver.url)
        failure = await failure_of(slack)
        await slack.close()
    assert (failure.error_class, failure.permanent) == ("http_429", False)
    assert failure.retry_after_s == 30


async def test_the_address_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("CHAT_URL", raising=False)
    slack = Slack(env("CHAT_URL"))
    assert (await failure_of(slack)).error_class == "secret_missing"
    async with Receiver(answer(200, b"ok")) as receiver:
        monkeypatch.setenv("CHAT_URL", f"{receiver.url}\n")
        await slack.deliver(output("full"))
        await slack.close()
    assert len(receiver.requests) == 1


def test_an_address_that_is_none_is_refused_where_it_is_declared():
    with pytest.raises(ValueError, match="url"):
        Slack("chat.example")
