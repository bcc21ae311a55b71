"""`vigil uncompress`, and what doctor says of a stack that an earlier version made."""

from __future__ import annotations

import asyncio

from tests.streams.jetstream.test_compression import compress
from tests.streams.jetstream.test_setup import api


async def make_compressed(url, name):
    async with api(url) as ask:
        await compress(ask, name)


def test_a_stack_is_changed_once_and_doctor_tells_it_before(standing):
    url, name = standing.environ["VIGIL_NATS_URL"], f"{standing.environ['VIGIL_STACK']}-events"
    asyncio.run(make_compressed(url, name))
    checks = {each["what"]: each for each in standing.ask("doctor")["checks"]}
    assert checks[f"stream {name}"]["status"] == "note"
    assert "compressed" in checks[f"stream {name}"]["says"]
    assert checks["servers"]["status"] == "ok"

    done = standing.run("uncompress")

    assert (done.returncode, done.stdout) == (0, f"uncompressed {name}\n"), done.stderr
    assert standing.run("uncompress").stdout == "nothing is compressed\n"


def test_a_stack_that_is_not_there_is_refused_in_one_line(connected):
    done = connected.run("uncompress")
    assert done.returncode == 1
    assert done.stderr.startswith("vigil: there is no stack ")
    assert done.stderr.count("\n") == 1
