"""Why no live node acts on a command to an episode, an instance or an output.

A node can act if it has the episode's actor, at the revision the episode was opened with, and its
expectation. Otherwise the command stays in the actor's queue, and is a dead letter after about an
hour. The rules use what nodes report about themselves: whether a node of another revision can run
the episode shows only when it tries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Final

import msgspec

from engine.app.workflow_plan import starter_id
from engine.cluster.members import live_nodes
from engine.cluster.modes import SWITCHES
from engine.cluster.nodes import ActorInfo, NodeInfo
from engine.episodes.episode import ENDED, Episode, fold
from engine.errors import NotOnJournal
from engine.outputs.output import fold as fold_output
from engine.validation import check_id
from streams.model.definitions import RegisteredDefinition
from streams.model.events import EpisodeOpened
from streams.model.events.definitions import DefinitionKind
from streams.model.modes import NodeMode
from streams.ports.all import Ports

NODES_SHOWN_MAX: Final = 5
"""Most nodes that one line lists."""

UNTIL_THEN: Final = "until then, and is ruled on then"
FOR_AN_HOUR: Final = "for about an hour, then it is a dead letter to requeue"
"""How long a queue keeps a command that no node can act on, see `HINDRANCE_S` and
`HINDRANCE_DELIVERIES_MAX` of `engine.execution.commands`."""

LACKS: Final = "it does not have it"
DISABLED: Final = "it is disabled"
NOBODY: Final = "none is up at all"
START_ONE: Final = "start one that does"


class Unheard(msgspec.Struct, frozen=True, kw_only=True):
    """Why no node acts on commands to an episode or an instance."""

    why: str
    """For people, with the live nodes and what they report."""
    is_certain: bool
    """Whether no live node can; otherwise none is known to."""
    is_tried: bool
    """Whether some nodes try nevertheless, and give up after about an hour."""
    remedy: str
    """What to do: which node to switch on, if its mode is the only obstacle."""

    def __str__(self) -> str:
        kept = FOR_AN_HOUR if self.is_tried else UNTIL_THEN
        return f"{self.why}; {self.remedy}: what was asked for stays in the queue {kept}"


class _Answers(Enum):
    YES = auto()
    PERHAPS = auto()
    """It tries, and may succeed."""
    NO = auto()
    """It receives the command and hands it back."""
    NOTHING = auto()
    """It does not receive it."""


class _NodeAnswer(msgspec.Struct, frozen=True):
    node: str
    hears: _Answers
    why: str = ""
    """Why it cannot act; empty: it can."""
    switch: str = ""
    """The `vigil` command that would enable it; empty: none is known."""


def unheard(
    nodes: Iterable[NodeInfo], actor: str, episode: Episode | None = None
) -> Unheard | None:
    """Return why no live node acts on commands to an episode; None: one does."""
    # Without an episode, any node with the actor can: the episode is only to end.
    # Of what has ended only outputs are left, which need neither its revision nor its expectation.
    is_open = episode is not None and episode.status not in ENDED  # guard: ended-needs-no-revision
    opened = episode.opened if episode is not None and is_open else None
    return _told(_what(actor, opened), [_answer_of(node, actor, opened) for node in nodes])


def instance_unheard(
    nodes: Iterable[NodeInfo], workflow: str, *, registered: RegisteredDefinition | None
) -> Unheard | None:
    """Return why no live node acts on commands to a workflow instance; None: one does."""
    # Any node continues a disabled workflow. Without `registered` it is not defined as data.
    answers = [_ear_of_workflow(node, workflow, registered) for node in nodes]
    return _told(f"workflow {workflow!r}", answers)


def _told(what: str, answers: Sequence[_NodeAnswer]) -> Unheard | None:
    heard = {each.hears for each in answers}
    if _Answers.YES in heard:
        return None
    is_certain = _Answers.PERHAPS not in heard  # guard: tried-is-uncertain
    runs = "runs" if is_certain else "is sure to run"
    return Unheard(
        why=f"no node that is up {runs} {what} ({_reasons(answers) if answers else NOBODY})",
        is_certain=is_certain,
        is_tried=bool(heard - {_Answers.NOTHING}),  # guard: untakable-is-tried
        remedy=next(
            (f"{each.switch}, or {START_ONE}" for each in answers if each.switch), START_ONE
        ),
    )


def _what(actor: str, opened: EpisodeOpened | None) -> str:
    if opened is None:
        return f"actor {actor!r}"
    if opened.revision:
        return f"revision {opened.revision} of actor {actor!r}"
    return f"actor {actor!r} with expectation {opened.expectation_id!r}"


def _reasons(answers: Sequence[_NodeAnswer]) -> str:
    """Return the nodes' reasons, equal ones together; a missing definition comes last."""
    said: defaultdict[str, list[str]] = defaultdict(list)
    # guard: reasoned-nodes-first
    for each in sorted(answers, key=lambda each: each.why == LACKS)[:NODES_SHOWN_MAX]:
        said[each.why].append(each.node)
    told = [f"{', '.join(names)}: {why}" for why, names in said.items()]
    more = len(answers) - NODES_SHOWN_MAX
    return "; ".join([*told, f"and {more:,} more"] if more > 0 else told)


