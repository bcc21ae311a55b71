"""What must be true after all that, read from the journal, the ledger and the tables.

| what | is wrong when |
| --- | --- |
| lost | an event has no episode, an episode failed that had no reason to, or the journal has an effect that the ledger does not know |
| doubled | an event has two episodes, a life has two ends or two of one step, a key has two effects, or a call began after its step was recorded |
| stuck | an episode has not ended |
| projection_diffs | a table says something else than the fold of the journal |
| events_missing | a public event that follows from the journal is not there, not as it should be, or before an earlier one of its aggregate |
"""  # noqa: E501 - a table's row is one line

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.episodes.episode import ENDED, Episode, Status, fold
from streams.json import unraw
from streams.layout import Kind
from streams.model.events import EpisodeFinished, StepAnnounced, StepRecorded
from streams.model.triggers import EventTrigger
from streams.ports.log import Recorded
from tests.acceptance.agreement import Lives, steps_of
from tests.chaos.ledger import Entries
from tests.lives import takeovers


@dataclass(frozen=True)
class Verdict:
    """Everything that is wrong, in words."""

    lost: Sequence[str]
    doubled: Sequence[str]
    stuck: Sequence[str]
    projection_diffs: Sequence[str]
    events_missing: Sequence[str]

    def faults(self) -> list[str]:
        """Return all of it."""
        return [f"{name}: {what}" for name, found in vars(self).items() for what in found]


def judge(
    published: Collection[str],
    lives: Lives,
    entries: Entries,
    diffs: Sequence[str],
    missing: Sequence[str],
) -> Verdict:
    """Return what is wrong with the `lives` of episodes that the `published` events woke."""
    episodes = {key: life for (kind, key), life in lives.items() if kind is Kind.EPISODE}
    folded = {key: fold(life) for key, life in episodes.items()}
    return Verdict(
        lost=[*_unheard(published, folded), *_failed(folded), *_unknown(episodes, entries)],
        doubled=[
            *_opened_twice(folded),
            *_lived_twice(episodes),
            *_effected_twice(entries),
            *_called_again(episodes, entries),
        ],
        stuck=[f"{key} is {one.status}" for key, one in folded.items() if one.status not in ENDED],
        projection_diffs=diffs,
        events_missing=missing,
    )


def exercised(lives: Lives, entries: Entries) -> Counter[str]:
    """Return how often the guards were needed: a run that never needs one says nothing of it."""
    folded = [fold(life) for (kind, _), life in lives.items() if kind is Kind.EPISODE]
    ends = [episode.finished.error_class for episode in folded if episode.finished]
    return Counter(
        takeovers=sum(takeovers(life) for (kind, _), life in lives.items() if kind is Kind.EPISODE),
        calls_repeated=sum(len(calls) - 1 for calls in entries.calls.values()),
        outcomes_unknown=ends.count("outcome_unknown"),
        functions_done=sum(
            episode.status is Status.DONE
            and episode.opened is not None
            and episode.opened.expectation_id == "journey"
            for episode in folded
        ),
    )


def _cause(episode: Episode) -> str:
    assert episode.opened is not None
    assert isinstance(episode.opened.trigger, EventTrigger)
    return episode.opened.trigger.event_id


def _unheard(published: Collection[str], folded: Mapping[str, Episode]) -> Iterator[str]:
    heard = {_cause(episode) for episode in folded.values()}
    return (f"event {id_} has no episode" for id_ in published if id_ not in heard)


def _failed(folded: Mapping[str, Episode]) -> Iterator[str]:
    """Yield the episodes that failed, except those that had to say that they do not know."""
    for key, episode in folded.items():
        finished, opened = episode.finished, episode.opened
        if finished is None or opened is None or episode.status is Status.DONE:
            continue
        must_ask = opened.expectation_id == "notify" and finished.error_class == "outcome_unknown"
        if not must_ask:
            yield f"{key} {episode.status}: {finished.error_class}: {finished.error_detail}"


def _unknown(episodes: Mapping[str, Sequence[Recorded]], entries: Entries) -> Iterator[str]:
    for key, life in episodes.items():
        for effect_key, step in _effects(life):
            receipts = {effect.receipt for effect in entries.effects.get(effect_key, ())}
            if step.error_class or unraw(step.result)["receipt"] not in receipts:
                yield f"{key} recorded {step.error_class or step.result!r}, not one of {receipts}"


def _opened_twice(folded: Mapping[str, Episode]) -> Iterator[str]:
    causes = Counter(_cause(episode) for episode in folded.values())
    return (f"event {id_} has {count} episodes" for id_, count in causes.items() if count > 1)


def _lived_twice(episodes: Mapping[str, Sequence[Recorded]]) -> Iterator[str]:
    for key, life in episodes.items():
        events = [event for record in life for event in record.commit.events]
        ends = sum(isinstance(event, EpisodeFinished) for event in events)
        if ends > 1:
            yield f"{key} ended {ends} times"
        numbers = [step.step_no for step in steps_of(life)]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"{key} recorded the steps {numbers}"


def _effected_twice(entries: Entries) -> Iterator[str]:
    for key, effects in entries.effects.items():
        if len(effects) > 1:
            nodes = [called.node for called in entries.calls[key]]
            yield f"key {key} has {len(effects)} effects, by {nodes}"


def _called_again(episodes: Mapping[str, Sequence[Recorded]], entries: Entries) -> Iterator[str]:
    """Yield the calls that began when the journal already had their step."""
    for life in episodes.values():
        recorded_at = {
            step.step_no: record.commit.at for record in life for step in steps_of([record])
        }
        for effect_key, step in _effects(life):
            for called in entries.calls.get(effect_key, ()):
                late_s = (called.begun_at - recorded_at[step.step_no]).total_seconds()
                if late_s > 0:
                    yield f"key {effect_key} was called by {called.node} {late_s:.3f} s too late"


def _effects(life: Sequence[Recorded]) -> Iterator[tuple[str, StepRecorded]]:
    """Yield the recorded steps with side effects, each with its key."""
    events = [event for record in life for event in record.commit.events]
    # A function announces steps of several branches before it records any: they have paths.
    keys = {
        each.path or each.step_no: each.idempotency_key
        for each in events
        if isinstance(each, StepAnnounced) and each.until is None
    }
    places = ((step.path or step.step_no, step) for step in steps_of(life))
    return ((keys[place], step) for place, step in places if place in keys)
