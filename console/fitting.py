"""Whether an app has what definitions name: what a node with this app would say of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from console.drafts import Draft
from console.errors import Mistake
from engine import App
from engine.definitions.casting import cast, make
from engine.stacking import on_stack
from streams.definitions import Edition, definition_id


def require_fitting(
    app: App, stack: str, drafts: Sequence[Draft], editions: Iterable[Edition]
) -> None:
    """Refuse drafts that a node with `app` could not run.

    Args:
        app: what nodes run.
        stack: the name of the one that they run in.
        drafts: what is to be defined.
        editions: what is defined already; workflows may run actors and workflows of these.

    Raises:
        Mistake: names the file and what is wrong in it.
    """
    planned = {definition_id(each.kind, each.id): each for each in editions}
    planned |= {definition_id(each.kind, each.id): _edition(each) for each in drafts}
    here = on_stack(app, stack)
    made = [make(each, here) for each in planned.values()]
    problems = cast(here, made, stack=stack).problems
    for draft in drafts:
        problem = problems.get(definition_id(draft.kind, draft.id))
        if problem is not None:
            raise Mistake(f"{draft.file}: {problem}")


def _edition(draft: Draft) -> Edition:
    """Return a draft as if it were the first revision of it."""
    return Edition(kind=draft.kind, id=draft.id, revision=1, seq=0, body=draft.body)