def _answer_of(node: NodeInfo, actor: str, opened: EpisodeOpened | None) -> _NodeAnswer:
    info = node.actors.get(actor)
    if info is not None:
        return _ear_of_runner(node, actor, info, opened)
    if actor in node.closed:
        return _answer_of_fallback(node, actor, opened)
    why = node.problems.get(_named(DefinitionKind.AGENT, actor), LACKS)
    return _NodeAnswer(node.name, _Answers.NOTHING, why)


def _ear_of_runner(
    node: NodeInfo, actor: str, info: ActorInfo, opened: EpisodeOpened | None
) -> _NodeAnswer:
    could = _answer_of_able(node.name, info, opened)
    return could if info.runs else _idle(node, actor, could.hears)


def _answer_of_able(node: str, info: ActorInfo, opened: EpisodeOpened | None) -> _NodeAnswer:
    if opened is None:
        return _NodeAnswer(node, _Answers.YES)
    if opened.revision not in (0, info.revision):
        has = f"it has revision {info.revision}" if info.revision else "it has it in code"
        return _NodeAnswer(node, _Answers.PERHAPS, has)
    # A node that has much to say of itself leaves the expectations out.
    # guard: expectation-missing-unheard
    if info.expectations and opened.expectation_id not in info.expectations:
        return _NodeAnswer(
            node, _Answers.NO, f"there it has no expectation {opened.expectation_id!r}"
        )
    return _NodeAnswer(node, _Answers.YES)


def _idle(node: NodeInfo, actor: str, could: _Answers) -> _NodeAnswer:
    if SWITCHES[node.mode].runs:
        why, whose = "by its mode for it, it runs nothing of it", f" --actor {actor}"
    else:
        why, whose = f"it is in mode {node.mode.value}, and runs nothing", ""
    switch = f"`vigil mode {node.name} {NodeMode.FULL.value}{whose}`"
    # guard: unruling-not-switched-on
    return _NodeAnswer(node.name, _Answers.NOTHING, why, "" if could is _Answers.NO else switch)


def _answer_of_fallback(node: NodeInfo, actor: str, opened: EpisodeOpened | None) -> _NodeAnswer:
    if opened is None:
        return _NodeAnswer(node.name, _Answers.YES)
    if not opened.revision:
        return _NodeAnswer(
            node.name, _Answers.NO, "its code has it no more, as when this was opened"
        )
    key = _named(DefinitionKind.AGENT, actor)
    problem, about = node.problems.get(key, ""), node.problems_at.get(key)
    if problem and about == opened.revision:
        return _NodeAnswer(node.name, _Answers.NO, problem)
    if problem:
        return _NodeAnswer(
            node.name, _Answers.PERHAPS, f"revision {about}: {problem}" if about else problem
        )
    if actor in node.fallbacks:
        return _NodeAnswer(node.name, _Answers.PERHAPS, f"{DISABLED}, and could not run there")
    return _NodeAnswer(node.name, _Answers.PERHAPS, DISABLED)


def _ear_of_workflow(
    node: NodeInfo, workflow: str, registered: RegisteredDefinition | None
) -> _NodeAnswer:
    starter = starter_id(workflow)
    info = node.actors.get(starter)
    if info is not None:
        return _ear_of_runner(node, starter, info, None)
    if registered is None:
        return _NodeAnswer(node.name, _Answers.NOTHING, LACKS)
    if not SWITCHES[node.mode].runs:  # guard: idle-mode-takes-no-workflow
        return _idle(node, starter, _Answers.PERHAPS)
    usual = LACKS if registered.holds else DISABLED
    why = node.problems.get(_named(DefinitionKind.WORKFLOW, workflow), usual)
    return _NodeAnswer(node.name, _Answers.PERHAPS, why)


def _named(kind: DefinitionKind, id_: str) -> str:
    return f"{kind.value}.{id_}"


async def why_unheard(ports: Ports, episode_id: str) -> Unheard | None:
    """Return why no live node acts on commands to an episode; None: one does.

    A node that has just stopped counts as live until its lease lapses. The text is one line.

    Raises:
        BadRequest: `episode_id` is no id.
        NotOnJournal: there is no such episode.
    """
    check_id("episode_id", episode_id)
    return await _why_unheard(ports, episode_id)


async def why_output_unheard(ports: Ports, key: str) -> Unheard | None:
    """Return why no live node acts on commands about an output; None: one does.

    Raises:
        BadName: no output can have such a key.
        NotOnJournal: there is no such output.
    """
    output = fold_output(await ports.log.read(ports.stack.output(key)))
    if output.proposed is None:
        raise NotOnJournal("there is no such output")
    return await _why_unheard(ports, output.proposed.episode_id)


async def _why_unheard(ports: Ports, episode_id: str) -> Unheard | None:
    episode = fold(await ports.log.read(ports.stack.episode(episode_id)))
    if episode.opened is None:
        raise NotOnJournal("there is no such episode")
    return unheard(await live_nodes(ports.gates), episode.opened.actor_id, episode)
