"""`lab_histories`: recorded episodes of agents, as tests of their prompts."""

from __future__ import annotations

from pathlib import Path

from engine.app.app import App
from engine.operations.lab_verdict import LabVerdict
from vigil.asking.lab import defined_by, read_histories, require_defined, run_lab


async def lab_histories(
    path: str | Path,
    app: App,
    *,
    model: str = "",
    asks_all: bool = False,
    definition: str | Path | None = None,
) -> int:
    """Run recorded episodes with `app`, asking models anew, and return how many there are.

    Nothing but models is called, and these only for requests that are not as recorded. Findings,
    outputs, classification and the end of each must be as recorded.

    Args:
        path: a history, as `vigil.histories.record` makes it, or a folder with files `*.jsonl`.
        model: what every agent asks instead of its own model.
        asks_all: make each request, also where it is as recorded.
        definition: the file that defines their actor; None: it is in the code of `app`.

    Raises `AssertionError`, which names each episode that differs, how, and the first request that
    was answered in another way; `vigil.errors.Mistake` if there is no history, or it cannot be run.
    """
    histories = read_histories([Path(path)])
    defined = {} if definition is None else defined_by(str(definition), histories, app)
    require_defined(histories, app, defined)
    found = await run_lab(histories, app, model=model, asks_all=asks_all, defined=defined)
    differing = {name: each for name, each in found.items() if not each.is_same}
    if differing:  # guard: lab-test-fails
        told = [line for name, each in differing.items() for line in _lines(name, each)]
        raise AssertionError("\n".join(["these did not come out as recorded:", *told]))
    return len(found)


def _lines(name: str, verdict: LabVerdict) -> list[str]:
    pairs = [(each.what, each.then, each.now) for each in verdict.differences]
    if (first := verdict.divergence) is not None:
        pairs.append((first.request, first.then, first.now))
    return [f"{name}:", *(f"  {what}: {_said(was)}, now {_said(is_)}" for what, was, is_ in pairs)]


def _said(value: object) -> str:
    return "none" if value in (None, "") else str(value)
