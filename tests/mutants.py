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
        "a refused batch is tried one by one",
        "streams/jetstream/grouping.py",
        "elif isinstance(error, StreamError) and not isinstance(error, Unavailable):",
        "elif False:",
        "tests/streams/jetstream/test_grouping.py",
    ),
    Mutant(
        "a batch without an answer may be stored",
        "streams/jetstream/grouping.py",
        "and not isinstance(error, Unavailable):",
        ":",
        "tests/streams/jetstream/test_grouping.py",
    ),
    Mutant(
        "two writes of one key never share a batch",
        "streams/jetstream/grouping.py",
        "if waiting.write.key in keys or left_bytes < 0:",
        "if left_bytes < 0:",
        "tests/streams/jetstream/test_grouping.py",
    ),
    Mutant(
        "a batch holds only so many bytes",
        "streams/jetstream/grouping.py",
        "left_bytes -= len(waiting.write.data)",
        "left_bytes -= 0",
        "tests/streams/jetstream/test_grouping.py",
    ),
    Mutant(
        "what was given up in the queue is never sent",
        "streams/jetstream/grouping.py",
        "            if waiting.outcome.cancelled():\n",
        "            if False:\n",
        "tests/streams/jetstream/test_grouping.py",
    ),
    Mutant(
        "what may be stored already shares no batch",
        "streams/jetstream/grouping.py",
        "if alone or self._is_free():",
        "if self._is_free():",
        "tests/streams/jetstream/test_grouping.py",
    ),
    Mutant(
        "one batch to a stream at a time",
        "streams/jetstream/grouping.py",
        "if self._turn is None and self._batch is None:",
        "if self._turn is None:",
        "tests/streams/jetstream/test_grouping.py",
    ),
    Mutant(
        "room that nobody takes is given back",
        "streams/jetstream/grouping.py",
        "self._end_single(is_stored=False)  # It was let go, and goes nowhere.",
        "pass",
        "tests/streams/jetstream/test_grouping.py",
    ),
    Mutant(
        "a batch that ends with the program leaves nobody waiting",
        "streams/jetstream/grouping.py",
        "_ENDING if batch.cancelled() else batch.exception()",
        "batch.exception()",
        "tests/streams/jetstream/test_grouping.py",
    ),
    Mutant(
        "each of a batch learns its own sequence",
        "streams/jetstream/publish.py",
        "before = ack.seq - ack.count",
        "before = ack.seq - 1",
        "tests/streams/jetstream/test_batches.py",
    ),
    Mutant(
        "a commit that failed fails no others with it",
        "streams/jetstream/log.py",
        "alone=patience.has_failed",
        "alone=False",
        "tests/streams/jetstream/test_batches.py",
    ),
    Mutant(
        "the slower way is tried again",
        "streams/jetstream/pace.py",
        "self._single_s *= FADING",
        "self._single_s *= 1.0",
        "tests/streams/jetstream/test_pace.py",
    ),
    Mutant(
        "the checkpoint's fence",
        "projections/postgres/store.py",
        "if not moved:",
        "if False:",
        "tests/projections/test_projector.py",
    ),
    Mutant(
        "the mark of the commit at the checkpoint",
        "projections/postgres/feeds.py",
        "mark_of(stands) != mark",
        "False",
        "tests/projections/test_projector.py",
    ),
    Mutant(
        "the identity of a stream that is followed",
        "streams/jetstream/follow.py",
        "found.created != self._created",
        "False",
        "tests/streams/jetstream/test_follow.py",
    ),
    Mutant(
        "the fence of a takeover is waited for",
        "engine/runtime/tenure.py",
        "        if careful:\n            await self._scribe.barrier()",
        "",
        "tests/engine/runtime/test_shift.py",
    ),
    Mutant(
        "the trust in a claim at its fence",
        "engine/runtime/scribe.py",
        "                self._sign(await self._before_fence(self._pending[:most]))\n",
        "                self._sign(1)\n",
        "tests/engine/runtime/test_runner.py",
    ),
    Mutant(
        "the command is acknowledged only after the fence",
        "engine/runtime/shift.py",
        "        tenure = Tenure(",
        "        await self.accept()\n        tenure = Tenure(",
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
        "engine/runtime/shift.py",
        "            may_go = await self._serve(",
        "            await hold.give_up()\n            may_go = await self._serve(",
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
        "engine/runtime/shift.py",
        "except Leaving:\n            return await self._hand_over(tenure)",
        "except Leaving:\n            return True",
        SIMULATION,
    ),
    Mutant(
        "the end is told again by the next owner",
        "engine/runtime/shift.py",
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
        "idempotency_key=key))\n            await wall.standing_still(self.scribe.barrier)",
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
        "if job.version is not None and _version(records) > (job.version if is_beside else START):",
        "if False:",
        "tests/engine/runtime/test_partitions.py",
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
        "engine/runtime/walltime.py",
        "clock.timeout(max(0.0, limit_s - used_s) if limit_s > 0 else None)",
        "clock.timeout(None)",
        "tests/engine/runtime/test_driver.py",
    ),
    Mutant(
        "an outage of the log uses no wall time",
        "engine/runtime/walltime.py",
        "        self.limit.reschedule(None)\n",
        "",
        "tests/engine/runtime/test_driver.py",
    ),
    Mutant(
        "the running time without the waits",
        "engine/runtime/walltime.py",
        "            self._since_s += waited_s\n",
        "",
        "tests/engine/runtime/test_driver.py",
    ),
    Mutant(
        "a cancelled callback is told from a cancelled episode",
        "engine/runtime/usercode.py",
        "        if _are_cancelled():\n            raise\n",
        "        raise\n",
        "tests/engine/runtime/test_usercode.py",
    ),
    Mutant(
        "the values of an action",
        "engine/runtime/thinker.py",
        "if problem := problem_of(action):",
        "if problem := None:",
        "tests/engine/runtime/test_driver.py",
    ),
    Mutant(
        "an idempotency key is one call's",
        "engine/runtime/driver.py",
        ":{episode.turn}:{mark[:KEY_MARK_CHARS]}",
        ":{episode.turn}",
        "tests/engine/runtime/test_takeover.py",
    ),
    Mutant(
        "an announced call keeps its key",
        "engine/runtime/driver.py",
        "if episode.announced is not None:  # Others",
        "if False:  # Others",
        "tests/engine/runtime/test_driver.py",
    ),
    Mutant(
        "what is written can be read",
        "streams/codec.py",
        "        _decoder.decode(data)\n    except (*",
        "    except (*",
        "tests/streams/test_codec.py",
    ),
    Mutant(
        "tokens that cannot have been used",
        "engine/tools.py",
        "if min(counts) < 0 or sum(counts) > SYNTHESIS_TOKENS_MAX:",
        "if False:",
        "tests/engine/runtime/test_performer.py",
    ),
    Mutant(
        "as many findings as an end can name",
        "engine/convergence.py",
        "if len(result.findings) > FINDINGS_MAX:",
        "if False:",
        "tests/engine/test_convergence.py",
    ),
    Mutant(
        "a limit is a number",
        "engine/declaring.py",
        "if problem := problem_of_budget(budget):",
        "if problem := None:",
        "tests/engine/test_actor.py",
    ),
    Mutant(
        "a blocked loop is told",
        "engine/runtime/keeper.py",
        "if late_s > self._leases.ttl_s * LATE_MAX:",
        "if False:",
        "tests/engine/runtime/test_keeper.py",
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
        "engine/gating.py",
        "if happened.hops > HOPS_MAX:",
        "if False:",
        "tests/engine/test_gating.py",
    ),
    Mutant(
        "only a sample fires",
        "engine/gating.py",
        ">= expectation.sample:",
        "> 1:",
        "tests/engine/test_gating.py",
    ),
    Mutant(
        "true is not 1",
        "engine/filters.py",
        "return isinstance(one, bool) == isinstance(other, bool) and one == other",
        "return one == other",
        "tests/engine/test_filters.py",
    ),
    Mutant(
        "text and numbers do not compare",
        "engine/filters.py",
        "if any(_kind(found) != _kind(bound) for _, bound in bounds):",
        "if False:",
        "tests/engine/test_filters.py",
    ),
    Mutant(
        "a filter holds what JSON can say",
        "engine/filters.py",
        "return None if _is_json(value) else",
        "return None if True else",
        "tests/engine/test_filters.py",
    ),
    Mutant(
        "an event without the value is known by its id",
        "engine/dedupe.py",
        "if all(value is None for value in values):",
        "if False:",
        "tests/engine/test_dedupe.py",
    ),
    Mutant(
        "an event that gets no key is a dead letter",
        "engine/runtime/arbiter.py",
        "return rejected(event, self.crew.ports.stack, reason=DEDUPE_FAILED, detail=detail)",
        "raise",
        "tests/engine/runtime/test_gate.py",
    ),
    Mutant(
        "no code runs in vain for a duplicate",
        "engine/runtime/gate.py",
        "return await self.crew.ports.log.last(subject) is not None",
        "return False",
        "tests/engine/runtime/test_gate.py",
    ),
    Mutant(
        "an episode that only a newer version can read is there",
        "engine/runtime/gate.py",
        "except UnreadableEvent:",
        "except ZeroDivisionError:",
        "tests/engine/runtime/test_gate.py",
    ),
    Mutant(
        "an event that comes again completes what it began",
        "engine/runtime/gate.py",
        "if is_own or receipt.delivery.deliveries > 1:",
        "if is_own:",
        "tests/engine/runtime/test_gate.py",
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
        "engine/runtime/shift.py",
        "attempt=episode.attempts + 1",
        "attempt=1",
        "tests/engine/runtime/test_keeper.py",
    ),
    Mutant(
        "the writers of a finding take turns",
        "engine/runtime/applier.py",
        "async with self.turns.of(subject):",
        "if True:",
        "tests/engine/runtime/test_contention.py",
    ),
    Mutant(
        "what was done already may be later on a replica",
        "engine/runtime/applier.py",
        "return records if _version(records) >= last.seq else None",
        "return records",
        "tests/engine/runtime/test_applier.py",
    ),
    Mutant(
        "nothing older than the episode is read",
        "engine/runtime/applier.py",
        "records = await self.log.read(subject, after=since)",
        "records = await self.log.read(subject)",
        "tests/engine/runtime/test_applier.py",
    ),
    Mutant(
        "an episode that lost every race is handed over",
        "engine/runtime/shift.py",
        "error=str(error))\n            return await self._hand_over(tenure)",
        "error=str(error))\n            return False",
        "tests/engine/runtime/test_contention.py",
    ),
    Mutant(
        "a lapse whose marker was taken over is not forgotten",
        "engine/runtime/shift.py",
        "return not hold.is_stolen or await",
        "return True or await",
        "tests/engine/runtime/test_shift.py",
    ),
    Mutant(
        "an event that only others watch is left to them",
        "engine/runtime/gate.py",
        "if self._is_left_to_others(delivery):",
        "if False:",
        "tests/engine/runtime/test_gate.py",
    ),
    Mutant(
        "an event that nobody watches is refused in the end",
        "engine/runtime/gate.py",
        "return delivery.deliveries < STRANGE_DELIVERIES_MAX",
        "return True",
        "tests/engine/runtime/test_gate.py",
    ),
    Mutant(
        "a shared queue only widens",
        "streams/jetstream/consumer.py",
        "sorted(_filters(config).union(filters))",
        "sorted(filters)",
        "tests/contracts/test_world.py",
    ),
    Mutant(
        "a command that fits nothing is a dead letter in the end",
        "engine/runtime/runner.py",
        "if self._is_hopeless(delivery, hindrance):",
        "if False:",
        "tests/engine/runtime/test_runner.py",
    ),
    Mutant(
        "an episode that goes on is claimed",
        "engine/runtime/tenure.py",
        "if not any(isinstance(event, EpisodeFinished) for event in first):",
        "if self.episode.status not in ENDED:",
        "tests/engine/runtime/test_shift.py",
    ),
    Mutant(
        "without a claim, what woke an episode waits until all is told",
        "engine/runtime/tenure.py",
        "if self._hold.revision != NO_CLAIM:",
        "if True:",
        "tests/engine/runtime/test_shift.py",
    ),
    Mutant(
        "a node that takes over from itself stops what it did",
        "engine/runtime/keeper.py",
        "if before is not None:  # It lapsed",
        "if False:  # It lapsed",
        "tests/engine/runtime/test_keeper.py",
    ),
    Mutant(
        "no step of the outside before the fence",
        "engine/runtime/driver.py",
        "and not self.scribe.is_fenced:",
        "and False:",
        "tests/engine/runtime/test_shift.py",
    ),
    Mutant(
        "an event that comes again opens its episode alone",
        "engine/runtime/gate.py",
        "is_first_try = receipt.delivery.deliveries == 1 and",
        "is_first_try = True and",
        "tests/engine/runtime/test_gate.py",
    ),
    Mutant(
        "a command that comes again may have crashed a node",
        "engine/runtime/runner.py",
        "careful = not _is_first_try(delivery, command, episode)",
        "careful = False",
        "tests/engine/runtime/test_shift.py",
    ),
    Mutant(
        "a full node asks for nothing",
        "engine/runtime/runner.py",
        "if not self.crew.slots.free:",
        "if False:",
        "tests/engine/runtime/test_runner.py",
    ),
    Mutant(
        "a stopping node waits for no slot",
        "engine/runtime/runner.py",
        "unless=stopping)",
        "unless=asyncio.Event())",
        "tests/engine/runtime/test_runner.py",
    ),
    Mutant(
        "a stopping node begins nothing",
        "engine/runtime/runner.py",
        "if stopping.is_set() else",
        "if False else",
        "tests/engine/runtime/test_runner.py",
    ),
    Mutant(
        "deliveries that ended for want of a slot prove nothing",
        "engine/runtime/runner.py",
        "and age_s >= least_s",
        "and True",
        "tests/engine/runtime/test_runner.py",
    ),
    Mutant(
        "a pause takes back what was asked for",
        "streams/jetstream/source.py",
        "if self._inbox is not None and self._asked:",
        "if False:",
        "tests/streams/jetstream/test_source.py",
    ),
    Mutant(
        "a pause hands back what is on its way",
        "streams/jetstream/source.py",
        "        if self._is_paused:\n            if not msg.status:",
        "        if False:\n            if not msg.status:",
        "tests/streams/jetstream/test_source.py",
    ),
    Mutant(
        "a pause hands back what has arrived",
        "streams/jetstream/source.py",
        "while self._waiting:",
        "while False:",
        "tests/contracts/test_inbox.py",
    ),
    Mutant(
        "a pause that was cancelled is finished before more is asked for",
        "streams/jetstream/source.py",
        "            await self.pause()\n            self._is_paused =",
        "            self._is_paused =",
        "tests/streams/jetstream/test_source.py",
    ),
    Mutant(
        "partitions: a pause takes back what every queue was asked for",
        "streams/jetstream/merge.py",
        "await asyncio.gather(*(source.pause() for source in self._sources))",
        "await asyncio.sleep(0)",
        "tests/streams/jetstream/test_merge.py",
    ),
    Mutant(
        "an event is acknowledged when all that it opens is durable",
        "engine/runtime/receipt.py",
        "if not self._parts_left and self._answered():",
        "if self._answered():",
        "tests/engine/runtime/test_gate.py",
    ),
    Mutant(
        "episodes opened here keep to the limit",
        "engine/runtime/gate.py",
        "if not is_first_try or not self.crew.slots.try_take():",
        "if not is_first_try:",
        "tests/engine/runtime/test_gate.py",
    ),
    Mutant(
        "partitions: an aggregate lives in its own",
        "streams/subjects.py",
        'if self.partitions > 1 and f"{within}." != self._within(found, key):',
        "if False:",
        "tests/streams/test_subjects.py",
    ),
    Mutant(
        "partitions: a setting that contradicts the servers is refused",
        "streams/jetstream/setup.py",
        "if wanted not in {None, layout.partitions}:",
        "if False:",
        "tests/streams/jetstream/test_partitions.py",
    ),
    Mutant(
        "partitions: nobody uses a stack that is being moved",
        "streams/jetstream/setup.py",
        "        raise on_its_way(stack, layout)",
        "        pass",
        "tests/streams/jetstream/test_repartition.py",
    ),
    Mutant(
        "partitions: a stack in use is not moved",
        "streams/jetstream/repartition.py",
        "        await require_unused(link, old)",
        "        pass",
        "tests/streams/jetstream/test_repartition.py",
    ),
    Mutant(
        "partitions: what was copied is not copied again",
        "streams/jetstream/copying.py",
        "        if mark <= self.mark:",
        "        if False:",
        "tests/streams/jetstream/test_repartition.py",
    ),
    Mutant(
        "partitions: commands of one id are copied as two",
        "streams/jetstream/copying.py",
        "        MESSAGE_ID_HEADER,\n    }",
        "    }",
        "tests/streams/jetstream/test_repartition.py",
    ),
    Mutant(
        "partitions: who loses the lease stops",
        "streams/jetstream/repartition.py",
        "return await (working if working.done() else keeping)",
        "return await working",
        "tests/streams/jetstream/test_repartition.py",
    ),
    Mutant(
        "partitions: a lease that cannot be given up hides nothing",
        "streams/jetstream/repartition.py",
        "with suppress(Unavailable):\n            await leases.complete",
        "with suppress(ZeroDivisionError):\n            await leases.complete",
        "tests/streams/jetstream/test_repartition.py",
    ),
    Mutant(
        "partitions: a copy is stored only behind the one before",
        "streams/jetstream/copying.py",
        "said = {**first.headers, headers.EXPECTED_LAST: str(self.newest_seq)}",
        "said = dict(first.headers)",
        "tests/streams/jetstream/test_repartition.py",
    ),
    Mutant(
        "partitions: copies are compared before they are used",
        "streams/jetstream/repartition.py",
        "    await copying.verify(",
        "    copying.verify and (",
        "tests/streams/jetstream/test_repartition.py",
    ),
    Mutant(
        "partitions: queues together bring no more than there is room for",
        "streams/jetstream/merge.py",
        "room - len(self._ready) - sum(most for _, most in self._asked.values())",
        "room",
        "tests/streams/jetstream/test_merge.py",
    ),
    Mutant(
        "partitions: sequences of two streams are not compared",
        "engine/runtime/applier.py",
        "return own == self.stack.stream_of(subject)",
        "return True",
        "tests/engine/runtime/test_partitions.py",
    ),
    Mutant(
        "partitions: two copies have no order",
        "engine/runtime/applier.py",
        "return START if not records or records[0].is_copied else records[0].seq",
        "return START if not records else records[0].seq",
        "tests/engine/runtime/test_partitions.py",
    ),
    Mutant(
        "partitions: a copy says that it is one",
        "streams/jetstream/log.py",
        "is_copied=headers.COPIED_FROM in given",
        "is_copied=False",
        "tests/engine/runtime/test_partitions.py",
    ),
    Mutant(
        "processes: a node that ends by itself is started again",
        "console/processes.py",
        '            log.warning("started again: it ended", ended=plan.name',
        '            return code\n            log.warning("", ended=plan.name',
        "tests/console/test_processes.py",
    ),
    Mutant(
        "processes: a node that cannot be started ends no other",
        "console/processes.py",
        "except OSError as error:",
        "except ZeroDivisionError as error:",
        "tests/console/test_processes.py",
    ),
    Mutant(
        "numbers of too few runs are marked",
        "bench/report.py",
        "if fewest >= RUNS_MIN:",
        "if True:",
        "tests/bench/test_report.py",
    ),
    Mutant(
        "timers: only the one that was read is replaced (memory)",
        "streams/memory/timers.py",
        "if expecting is not None and expecting != self._revision_of(subject):",
        "if False:",
        "tests/contracts/test_timers.py",
    ),
    Mutant(
        "timers: only the one that was read is replaced",
        "streams/jetstream/timers.py",
        "if expecting is not None:",
        "if False:",
        "tests/contracts/test_timers.py",
    ),
    Mutant(
        "timers: an arming that was repeated for a lost answer fires once",
        "streams/armed.py",
        "{TIMER_ID_HEADER: id, **message_headers(id=id, trace=trace)}",
        "{TIMER_ID_HEADER: id}",
        "tests/streams/jetstream/test_timers.py",
    ),
    Mutant(
        "timers: our own arming is told from a rival's",
        "streams/jetstream/timers.py",
        "if found.headers.get(TIMER_ID_HEADER) == id_:",
        "if True:",
        "tests/streams/jetstream/test_timers.py",
    ),
    Mutant(
        "timers: a cancel takes nothing that was armed after it",
        "streams/jetstream/timers.py",
        '{"filter": subject, "seq": found.seq + 1}',
        '{"filter": subject}',
        "tests/streams/jetstream/test_timers.py",
    ),
    Mutant(
        "timers: what was due long ago fires",
        "streams/jetstream/timers.py",
        "max(due_at, SCHEDULE_MIN)",
        "due_at",
        "tests/contracts/test_timers.py",
    ),
    Mutant(
        "timers: one that was put off hides none that is due before it",
        "streams/memory/timers.py",
        "if self._revision_of(subject) == revision:",
        "if subject in self._armed:",
        "tests/streams/test_memory_timers.py",
    ),
    Mutant(
        "timers: one that fires while it is carried is carried once",
        "streams/jetstream/carrying.py",
        "if id_ not in ids:",
        "if True:",
        "tests/streams/jetstream/test_carrying.py",
    ),
    Mutant(
        "timers: whoever carries them begins with new streams",
        "streams/jetstream/repartition.py",
        "[new.stream(Stream.WORK, each) for each in new.partitions_of(Stream.WORK)]",
        "[]",
        "tests/streams/jetstream/test_carrying.py",
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
