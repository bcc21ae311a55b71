"""How a growing log is printed: in place on a terminal, and by lines elsewhere."""

from __future__ import annotations

import asyncio
import io
from types import SimpleNamespace

import pytest

from streams.model.deltas import Delta, DeltaEnd, DeltaOrder
from vigil.asking.deltas import row_of
from vigil.commands.episodes import log
from vigil.printing.tail import TailPrinter


def delta(place, text="", *, path="1.m1.1", attempt=1, tools=(), end=None):
    return Delta(path=path, attempt=attempt, place=place, text=text, tools=tools, end=end)


def line(text):
    return {"kind": "tool_call", "line": text}


def printed(*rows, is_in_place):
    """Return what is printed after each of `rows`, and in the end."""
    stream, order, seen = io.StringIO(), DeltaOrder(), []
    printer = TailPrinter(stream, is_in_place=is_in_place)
    for each in rows:
        before = len(stream.getvalue())
        printer.show(row_of(order.place(each)) if isinstance(each, Delta) else each)
        seen.append(stream.getvalue()[before:])
    before = len(stream.getvalue())
    printer.close()
    return [*seen, stream.getvalue()[before:]]


def test_an_answer_grows_in_place():
    rows = [delta(0, "the disk "), delta(1, "is full"), delta(2, end=DeltaEnd.DONE), line("next")]
    assert printed(*rows, is_in_place=True) == ["1.m1.1: the disk ", "is full", "\n", "next\n", ""]


def test_elsewhere_a_line_is_printed_once_it_is_whole():
    rows = [delta(0, "the disk\nis "), delta(1, "full"), delta(2, end=DeltaEnd.DONE)]
    seen = printed(*rows, is_in_place=False)
    assert seen == ["1.m1.1: the disk\n", "", "1.m1.1: is full\n", ""]


def test_a_line_of_the_log_does_not_break_into_an_answer():
    rows = [delta(0, "the disk "), line("next"), delta(1, "is full")]
    assert printed(*rows, is_in_place=True) == [
        "1.m1.1: the disk ", "\nnext\n", "1.m1.1: is full", "\n",
    ]  # fmt: skip
    assert printed(*rows, is_in_place=False) == ["", "next\n", "", "1.m1.1: the disk is full\n"]


def test_two_answers_at_once_are_kept_apart():
    rows = [delta(0, "one "), delta(0, "two ", path="2.m1.1"), delta(1, "more")]
    assert printed(*rows, is_in_place=True) == [
        "1.m1.1: one ", "\n2.m1.1: two ", "\n1.m1.1: more", "\n",
    ]  # fmt: skip


@pytest.mark.parametrize("is_in_place", [True, False])
def test_what_was_lost_and_what_begins_anew_is_said(is_in_place):
    rows = [
        delta(1, "half"),
        delta(0, "the disk", attempt=2, tools=("look",)),
        delta(1, attempt=2, end=DeltaEnd.FAILED),
    ]
    text = "".join(printed(*rows, is_in_place=is_in_place))
    assert text.endswith("1.m1.1: [attempt 2] the disk [calls look] [failed]\n")
    assert ("1.m1.1: […]half\n" in text) is is_in_place


def test_nothing_that_a_model_says_moves_the_cursor():
    seen = printed(delta(0, "a\x1b[2Jb"), is_in_place=True)
    assert "\x1b" not in "".join(seen)


def test_a_tail_that_nobody_reads_any_more_closes_what_it_has_opened(monkeypatch):
    closed = []

    class Episodes:
        async def tail(self, wanted, **options):
            try:
                yield {"kind": "tool_call", "line": "disk.clean"}
            finally:
                await asyncio.sleep(0)
                closed.append(wanted)

    async def named(client, episode_id, **options):
        return episode_id

    def call(ctx, follow):
        with pytest.raises(BrokenPipeError):
            asyncio.run(_followed(follow))

    async def _followed(follow):
        try:
            await follow(SimpleNamespace(episodes=Episodes()))
        finally:
            assert closed == ["e1"], "closed before whoever asked goes on"

    def broken(row):
        raise BrokenPipeError

    monkeypatch.setattr(log, "named", named)
    monkeypatch.setattr(log, "call", call)
    monkeypatch.setattr(log.tables, "as_json_line", broken)
    log.tail(None, episode_id="e1", is_json=True)
