"""Definitions in files, and an app that has what they name, for the commands about them."""

from __future__ import annotations

from pathlib import Path

DISKS = """
id: disk_watch
expectations:
  disk_has_room:
    on: {event: resource.updated}
    cooldown_s: 60
    strategy: {ref: parts:Look}
"""

LACKS = "strategy.ref: there is none"

REVIEW = """
name: review
on: {event: client.changed}
steps:
  screen: {actor: disk_watch, expectation: disk_has_room}
  pay: {actor: disk_watch, expectation: disk_has_room, depends_on: [screen]}
"""

HEALTHY = """
  disk_is_healthy:
    on: [{event: disk.asked}, {every: 30d}]
    strategy: {ref: parts:Ask}
"""

PARTS = """
from vigil import Actor, App, ConvergeResult, Strategy, approval, converge, manual, workflow


class Look(Strategy):
    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        return converge()

    def converge(self, state, ctx):
        return ConvergeResult(summary="seen")


class Ask(Look):
    def next_step(self, state, ctx):
        return approval({"look": 1}, summary="look?")


clerk = Actor("clerk")
clerk.expect("look", Look, on=[manual(), workflow()])
app = App(actors=[clerk], strategies={"parts:Look": Look, "parts:Ask": Ask})
poor = App(actors=[clerk])
"""


def write_files(folder: Path) -> None:
    """Write definitions of an actor, and one of a workflow, and an app."""
    (folder / "disks.yaml").write_text(DISKS)
    (folder / "two.yaml").write_text(DISKS + HEALTHY)
    (folder / "review.yaml").write_text(REVIEW)
    (folder / "parts.py").write_text(PARTS)


def done(vigil, *arguments: str, **options) -> str:
    """Return what a command says that must go well."""
    ran = vigil.run(*arguments, **options)
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    return ran.stdout


def calmer(folder: Path) -> str:
    """Write a file with a longer cooldown, and return its name."""
    (folder / "calmer.yaml").write_text(DISKS.replace("60", "120"))
    return "calmer.yaml"
