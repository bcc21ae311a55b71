"""The protocol's hot half: what is sent is what arrives, however the network cuts it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import BadSubjectError, ProtocolError

from streams.errors import BadName
from streams.jetstream.connection import headers
from streams.jetstream.connection.protocol import (
    LINE_BYTES_MAX,
    Parser,
    Received,
    publication,
    subscription,
)

NAMES = st.sampled_from(["Nats-Msg-Id", "traceparent", "x", "a/b"])
VALUES = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=20)
BLOCKS = st.dictionaries(NAMES, VALUES, max_size=3)
MESSAGES = st.tuples(BLOCKS, st.binary(max_size=50), st.sampled_from(["", "reply.1"]))


def as_delivered(subject, data, *, reply="", block=b"", number=7):
    """What a server sends to a subscriber of what was published."""
    verb, _, rest = publication(subject, data, reply=reply, block=block).partition(b" ")
    place, _, rest = rest.partition(b" ")
    kind = b"HMSG" if verb == b"HPUB" else b"MSG"
    return b"%b %b %d %b" % (kind, place, number, rest)


def heard_of(*chunks):
    """What a parser makes of `chunks`: messages, and other lines."""
    heard = []
    parser = Parser(lambda number, msg: heard.append((number, msg)))
    lines = [line for chunk in chunks for line in parser.feed(chunk)]
    return heard, lines


@given(st.lists(MESSAGES, max_size=4), st.lists(st.integers(0, 400), max_size=6))
def test_a_message_is_the_same_however_the_network_cuts_it(messages, cuts):
    stream = b"PING\r\n".join(
        as_delivered("a.b", data, reply=reply, block=headers.block(given) if given else b"")
        for given, data, reply in messages
    )
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(edges)]
    heard, lines = heard_of(*chunks)
    assert [(m.headers, m.data, m.reply) for _, m in heard] == messages
    assert {(number, m.subject) for number, m in heard} <= {(7, "a.b")}
    assert lines == [b"PING"] * max(0, len(messages) - 1)


def test_a_large_message_is_put_together_once():
    data = b"x" * 1_000_000
    whole = as_delivered("a", data)
    chunks = [whole[at : at + 30_000] for at in range(0, len(whole), 30_000)]
    ((_, msg),), _ = heard_of(*chunks)
    assert msg.data == data


@pytest.mark.parametrize(
    "line", [b"MSG a x 1\r\nx\r\n", b"MSG a 1 many\r\n", b"HMSG a 1 x 2\r\n12\r\n"]
)
def test_what_no_server_says_is_an_error(line):
    with pytest.raises(ProtocolError):
        heard_of(line)


def test_a_line_without_an_end_is_an_error():
    with pytest.raises(ProtocolError):
        heard_of(b"x" * (LINE_BYTES_MAX + 1))


def test_a_subject_that_is_no_utf8_is_still_a_message():
    ((_, msg),), _ = heard_of(b"MSG a.\xff 1 1\r\nx\r\n")
    assert msg.subject == "a.\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB b 0\r\n\r\n", "a\tb"])
def test_a_subject_cannot_end_its_line(subject):
    with pytest.raises(BadSubjectError):
        publication(subject, b"")
    with pytest.raises(BadSubjectError):
        subscription(subject, 1)


def test_a_status_is_told_from_a_message():
    assert Received("a", "", b"NATS/1.0 408 Request Timeout\r\nX: 1\r\n\r\n", b"").status == "408"
    assert Received("a", "", b"NATS/1.0\r\nStatus: 408\r\n\r\n", b"").status == ""
    assert Received("a", "", b"", b"").status == ""


def test_a_status_may_have_headers():
    block = b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\n\r\n"
    assert Received("a", "", block, b"").headers == {"Nats-Pending-Messages": "3"}


def test_a_value_cannot_end_its_line():
    block = headers.block({"a": "1\r\nb: 2", "c": "3"})
    assert headers.parse(block) == {"a": "1  b: 2", "c": "3"}


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "ä"])
def test_a_header_needs_a_name_that_it_can_have(name):
    with pytest.raises(BadName):
        headers.block({name: "1"})


def test_what_is_no_header_is_left_out():
    block = "NATS/1.0\r\nno colon\r\na b: 1\r\nä: 2\r\n: 3\r\nc:4\r\nd:  5 \r\n\r\n".encode()
    assert headers.parse(block) == {"c": "4", "d": "5"}
