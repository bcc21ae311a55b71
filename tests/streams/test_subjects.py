"""Subjects, keys and names: reversible, bounded, and impossible to escape from."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streams.errors import BadName
from streams.keys import episode_claim
from streams.layout import PARTITIONED, PARTITIONS_MAX, Kind, Stream
from streams.subjects import Stack, stack_of
from streams.tokens import TOKEN_BYTES_MAX, decode_token, encode_token, event_name, name

UNICODE = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80)
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
COUNTS = st.integers(1, PARTITIONS_MAX)
STACK = Stack("s")
SPREAD = Stack("s", partitions=4)


@given(UNICODE)
def test_any_text_comes_back_from_its_token(text):
    assert decode_token(encode_token(text)) == text


@given(UNICODE)
def test_a_token_keeps_to_the_alphabet_of_subjects_and_keys(text):
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", encode_token(text))


@given(UNICODE, UNICODE)
def test_different_texts_have_different_tokens(one, other):
    assume(one != other)
    assert encode_token(one) != encode_token(other)


@given(st.text(st.sampled_from("ab=0123456789ABCDEFabcdef._ *>"), max_size=12))
def test_a_token_that_decodes_is_the_token_of_its_text(token):
    try:
        text = decode_token(token)
    except BadName:
        return
    assume(text)
    assert decode_token(encode_token(text)) == text


@given(NAMES)
def test_a_plain_name_is_its_own_token(plain):
    assert encode_token(plain) == plain


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("host:disk:web-1", "host=3Adisk=3Aweb-1"),
        ("a.b", "a=2Eb"),
        ("*", "=2A"),
        (">", "=3E"),
        ("=", "=3D"),
        (" ", "=20"),
        ("ü", "=C3=BC"),
        ("\x00", "=00"),
    ],
)
def test_a_token_is_the_same_for_ever(text, token):
    assert encode_token(text) == token


def test_the_longest_token_is_accepted_and_one_more_byte_is_not():
    longest = "x" * TOKEN_BYTES_MAX
    assert encode_token(longest) == longest
    with pytest.raises(BadName):
        encode_token(longest + "x")


def test_the_limit_counts_encoded_bytes():
    with pytest.raises(BadName):
        encode_token("." * (TOKEN_BYTES_MAX // 3 + 1))


@pytest.mark.parametrize("text", ["", "\ud800"])
def test_what_is_no_text_has_no_token(text):
    with pytest.raises(BadName):
        encode_token(text)


@pytest.mark.parametrize("token", ["=", "=4", "=4a", "=GG", "a.b", "a b", "ü", "*", "=FF", "a\n"])
def test_what_no_text_encodes_to_is_no_token(token):
    with pytest.raises(BadName):
        decode_token(token)


@given(NAMES)
def test_names_are_taken_as_they_are(plain):
    assert name(plain, of="actor") == plain


@pytest.mark.parametrize("bad", ["", "a.b", "a b", "*", ">", "ü", "x" * 65, "a\n", "=41"])
def test_what_is_no_name_is_refused_and_said_to_be(bad):
    with pytest.raises(BadName, match=r"^actor: "):
        name(bad, of="actor")


@pytest.mark.parametrize("good", ["a", "resource.updated", "a-b.c_d.E9", ".".join("x" * 16)])
def test_event_names_are_words_joined_by_dots(good):
    assert event_name(good) == good
    assert STACK.event_name_of(STACK.event(good)) == good


@pytest.mark.parametrize(
    "bad", ["", ".", "a.", ".a", "a..b", "a b", "a.*", ">", "a.>", "a\n", ".".join("x" * 17)]
)
def test_what_is_no_event_name_is_refused(bad):
    with pytest.raises(BadName):
        event_name(bad)


@pytest.mark.parametrize("bad", ["", "a.b", "a b", "*", "x" * 33, "a\n"])
def test_what_is_no_stack_name_is_refused(bad):
    with pytest.raises(BadName):
        Stack(bad)


@given(UNICODE)
def test_a_finding_is_known_by_its_subject(key):
    assert STACK.aggregate_of(STACK.finding(key)) == (Kind.FINDING, key)


def test_an_episode_is_known_by_its_subject():
    assert STACK.aggregate_of(STACK.episode("e1")) == (Kind.EPISODE, "e1")


REFERENCES = st.one_of(UNICODE, st.sampled_from(["x" * 256, "ü" * 256, "=h" + "0" * 32]))


@given(REFERENCES, COUNTS)
def test_the_signals_of_a_reference_are_found_by_their_key_in_any_layout(ref, count):
    old, new = Stack("s", partitions=count), Stack("s", partitions=1)
    kind, key = old.aggregate_of(old.signal(ref))
    assert kind is Kind.SIGNAL
    assert old.aggregate(kind, key) == old.signal(ref)
    assert old.moved(old.signal(ref), to=new) == new.signal(ref)


def test_the_subject_of_a_reference_is_the_same_for_ever():
    assert STACK.signal("payment:42") == "s.signal.payment=3A42"
    assert STACK.signal("x" * 256) == "s.signal.=h0b2c2b0de02938ad7a728b51e8da3357"


@pytest.mark.parametrize("token", ["a.b", "=h12", "=hZ", "=4a", "*", "a b"])
def test_where_no_reference_lives_none_is_found(token):
    with pytest.raises(BadName):
        STACK.aggregate_of(f"s.signal.{token}")


def test_a_dead_letter_is_known_by_its_origin_and_cause():
    assert STACK.aggregate_of(STACK.dead("s-events", "7")) == (Kind.DEAD, "s-events.7")


@given(UNICODE, UNICODE)
def test_a_dead_letter_is_found_by_its_key(origin, cause):
    subject = STACK.dead(origin, cause)
    _, key = STACK.aggregate_of(subject)
    assert STACK.dead_letter(key) == subject


@pytest.mark.parametrize("key", ["", ".", "7", "a.", ".a", "a.b.c", "a.*", "a.>", "a b.c", "a.=zz"])
def test_what_is_no_key_of_a_dead_letter_is_refused(key):
    with pytest.raises(BadName):
        STACK.dead_letter(key)


def test_every_subject_says_which_stack_it_belongs_to():
    for subject in (STACK.episode("e1"), STACK.finding("k"), STACK.dead("o", "c")):
        assert stack_of(subject) == STACK
    with pytest.raises(BadName):
        stack_of("")


@pytest.mark.parametrize("subject", ["s.event.a", "s.episode.", "s.nothing.x", "s", "t.episode.x"])
def test_where_no_aggregate_lives_none_is_found(subject):
    with pytest.raises(BadName):
        STACK.aggregate_of(subject)


def test_an_aggregate_is_in_the_stream_that_holds_its_subject():
    assert STACK.stream_of(STACK.episode("e1")) == STACK.stream(Stream.JOURNAL)
    assert STACK.stream_of(STACK.finding("dead")) == STACK.stream(Stream.STATE)
    assert STACK.stream_of(STACK.dead("o", "c")) == STACK.stream(Stream.DEAD)


@pytest.mark.parametrize("kind", list(Kind))
def test_what_ends_is_in_the_journal_and_what_stays_is_in_the_state(kind):
    streams = {
        Kind.EPISODE: Stream.JOURNAL,
        Kind.OUTPUT: Stream.JOURNAL,
        Kind.WORKFLOW: Stream.JOURNAL,
        Kind.DEAD: Stream.DEAD,
    }
    key = "origin.7" if kind is Kind.DEAD else "k1"
    subject, wanted = STACK.aggregate(kind, key), streams.get(kind, Stream.STATE)
    assert STACK.part_of(kind, key) == wanted.value
    assert STACK.stream_of(subject) == STACK.stream(wanted)


def test_every_subject_is_held_by_exactly_one_stream():
    held = [subject for stream in Stream for subject in STACK.stream_subjects(stream)]
    made = [
        STACK.event("a.b"),
        STACK.episode_inbox("monitor", "e1"),
        STACK.attending_inbox("monitor", "e1"),
        STACK.timer("monitor", "debounce", "k"),
        STACK.due("monitor"),
        STACK.episode("e1"),
        STACK.finding("k"),
        STACK.signal("r"),
        STACK.dead("o", "c"),
    ]
    for subject in made:
        assert sum(subject.startswith(each.removesuffix(">")) for each in held) == 1


def test_stacks_share_no_subject():
    assert not STACK.episode("e1").startswith(f"{Stack('other').name}.")
    assert STACK.episode("e1") == "s.episode.e1"


def test_the_inbox_of_an_actor_matches_its_episodes_alone():
    mine = STACK.actor_inbox("monitor").removesuffix("*")
    assert STACK.episode_inbox("monitor", "e1").startswith(mine)
    assert not STACK.episode_inbox("monitor-2", "e1").startswith(mine)


def test_what_is_said_to_an_episode_and_what_calls_for_it_are_in_two_queues():
    mine = STACK.attending_inboxes("monitor").removesuffix("*")
    assert STACK.attending_inbox("monitor", "e1").startswith(mine)
    assert not STACK.attending_inbox("monitor-2", "e1").startswith(mine)
    assert not STACK.episode_inbox("monitor", "e1").startswith(mine)
    assert STACK.attending_durable("monitor") != STACK.inbox_durable("monitor")


def test_no_two_readers_of_a_foreign_stream_share_a_consumer():
    """Names may hold what joins them, so it is not that which tells them apart."""
    readers = [
        ("a", "b-c", "orders.>"),
        ("a-b", "c", "orders.>"),
        ("a", "b-c", "orders.*"),
        ("a", "b", "orders.>"),
        ("b", "b", "orders.>"),
    ]
    durables = {Stack(stack).feed_durable(actor, subject) for stack, actor, subject in readers}
    assert len(durables) == len(readers)
    assert all(re.fullmatch(r"[a-c-]+-[0-9a-f]{16}", each) for each in durables)


@pytest.mark.parametrize("bad", ["", "a.b", "*"])
def test_an_actor_that_is_no_name_has_no_inbox_gate_or_claim(bad):
    queues = (STACK.gate_durable, STACK.inbox_durable, STACK.attending_durable, STACK.due_durable)
    for spelled in (*queues, STACK.actor_inbox, STACK.attending_inboxes, STACK.due):
        with pytest.raises(BadName):
            spelled(bad)
    with pytest.raises(BadName):
        episode_claim(bad, "e1")


@pytest.mark.parametrize("bad", [0, -1, PARTITIONS_MAX + 1])
def test_what_is_no_number_of_partitions_is_refused(bad):
    with pytest.raises(BadName, match=f"partitions: {bad}; use 1 to 64"):
        Stack("s", partitions=bad)


def test_where_an_aggregate_lives_is_the_same_for_ever():
    assert SPREAD.episode("e1") == "s.episode.0of4.e1"
    assert SPREAD.episode_inbox("monitor", "e1") == "s.inbox.0of4.episode.monitor.e1"
    assert SPREAD.attending_inbox("monitor", "e1") == "s.inbox.0of4.attend.monitor.e1"
    assert SPREAD.finding("host:disk:web-1") == "s.finding.3of4.host=3Adisk=3Aweb-1"
    assert Stack("s", 64).finding("日本") == "s.finding.34of64.=E6=97=A5=E6=9C=AC"


@given(UNICODE, COUNTS)
def test_an_aggregate_of_any_partition_is_known_by_its_subject(key, count):
    stack = Stack("s", partitions=count)
    assert stack.aggregate_of(stack.finding(key)) == (Kind.FINDING, key)


@given(UNICODE, COUNTS)
def test_the_subject_of_an_aggregate_is_held_by_the_stream_of_its_partition_alone(key, count):
    stack = Stack("s", partitions=count)
    subject = stack.finding(key)
    home = stack.partition_of(Kind.FINDING, key)
    assert stack.stream_of(subject) == stack.stream(Stream.STATE, home)
    assert stack.part_of(Kind.FINDING, key) == stack.part(Stream.STATE, home)
    holding = [
        stack.stream(stream, partition)
        for stream in Stream
        for partition in stack.partitions_of(stream)
        for held in stack.stream_subjects(stream, partition)
        if subject.startswith(held.removesuffix(">"))
    ]
    assert holding == [stack.stream(Stream.STATE, home)]


@given(NAMES, NAMES, UNICODE, COUNTS)
def test_a_timer_is_known_by_its_subject_and_fires_in_its_own_stream(actor, purpose, key, count):
    stack = Stack("s", partitions=count)
    subject = stack.timer(actor, purpose, key)
    home = stack.timer_partition(actor, purpose, key)
    assert stack.timer_of(subject) == (actor, purpose, key)
    assert stack.due_of(subject) == stack.due(actor, home)
    assert stack.actor_of_due(stack.due(actor, home)) == actor
    for each, every in ((subject, stack.every_timer), (stack.due(actor, home), stack.every_due)):
        assert stack.stream_of(each) == stack.stream(Stream.WORK, home)
        assert each.startswith(every(home).removesuffix(">"))


def test_where_a_timer_lives_is_the_same_for_ever():
    assert STACK.timer("monitor", "debounce", "a.b") == "s.timer.monitor.debounce.a=2Eb"
    assert SPREAD.timer("monitor", "debounce", "a.b") == "s.timer.0of4.monitor.debounce.a=2Eb"
    assert (STACK.due("monitor"), SPREAD.due("monitor", 2)) == (
        "s.due.monitor",
        "s.due.2of4.monitor",
    )


@pytest.mark.parametrize(
    "stray", ["s.timer.x", "s.timer.a.p.k.x", "s.timer.a.p.=4", "s.timer.0of4.a.p.k"]
)
def test_where_no_timer_can_be_none_is_found(stray):
    with pytest.raises(BadName):
        STACK.timer_of(stray)


def test_a_timer_in_the_wrong_partition_is_none():
    home = SPREAD.timer_partition("a", "p", "k")
    stray = SPREAD.timer("a", "p", "k").replace(f"{home}of4", f"{(home + 1) % 4}of4")
    with pytest.raises(BadName):
        SPREAD.timer_of(stray)


def test_what_is_no_timer_has_no_name_of_one():
    assert STACK.timer_of(STACK.episode_inbox("monitor", "e1")) is None
    for stray in ("s.due.a.b", "s.due.0of4.a", "s.due.", STACK.episode("e1")):
        with pytest.raises(BadName):
            STACK.actor_of_due(stray)


@given(NAMES)
def test_an_episode_and_its_inbox_are_in_one_partition(episode_id):
    home = SPREAD.partition_of(Kind.EPISODE, episode_id)
    inbox, said = (
        each("monitor", episode_id) for each in (SPREAD.episode_inbox, SPREAD.attending_inbox)
    )
    assert SPREAD.stream_of(inbox) == SPREAD.stream_of(said) == SPREAD.stream(Stream.WORK, home)
    assert inbox.startswith(SPREAD.actor_inbox("monitor", home).removesuffix("*"))
    assert said.startswith(SPREAD.attending_inboxes("monitor", home).removesuffix("*"))


def test_aggregates_are_spread_evenly():
    homes = [SPREAD.partition_of(Kind.EPISODE, f"e{n}") for n in range(4_000)]
    assert all(900 < homes.count(home) < 1_100 for home in range(4))


def test_an_aggregate_in_the_wrong_partition_is_none():
    right = SPREAD.episode("e1")
    home = SPREAD.partition_of(Kind.EPISODE, "e1")
    for partition in {*range(4)} - {home}:
        with pytest.raises(BadName, match="does not live at"):
            SPREAD.aggregate_of(right.replace(f"{home}of4", f"{partition}of4"))
    with pytest.raises(BadName):
        SPREAD.aggregate_of("s.episode.e1")
    with pytest.raises(BadName):
        STACK.aggregate_of(right)


def test_a_partition_that_is_not_there_has_no_name():
    for stream in Stream:
        most = 4 if stream in PARTITIONED else 1
        assert list(SPREAD.partitions_of(stream)) == list(range(most))
        with pytest.raises(BadName, match=f"no partition {most}"):
            SPREAD.stream(stream, most)


def test_layouts_share_no_subject_and_no_stream_but_what_is_never_spread():
    layouts = [Stack("s", partitions=count) for count in (2, 3, 4)]
    for stream in PARTITIONED:
        names = [each.stream(stream, p) for each in layouts for p in each.partitions_of(stream)]
        assert len(names) == len(set(names)) == 9
    subjects = [layout.episode("e1") for layout in layouts]
    assert len(set(subjects)) == 3
    for stream in (Stream.EVENTS, Stream.DEAD):
        assert {layout.stream(stream) for layout in layouts} == {STACK.stream(stream)}


def test_the_name_of_a_stream_says_what_it_is_in_any_layout():
    for stack in (STACK, SPREAD):
        for partition in stack.partitions_of(Stream.WORK):
            assert STACK.is_of(stack.stream(Stream.WORK, partition), Stream.WORK)
            assert SPREAD.is_of(stack.stream(Stream.WORK, partition), Stream.WORK)
    for other in ("s-journal", "s-work-", "s-work-1", "t-work", "s-worker", ""):
        assert not STACK.is_of(other, Stream.WORK)


@given(UNICODE, NAMES, NAMES, COUNTS, COUNTS)
def test_what_is_moved_to_another_layout_is_the_same_there(key, actor, id_, old, new):
    old, new = Stack("s", old), Stack("s", new)
    assert old.moved(old.finding(key), to=new) == new.finding(key)
    assert old.moved(old.episode(id_), to=new) == new.episode(id_)
    assert old.moved(old.output(key), to=new) == new.output(key)
    assert old.moved(old.lane(actor), to=new) == new.lane(actor)
    assert old.moved(old.episode_inbox(actor, id_), to=new) == new.episode_inbox(actor, id_)
    assert old.moved(old.attending_inbox(actor, id_), to=new) == new.attending_inbox(actor, id_)


@pytest.mark.parametrize(
    "stray", ["s.inbox.x", "s.inbox.episode.a.b.c", "s.nothing.x", "s.event.x"]
)
def test_what_no_layout_knows_is_not_moved(stray):
    with pytest.raises(BadName):
        STACK.moved(stray, to=SPREAD)


def test_where_an_instance_and_its_inbox_live_is_the_same_for_ever():
    assert STACK.workflow("i1") == "s.workflow.i1"
    assert STACK.workflow_inbox("review", "i1") == "s.inbox.workflow.review.i1"
    home = SPREAD.partition_of(Kind.WORKFLOW, "i1")
    assert SPREAD.workflow("i1") == f"s.workflow.{home}of4.i1"
    assert SPREAD.workflow_inbox("review", "i1") == f"s.inbox.{home}of4.workflow.review.i1"
    assert (home, STACK.workflow_durable("review")) == (2, "workflow-review")


@given(NAMES, NAMES, COUNTS)
def test_an_instance_is_known_by_its_subject_and_its_inbox_is_beside_it(workflow, id_, count):
    stack = Stack("s", partitions=count)
    home = stack.partition_of(Kind.WORKFLOW, id_)
    inbox = stack.workflow_inbox(workflow, id_)
    assert stack.aggregate_of(stack.workflow(id_)) == (Kind.WORKFLOW, id_)
    assert stack.stream_of(stack.workflow(id_)) == stack.stream(Stream.JOURNAL, home)
    assert stack.stream_of(inbox) == stack.stream(Stream.WORK, home)
    assert inbox.startswith(stack.workflow_inboxes(workflow, home).removesuffix("*"))
    assert not inbox.startswith(stack.actor_inbox(workflow, home).removesuffix("*"))


@given(NAMES, NAMES, COUNTS, COUNTS)
def test_an_instance_that_is_moved_is_the_same_there(workflow, id_, old, new):
    old, new = Stack("s", old), Stack("s", new)
    assert old.moved(old.workflow(id_), to=new) == new.workflow(id_)
    inbox = old.workflow_inbox(workflow, id_)
    assert old.moved(inbox, to=new) == new.workflow_inbox(workflow, id_)


@pytest.mark.parametrize("bad", ["", "a.b", "*"])
def test_a_workflow_that_is_no_name_has_no_inbox(bad):
    for spelled in (STACK.workflow_inboxes, STACK.workflow_durable):
        with pytest.raises(BadName, match=r"^workflow: "):
            spelled(bad)
    with pytest.raises(BadName):
        STACK.workflow_inbox(bad, "i1")


@pytest.mark.parametrize("subject", ["s", "s.nothing.x", ""])
def test_what_no_stream_holds_has_no_stream(subject):
    with pytest.raises(BadName):
        STACK.stream_of(subject)
