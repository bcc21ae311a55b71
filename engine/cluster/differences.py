"""How nodes differ in what they declare of one actor. Pure.

During a deploy they do for some minutes. Otherwise two apps use one name in one stack, and each
event goes to whichever of them takes it first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.cluster.nodes import ActorInfo, ExpectationInfo, NodeInfo

NAMED_MAX: Final = 3
"""Most differences that one line names."""

VALUE_CHARS_MAX: Final = 60
"""Longest value in it, in characters; the rest is cut."""

REMEDY: Final = (
    "Outside a deploy, give one of the two apps a stack, or the actor an id, of its own."
)


@dataclass(frozen=True)
class DeclarationDifference:
    """Two nodes that declare an actor differently."""

    actor: str
    """In words, such as `actor 'watcher'`."""
    one: str
    other: str
    what: Sequence[str]
    """Each expectation, option or limit that differs; of two values, that of `one` stands first."""

    @property
    def key(self) -> tuple[str, Sequence[str]]:
        """What is told once, of whichever nodes."""
        return self.actor, self.what

    @property
    def says(self) -> str:
        """All of it, in one line."""
        named = "; ".join(self.what[:NAMED_MAX])
        more = f"; {len(self.what) - NAMED_MAX} more" if len(self.what) > NAMED_MAX else ""
        return (
            f"{self.actor} is declared differently by node {self.one} and node {self.other} "
            f"({named}{more}): expected during a deploy; otherwise each event goes to either"
        )


def differences(
    nodes: Sequence[NodeInfo], *, only: str | None = None
) -> list[DeclarationDifference]:
    """Return where `nodes` differ from the first that has an actor; `only`: of that actor."""
    names = sorted({id_ for node in nodes for id_ in node.actors}) if only is None else [only]
    found: list[DeclarationDifference] = []
    for id_ in names:
        having = [node for node in nodes if id_ in node.actors]
        found += _of_actor(id_, having[0], having[1:]) if having else []
    return found


def differences_from(
    one: NodeInfo, others: Iterable[NodeInfo]
) -> list[Sequence[DeclarationDifference]]:
    """Return where each of `others` differs from `one`; of those alike, the first is named.

    Nodes of one app are alike, so what costs most is done once for them.
    """
    compared: list[tuple[NodeInfo, Sequence[DeclarationDifference]]] = [(one, ())]
    return [_compared(one, other, compared) for other in others]


def _compared(
    one: NodeInfo,
    other: NodeInfo,
    compared: list[tuple[NodeInfo, Sequence[DeclarationDifference]]],
) -> Sequence[DeclarationDifference]:
    for alike, found in compared:
        if alike.actors == other.actors:
            return found
    found = [each for id_ in sorted(one.actors) for each in _of_actor(id_, one, [other])]
    compared.append((other, found))
    return found


def _of_actor(
    id_: str, one: NodeInfo, others: Iterable[NodeInfo]
) -> Iterator[DeclarationDifference]:
    info, known = one.actors[id_], set[tuple[str, ...]]()
    name = f"workflow {info.workflow!r}" if info.workflow else f"actor {id_!r}"
    for other in others:
        theirs = other.actors.get(id_)
        if theirs is None or not (_is_compared(info) and _is_compared(theirs)):
            continue
        what = tuple(_what(info, theirs))
        if what and what not in known:  # guard: alike-differences-once
            known.add(what)
            yield DeclarationDifference(name, one.name, other.name, what)


def _is_compared(info: ActorInfo) -> bool:
    """Return whether an actor is declared in code, and its node does anything with it.

    Of one that is defined as data, nodes tell the revision that they run. A node that has too many
    actors for its report tells no expectations.
    """
    # guard: idle-declaration-not-compared
    return info.revision == 0 and bool(info.expectations) and (info.runs or info.wakes)


def _what(info: ActorInfo, theirs: ActorInfo) -> Iterator[str]:
    """Yield each difference in words, without the nodes: many may differ alike.

    Expectations are the first, which somebody wrote; limits have several values for one option.
    """
    for name in sorted({*info.expectations, *theirs.expectations}):
        ours, others = info.expectations.get(name), theirs.expectations.get(name)
        if ours is None or others is None:
            yield f"expectation {name}: only on the {'first' if others is None else 'second'}"
        else:
            yield from _of_expectation(f"expectation {name}: ", ours, others)
    yield from _values(info.limits, theirs.limits, of="")


def _of_expectation(of: str, ours: ExpectationInfo, theirs: ExpectationInfo) -> Iterator[str]:
    on, theirs_on = {"on": ", ".join(ours.triggers)}, {"on": ", ".join(theirs.triggers)}
    yield from _values(on, theirs_on, of=of)
    yield from _values(ours.options, theirs.options, of=of)


def _values(ours: Mapping[str, Any], theirs: Mapping[str, Any], *, of: str) -> Iterator[str]:
    for name in sorted({*ours, *theirs}):
        one, other = ours.get(name), theirs.get(name)
        if one != other:
            yield f"{of}{name} {_shown(one)} and {_shown(other)}"


def _shown(value: object) -> str:
    return "unset" if value is None else str(value)[:VALUE_CHARS_MAX]
