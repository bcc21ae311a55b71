"""The standing table of mutants: each guard, switched off, must turn some test red.

A guard that no test misses is not specified. Every mutant is tried on a copy of the tree,
so nothing here can leave a guard off. Run from the repository root:

    python tests/mutants.py            all of them
    python tests/mutants.py version    those whose guard's name holds a word
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
TRIAL_S_MAX: Final = 600.0
"""Longest that the tests of one mutant may take. A mutant that hangs them is noticed, too."""

LEFT_OUT: Final = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")


class Mutant(NamedTuple):
    """A guard, and how to switch it off."""

    guard: str
    """What it protects, in words."""
    file: str
    text: str
    """Occurs exactly once in `file`."""
    becomes: str
    tests: str = "tests"
    """Where a test must notice; the narrower, the faster."""


SIMULATION: Final = "tests/simulation/test_survival.py"

TABLE: Final[Sequence[Mutant]] = (
    Mutant(
        "the version check of an append",
        "streams/memory/stream.py",
        "if after is not None and after != (last.seq if last is not None else 0):",
        "if False:",
        SIMULATION,
    ),
    Mutant(
        "a held key is busy",
        "streams/memory/leases.py",
        'if stored is not None and stored.change.state == "claimed":',
        "if False:",
        "tests/contracts/test_leases.py",
    ),
    Mutant(
        "a message id is stored once",
        "streams/memory/stream.py",
        "if message_id not in self._known_ids:",
        "if True:",
        "tests/contracts/test_world.py",
    ),
    Mutant(
        "the same event, the same episode",
        "engine/dedupe.py",
        'return f"event:{event.id}"',
        'return f"event:{event.seq}"',
        SIMULATION,
    ),
    Mutant(
        "a lost answer is told from a lost race",
        "streams/jetstream/log.py",
        "if found is not None and found.headers.get(headers.COMMIT) == commit.id:",
        "if found is not None:",
        "tests/streams/jetstream/test_lost_answers.py",
    ),
    Mutant(
        "the checkpoint's fence",
        "projections/postgres/store.py",
        "if not moved:",
        "if False:",
        "tests/projections/test_projector.py",
    ),
    Mutant(
        "the fence of a takeover",
        "engine/runtime/runner.py",
        "await tenure.fence()",
        "pass",
        SIMULATION,
    ),
    Mutant(
        "the trust in a claim at its fence",
        "engine/runtime/runner.py",
        "held.lease.check(monotonic_s=self.crew.clock.monotonic_s())",
        "pass",
        SIMULATION,
    ),
    Mutant(
        "the command is acknowledged only after the fence",
        "engine/runtime/runner.py",
        "        tenure = Tenure(self.crew, records,",
        "        await delivery.ack()\n        tenure = Tenure(self.crew, records,",
        SIMULATION,
    ),
    Mutant(
        "a lease that cannot be trusted is given up",
        "engine/runtime/keeper.py",
        "if held.lease.trusted_until_s <= next_beat_s:",
        "if False:",
        "tests/engine/runtime/test_keeper.py",
    ),
    Mutant(
        "the claim is released last",
        "engine/runtime/runner.py",
        "            left = await self._own(",
        "            await self.keeper.complete(held)\n            left = await self._own(",
        SIMULATION,
    ),
    Mutant(
        "a lapse calls for recovery",
        "engine/runtime/rescuer.py",
        'if change.state != "expired" or',
        "if True or",
        SIMULATION,
    ),
    Mutant(
        "a node that leaves calls for another",
        "engine/runtime/runner.py",
        "return await self._hand_over(tenure)",
        "return True",
        SIMULATION,
    ),
    Mutant(
        "the end is told again by the next owner",
        "engine/runtime/runner.py",
        "await tenure.tell_again()",
        "pass",
        SIMULATION,
    ),
    Mutant(
        "a side effect is announced first",
        "engine/runtime/driver.py",
        "elif tool is not None and tool.side_effect and isinstance(action, ToolCall):",
        "elif False:",
        SIMULATION,
    ),
    Mutant(
        "the announcement is durable first",
        "engine/runtime/driver.py",
        "idempotency_key=key))\n            await self.scribe.barrier()",
        "idempotency_key=key))",
        SIMULATION,
    ),
    Mutant(
        "a claim that ended before a side effect",
        "engine/runtime/driver.py",
        "        self.check_claim()\n",
        "",
        "tests/engine/runtime/test_driver.py",
    ),
    Mutant(
        "an unknown outcome is not repeated",
        "engine/runtime/driver.py",
        "if tool is None or not tool.idempotent:",
        "if False:",
        SIMULATION,
    ),
    Mutant(
        "a cause is carried out once",
        "engine/runtime/applier.py",
        "if done is not None:",
        "if False:",
        SIMULATION,
    ),
    Mutant(
        "findings are the latest claim's",
        "engine/runtime/applier.py",
        "if version is not None and _version(records) > version:",
        "if False:",
        SIMULATION,
    ),
    Mutant(
        "a strict step is durable at once",
        "engine/runtime/driver.py",
        'if self.thinker.expectation.durability == "strict":',
        "if False:",
        SIMULATION,
    ),
    Mutant(
        "the turn budget",
        "engine/budget.py",
        "if 0 < budget.turns <= turns:",
        "if False:",
        "tests/engine/test_budget.py",
    ),
    Mutant(
        "the token budget",
        "engine/budget.py",
        "if 0 < budget.tokens <= tokens:",
        "if False:",
        "tests/engine/test_budget.py",
    ),
    Mutant(
        "the wall budget",
        "engine/budget.py",
        "if 0 < budget.wall_s <= wall_s:",
        "if False:",
        "tests/engine/test_budget.py",
    ),
    Mutant(
        "the wall budget cuts off a step",
        "engine/runtime/driver.py",
        "limit = self.clock.timeout(left_s)",
        "limit = self.clock.timeout(None)",
        "tests/engine/runtime/test_driver.py",
    ),
    Mutant(
        "loop detection",
        "engine/loops.py",
        "return not thinking and all(",
        "return False and all(",
        SIMULATION,
    ),
    Mutant(
        "what a tool redacts",
        "engine/runtime/performer.py",
        "tool.redact(shown) if tool else shown",
        "shown",
        SIMULATION,
    ),
    Mutant(
        "what is transient",
        "engine/fingerprint.py",
        'if not key.startswith("_")',
        "if True",
        SIMULATION,
    ),
    Mutant(
        "the cap on hops",
        "engine/trigger.py",
        "if happened.hops > HOPS_MAX:",
        "if False:",
        "tests/engine/test_trigger.py",
    ),
    Mutant(
        "a resume starts at the checkpoint",
        "engine/recovery.py",
        "                    steps = []",
        "                    pass",
        SIMULATION,
    ),
    Mutant(
        "a replay asks for the same",
        "engine/recovery.py",
        "if recorded.fingerprint == asked:",
        "if True:",
        "tests/engine/test_recovery.py",
    ),
    Mutant(
        "attempts run out",
        "engine/recovery.py",
        "if crashes >= attempts_max:",
        "if False:",
        "tests/simulation/test_simulator.py",
    ),
    Mutant(
        "a dead letter is settled once",
        "engine/dead.py",
        "if letter.settled is not None:",
        "if False:",
        "tests/engine/test_dead.py",
    ),
    Mutant(
        "the next generation waits for the end of the one before",
        "engine/dead.py",
        "if episode.status not in ENDED:",
        "if False:",
        "tests/engine/test_dead.py",
    ),
    Mutant(
        "a letter is requeued under one id",
        "engine/runtime/undertaker.py",
        'id=f"requeue.{letter_key}"',
        'id=f"requeue.{letter_key}.{self.clock.monotonic_s()}"',
        "tests/engine/runtime/test_undertaker.py",
    ),
    Mutant(
        "an event published again is the same event",
        "streams/parsing.py",
        "same = {EVENT_ID_HEADER: event_id} if len(event_id) <= ID_CHARS_MAX else {}",
        "same: dict[str, str] = {}",
        "tests/contracts/test_world.py",
    ),
    Mutant(
        "a sweep leaves alone what some node holds",
        "engine/runtime/sweeper.py",
        "if await self._is_held(candidate):",
        "if False:",
        "tests/engine/runtime/test_sweeper.py",
    ),
    Mutant(
        "a sweep calls nobody twice",
        "engine/runtime/sweeper.py",
        "if await self.ports.inbox.is_waiting(candidate.actor_id, candidate.episode_id):",
        "if False:",
        "tests/engine/runtime/test_sweeper.py",
    ),
    Mutant(
        "a history is replayed from its beginning",
        "engine/histories.py",
        "if not (is_kept and isinstance(event, CheckpointSaved)):",
        "if True:",
        "tests/engine/test_histories.py",
    ),
    Mutant(
        "what people may not see stays hidden in a replay",
        "console/replaying.py",
        "if isinstance(event, StepRecorded) and event.result_shown != NOTHING:",
        "if False:",
        "tests/console/test_dead.py",
    ),
    Mutant(
        "a former owner gives nothing up in memory",
        "streams/memory/leases.py",
        "return stored.change.revision == lease.revision",
        "return True",
        "tests/contracts/test_leases.py",
    ),
    Mutant(
        "a former owner gives nothing up on a server",
        "streams/jetstream/leases.py",
        "more=tombstone, expected=expected",
        "more=tombstone, expected=None",
        "tests/contracts/test_leases.py",
    ),
    Mutant(
        "only the newest revision is owned",
        "streams/jetstream/leases.py",
        "found.seq == lease.revision and not is_gone(found)",
        "not is_gone(found)",
        "tests/contracts/test_leases.py",
    ),
    Mutant(
        "what was given up is not stolen",
        "streams/jetstream/leases.py",
        "stolen = found is not None and has_lapsed(found)",
        "stolen = found is not None",
        "tests/contracts/test_leases.py",
    ),
    Mutant(
        "only a lapse is there to be reclaimed",
        "streams/jetstream/leases.py",
        "                if has_lapsed(message):",
        "                if True:",
        "tests/contracts/test_leases.py",
    ),
    Mutant(
        "an error text cannot break a header",
        "streams/jetstream/leases.py",
        "json.dumps(error_shown(error))",
        "error_shown(error)",
        "tests/contracts/test_leases.py",
    ),
    Mutant(
        "a lease is given up at the revision its renewal leaves",
        "engine/runtime/keeper.py",
        "            async with held.turn:",
        "            if True:",
        "tests/engine/runtime/test_keeper.py",
    ),
    Mutant(
        "a claim is for the attempt that the journal counts to",
        "engine/runtime/runner.py",
        "attempt = fold(records).attempts + 1",
        "attempt = 1",
        "tests/engine/runtime/test_keeper.py",
    ),
)


def survives(mutant: Mutant, tree: Path) -> bool:
    """Return whether every test still passes in `tree` with the guard switched off."""
    path = tree / mutant.file
    original = path.read_text()
    path.write_text(original.replace(mutant.text, mutant.becomes))
    try:
        return passes(mutant.tests, tree)
    finally:
        path.write_text(original)


def passes(tests: str, tree: Path) -> bool:
    """Return whether `tests` pass in `tree`; taking too long is failing."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", tests]
    try:
        done = subprocess.run(
            command, cwd=tree, capture_output=True, timeout=TRIAL_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main(wanted: str = "") -> int:
    """Try every mutant whose guard's name holds `wanted`; return 1 if one survives."""
    mutants = [mutant for mutant in TABLE if wanted in mutant.guard]
    survivors = 0
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
        red = [tests for tests in sorted({m.tests for m in mutants}) if not passes(tests, tree)]
        if red:
            print(f"red before anything was switched off: {', '.join(red)}")
            return 1
        for mutant in mutants:
            alive = survives(mutant, tree)
            survivors += alive
            print(f"{'SURVIVED' if alive else 'killed  '}  {mutant.guard}", flush=True)
    print(f"{len(mutants) - survivors} of {len(mutants)} killed")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
