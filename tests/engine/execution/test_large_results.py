"""Results too large for the journal: stored by digest, replayed, and lost in plain words."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest

from engine.app.actions import converge, fingerprint, tool_call
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult, Strategy
from engine.app.tools import RESULT_BYTES_MAX, Tool
from engine.errors import BadHistory, CallFailed, EpisodeFailed
from engine.operations.replay import load, record, replay
from engine.validation import KEPT_BYTES_MAX
from streams.errors import DamagedObject
from streams.json import NOTHING, raw
from streams.memory.objects import MemoryObjects
from streams.model.events import CheckpointSaved, StepKind, StepRecorded, StoredResult
from streams.ports.objects import digest_of
from tests.engine.functions import stage
from tests.engine.stage import CLOCK, app_of, leave, lived, play, ports_in_memory, running, stored

LONG = "x" * (5 * 1024 * 1024)
LONGER = "y" * len(LONG)
MOST = "x" * (KEPT_BYTES_MAX - 2)
"""With its quotes, what the journal still has itself."""

READ = tool_call("library", "read", {"title": "long"})

OPENED = CheckpointSaved(checkpoint_no=0, step_no=0, phase="init", state=raw({"seen": []}))


class Library(Tool):
    """Has one text after another, and counts how often it was asked."""

    def __init__(self, *texts):
        self.texts, self.asked = texts, 0

    async def call(self, action, args, ctx):
        self.asked += 1
        return self.texts[(self.asked - 1) % len(self.texts)]


class Secretive(Library):
    """Shows of its texts only `shown`."""

    def __init__(self, *texts, shown):
        super().__init__(*texts)
        self.shown = shown

    def redact_result(self, result):
        return self.shown


class Reader(Strategy):
    """Reads so many texts, and remembers how long each was."""

    def __init__(self, times=1):
        self.times = times

    def init(self, episode, trigger):
        return {"seen": []}

    def next_step(self, state, ctx):
        return READ if len(state["seen"]) < self.times else converge()

    def handle_result(self, state, step, result):
        return {"seen": [*state["seen"], len(result)]}

    def converge(self, state, ctx):
        return ConvergeResult(classification=state)


async def reader(ctx, trigger):
    """Do as `Reader` does."""
    text = await ctx.call("library.read", title="long")
    return ConvergeResult(classification={"seen": [len(text)]})


class Gone:
    """An object store that has lost everything."""

    async def put(self, data, *, about=""):
        return digest_of(data)

    async def get(self, digest):
        return None


class Damaged(Gone):
    async def get(self, digest):
        raise DamagedObject(digest)


def refers_to(text: str) -> StoredResult:
    data = bytes(raw(text))
    return StoredResult(digest=sha256(data).hexdigest(), size_bytes=len(data))


def has_read(text: str, **fields) -> StepRecorded:
    return StepRecorded(
        step_no=1,
        kind=StepKind.TOOL_CALL,
        fingerprint=fingerprint(READ),
        tool_name="library.read",
        args=raw({"title": "long"}),
        stored=refers_to(text),
        path="1",
        **fields,
    )


FORMS = {
    "class": (lambda library: app_of(Reader(), tools={"library": library}), (OPENED,)),
    "function": (lambda library: stage.app_of(reader, tools={"library": library}), ()),
}


async def taken_over(ports, form, library):
    """Return the life of an episode whose node died when it had read `LONG`."""
    make, before = FORMS[form]
    app = make(library)
    episode_id = await leave(ports, app, *before, has_read(LONG))
    async with running(app, ports):
        return await lived(ports, episode_id)


async def test_a_large_result_is_in_the_object_store_and_the_journal_refers_to_it(ports):
    life = await play(Reader(), ports=ports, tools={"library": Library(LONG)})

    (step,) = life.of(StepRecorded)

    assert (step.result, step.stored) == (NOTHING, refers_to(LONG))
    assert await ports.objects.get(step.stored.digest) == bytes(raw(LONG))
    assert len(stored(ports)) < KEPT_BYTES_MAX
    assert life.seen == [len(LONG)]


async def test_the_largest_that_the_journal_has_itself_is_not_in_the_store(ports):
    life = await play(Reader(), ports=ports, tools={"library": Library(MOST)})
    (step,) = life.of(StepRecorded)
    assert (step.result, step.stored) == (raw(MOST), None)
    assert await ports.objects.get(refers_to(MOST).digest) is None


async def test_the_running_episode_uses_the_value_that_it_has():
    ports = replace(ports_in_memory(), objects=Gone())
    life = await play(Reader(2), ports=ports, tools={"library": Library(LONG, LONGER)})
    assert life.seen == [len(LONG), len(LONGER)]


@pytest.mark.parametrize("form", FORMS)
async def test_the_next_owner_fetches_what_was_read(ports, form):
    await ports.objects.put(bytes(raw(LONG)))
    library = Library("never")
    life = await taken_over(ports, form, library)
    assert (life.seen, library.asked) == ([len(LONG)], 0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("objects", "how"), [(Gone(), "is gone"), (Damaged(), "is damaged")])
async def test_an_episode_whose_result_is_lost_fails_and_says_what_to_do(form, objects, how):
    library = Library("never")
    life = await taken_over(replace(ports_in_memory(), objects=objects), form, library)
    assert (life.end.error_class, library.asked) == ("result_lost", 0)
    assert life.end.error_detail == (
        f"a result of {len(LONG) + 2:,} bytes ({refers_to(LONG).digest[:12]}…) {how}; results are"
        " kept for a time after their last use, VIGIL_RESULTS_DAYS: keep them longer, and fire the"
        " episode again"
    )


async def test_a_function_cannot_go_on_without_a_result_that_is_lost():
    async def stubborn(ctx, trigger):
        try:
            await ctx.call("library.read", title="long")
        except (CallFailed, EpisodeFailed):
            return ConvergeResult(summary="went on")

    ports = replace(ports_in_memory(), objects=Gone())
    app = stage.app_of(stubborn, tools={"library": Library("never")})
    episode_id = await leave(ports, app, has_read(LONG))
    async with running(app, ports):
        life = await lived(ports, episode_id)
    assert life.end.error_class == "result_lost"


async def test_a_replay_has_a_result_kept_for_another_while(ports):
    puts = []

    class Counting(MemoryObjects):
        async def put(self, data, *, about=""):
            puts.append(len(data))
            return await super().put(data)

    ports = replace(ports, objects=Counting(CLOCK))
    await ports.objects.put(bytes(raw(LONG)))
    await taken_over(ports, "class", Library("never"))
    assert puts == [len(LONG) + 2] * 2


async def test_a_result_beyond_every_limit_fails_the_call_alone():
    async def reads(ctx, trigger):
        try:
            await ctx.call("library.read")
        except CallFailed as failed:
            return ConvergeResult(summary=f"{failed.error_class}: {failed.detail}")

    life = await stage.play(reads, tools={"library": Library("x" * RESULT_BYTES_MAX)})
    assert life.episode.converged.summary == (
        "result_too_large: 16,777,218 bytes, the limit is 16,777,216; ask for less"
    )


async def test_the_largest_result_of_all_is_kept(ports):
    text = "x" * (RESULT_BYTES_MAX - 2)
    life = await play(Reader(), ports=ports, tools={"library": Library(text)})
    assert life.seen == [len(text)]
    assert await ports.objects.get(refers_to(text).digest) == bytes(raw(text))


async def test_branches_of_a_function_may_all_bring_large_results(ports):
    async def reads(ctx, trigger):
        texts = await ctx.gather(*(ctx.call("library.read", title=n) for n in range(3)))
        return ConvergeResult(classification={"seen": [len(text) for text in texts]})

    life = await stage.play(reads, ports=ports, tools={"library": Library(LONG, LONGER)})
    assert life.seen == [len(LONG)] * 3
    assert len(life.of(StepRecorded)) == 3


async def test_a_call_that_brings_another_large_result_each_time_is_no_loop():
    library = Library(LONG, LONGER, LONG + "x", LONGER + "y")
    life = await play(Reader(4), tools={"library": library})
    assert len(life.seen) == 4


async def test_a_call_that_brings_the_same_large_result_each_time_is_a_loop():
    life = await play(Reader(4), tools={"library": Library(LONG)})
    assert life.end.error_class == "loop_detected"


async def test_a_cached_result_may_be_large():
    calls = []

    @tool(cache_ttl_s=60)
    async def read() -> str:
        calls.append(1)
        return LONG

    async def reads(ctx, trigger):
        texts = [await ctx.call(read), await ctx.call(read)]
        return ConvergeResult(classification={"seen": [len(text) for text in texts]})

    life = await stage.play(reads, tools=[read])
    assert (life.seen, calls) == ([len(LONG)] * 2, [1])


async def test_of_a_large_result_people_see_what_its_tool_shows_of_it():
    life = await play(Reader(), tools={"library": Secretive(LONG, shown="5 MiB")})
    (step,) = life.of(StepRecorded)
    assert (step.result_shown, step.is_hidden) == (raw("5 MiB"), False)
    assert step.stored == refers_to(LONG)


async def test_what_a_tool_shows_is_hidden_if_it_is_large_as_well():
    life = await play(Reader(), tools={"library": Secretive(LONG, shown=LONGER)})
    (step,) = life.of(StepRecorded)
    assert (step.result_shown, step.is_hidden) == (NOTHING, True)


async def test_a_history_has_the_large_results_and_needs_no_store(ports):
    app = stage.app_of(reader, tools={"library": Library(LONG)})
    life = await stage.play(reader, ports=ports, tools={"library": Library(LONG)})
    history = await record(ports, life.episode.opened.episode_id)

    again = await replay(load(history), app)

    assert again.steps == 1
    assert load(history)[-1].commit.events[-1] == life.events[-1]


async def test_a_history_without_its_results_cannot_be_recorded(ports):
    life = await play(Reader(), ports=ports, tools={"library": Library(LONG)})
    with pytest.raises(BadHistory, match=r"result_lost: a result of .* is gone"):
        await record(replace(ports, objects=Gone()), life.episode.opened.episode_id)


@pytest.mark.parametrize("form", FORMS)
async def test_a_journal_with_references_cannot_be_replayed_by_itself(ports, form):
    await ports.objects.put(bytes(raw(LONG)))
    life = await taken_over(ports, form, Library("never"))
    app = FORMS[form][0](Library("never"))
    with pytest.raises(EpisodeFailed, match="is in an object store that is out of reach"):
        await replay(life.records, app)
