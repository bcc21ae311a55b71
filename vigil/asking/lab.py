"""Lab runs of several histories: where they come from, how far it is, and files of what differs.

episodes of a stack ┐
├──▶ runs, some at a time ──▶ verdicts ──▶ histories and a test of pytest
files *.jsonl       ┘
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from engine.app.actor import Actor
from engine.app.app import App
from engine.definitions import agent_of, to_actor
from engine.episodes.episode import fold
from engine.errors import BadDefinition, BadHistory, InvalidAction
from engine.functions.agents import agents
from engine.operations.lab import IN_FLIGHT, lab_each
from engine.operations.lab_verdict import LabVerdict
from engine.operations.replay import load
from streams.clock import SystemClock
from streams.json import JsonObject, unraw
from streams.model.events import DefinitionKind, EpisodeOpened
from vigil.asking.definitions.drafts import drafts_of
from vigil.errors import Mistake, Trouble

SUFFIX: Final = ".jsonl"
"""Of files with histories."""

FILES_MAX: Final = 10_000
"""Most histories of one run."""

TOLD_EVERY_S: Final = 1.0
"""Between two lines of progress, in seconds."""

TEST_FILE: Final = "test_lab.py"

TEST: Final = '''"""Episodes that did not come out as recorded. Written by `vigil lab --export`."""

from pathlib import Path

import pytest

from vigil.testing import lab_histories
from {module} import {attribute} as app

pytestmark = pytest.mark.vigil

HISTORIES = sorted(Path(__file__).parent.glob("*{suffix}"))


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.stem)
async def test_an_episode_comes_out_as_recorded(history):
    await lab_histories(history, app{options})
'''

_CLOCK: Final = SystemClock()


def read_histories(paths: Iterable[Path]) -> dict[str, bytes]:
    """Return path → history of files, and of the files `*.jsonl` in folders.

    Raises:
        Mistake: there is none, or there are too many.
        Trouble: a file cannot be read.
    """
    files: list[Path] = []
    for path in paths:
        found = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not found:  # guard: lab-folder-has-histories
            raise Mistake(f"{path}: there is no history, no *{SUFFIX}, in this folder")
        files += found
    if len(files) > FILES_MAX:
        raise Mistake(f"{len(files):,} histories, the limit is {FILES_MAX:,}")
    histories: dict[str, bytes] = {}
    for file in files:
        try:
            histories[str(file)] = file.read_bytes()
        except FileNotFoundError as error:
            raise Mistake(f"{file}: there is no such file") from error
        except OSError as error:
            raise Trouble(f"{file}: {error.strerror or error}") from error
    return histories


def defined_by(file: str, histories: Mapping[str, bytes], app: App) -> dict[str, Actor]:
    """Return history → its actor, as a definition file makes it; without histories of others.

    Raises:
        Mistake: the file defines no actor, one that cannot be made with the parts of `app`, one
            that is in its code, or one that none of the histories is of.
        Trouble: it cannot be read.
    """
    drafts = drafts_of(None, [file], None)
    if len(drafts) > 1 or drafts[0].kind is not DefinitionKind.AGENT:
        raise Mistake(f"--definition {file}: name a file that defines one actor")
    (draft,) = drafts
    if draft.id in app.actors:  # guard: lab-code-before-definition
        raise Mistake(f"--definition {file}: the app has {draft.id!r} in its code, which counts")
    actor = _made(f"--definition {file}", unraw(draft.body), app)
    found = {
        name: actor
        for name, history in histories.items()
        if (opened := _opened(history)) is not None and opened.actor_id == draft.id
    }
    if not found:  # guard: lab-definition-of-these
        raise Mistake(f"--definition {file}: no episode to be run is of {draft.id!r}")
    return found


async def defined_then(
    histories: Mapping[str, bytes],
    app: App,
    read: Callable[[str, int], Awaitable[JsonObject]],
) -> dict[str, Actor]:
    """Return history → its actor at the revision that it began with; none for those in code.

    `read`: returns the definition of an actor as of a revision.

    Raises `Mistake` if one cannot be made with the parts of `app`.
    """
    found, made = dict[str, Actor](), dict[tuple[str, int], Actor]()
    for name, history in histories.items():
        opened = _opened(history)
        if opened is None or not opened.revision or opened.actor_id in app.actors:
            continue
        key = opened.actor_id, opened.revision
        if key not in made:
            about = f"{opened.actor_id}, revision {opened.revision}"
            made[key] = _made(about, await read(*key), app, revision=opened.revision)
        found[name] = made[key]
    return found


def require_defined(histories: Mapping[str, bytes], app: App, defined: Mapping[str, Actor]) -> None:
    """Raise `Mistake` for a history whose actor is neither in code nor `defined`."""
    for name, history in histories.items():
        opened = None if name in defined else _opened(history)
        # guard: lab-asks-for-definition
        if opened is not None and opened.revision and opened.actor_id not in app.actors:
            what = f"actor {opened.actor_id!r} is defined in a file"
            raise Mistake(f"{name}: {what}; give it as --definition FILE")


def _opened(history: bytes) -> EpisodeOpened | None:
    """Return how the episode of a history began; None: it is no history."""
    try:
        return fold(load(history.partition(b"\n")[0])).opened
    except BadHistory:
        return None


def _made(about: str, definition: JsonObject, app: App, *, revision: int = 0) -> Actor:
    try:
        return to_actor(agent_of(definition), app, revision=revision)
    except BadDefinition as error:
        raise Mistake(f"{about}: {error}") from error


async def run_lab(
    histories: Mapping[str, bytes],
    app: App,
    *,
    model: str = "",
    asks_all: bool = False,
    in_flight: int = IN_FLIGHT,
    say: Callable[[str], None] | None = None,
    defined: Mapping[str, Actor] | None = None,
) -> dict[str, LabVerdict]:
    """Run histories, each under its name, with today's code; return their verdicts.

    The arguments are those of `lab_each`; `say` is called with lines that say how far it is.

    Raises `Mistake` if no agent can ask `model`, or a history cannot be run; it names that.
    """
    if model and (problem := _problem_of_model(model)):  # guard: lab-model-known
        raise Mistake(f"model {model}: {problem}")
    done, told_s = 0, _CLOCK.monotonic_s()

    def tell(_name: str, _verdict: LabVerdict) -> None:
        nonlocal done, told_s
        done += 1
        if say is not None and _CLOCK.monotonic_s() - told_s >= TOLD_EVERY_S:
            told_s = _CLOCK.monotonic_s()
            say(f"{done:,} of {len(histories):,} episodes")

    try:
        return await lab_each(
            histories,
            app,
            model=model,
            asks_all=asks_all,
            in_flight=in_flight,
            on_verdict=tell,
            defined=defined,
        )
    except BadHistory as error:
        raise Mistake(str(error)) from error


def _problem_of_model(model: str) -> str:
    try:
        problem: str = agents().problem_of_model(model)
    except InvalidAction as missing:
        return str(missing)
    return problem


def export(
    folder: Path,
    histories: Mapping[str, bytes],
    verdicts: Mapping[str, LabVerdict],
    *,
    app: str,
    model: str = "",
    asks_all: bool = False,
    definition: str = "",
) -> Sequence[Path]:
    """Write the histories that differ into `folder`, with a test of pytest that runs them.

    Return the files; none if nothing differs. `app` is `module:attribute`.

    Raises `Trouble` if one cannot be written.
    """
    differing = {name: each for name, each in verdicts.items() if not each.is_same}
    if not differing:
        return ()
    module, _, attribute = app.partition(":")
    options = f", model={model!r}" if model else ""
    options += ", asks_all=True" if asks_all else ""
    options += f", definition={definition!r}" if definition else ""
    test = TEST.format(module=module, attribute=attribute, suffix=SUFFIX, options=options)
    # guard: lab-exports-what-differs
    files = {f"{each.episode_id}{SUFFIX}": histories[name] for name, each in differing.items()}
    written = {folder / name: text for name, text in {**files, TEST_FILE: test.encode()}.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in written.items():
            path.write_bytes(text)
    except OSError as error:
        raise Trouble(f"{folder}: {error.strerror or error}") from error
    return [*written]
