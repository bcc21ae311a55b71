"""Mistakes around servers: what is not on them, which are looked for, and what ends them.

Those that need a running `vigil up` or a Postgres are made in `tests/vigil`, with the words here.
"""

from __future__ import annotations

import nats
import pytest
from nats.js.errors import NoStreamResponseError
from structlog.testing import capture_logs

from streams.embedded import EmbeddedNats
from tests.mistakes.mistake import Mistake
from vigil import Actor, App, manual, propose_output, settings
from vigil import errors as told
from vigil.adapters import Webhook, env
from vigil.serving.app import tell_missing_secrets
from vigil.testing import run

NO_SUCH_STREAM = Mistake(
    75,
    "a program publishes to a stack that there is not",
    "vigl.event.host.seen",
    "nats: no response from stream",
    "python",
    "fair",  # It is said by the client of NATS; the guide to publishing explains it.
)

UNKNOWN_KEYS = [
    Mistake(
        81,
        "a finding that there is not",
        "findings show nope",
        "`vigil findings list --status all` shows those there are",
        "command",
    ),
    Mistake(
        81,
        "an output that there is not",
        "outputs show nope",
        "`vigil outputs list` shows those there are",
        "command",
    ),
    Mistake(
        81,
        "a dead letter that there is not",
        "dead show nope",
        "`vigil dead list --all` shows those there are",
        "command",
    ),
]

NO_COLUMN = Mistake(
    83,
    "a statement with a misspelt column",
    "vigil sql 'select statu from episodes'",
    '"statu" does not exist. Perhaps you meant to reference the column "episodes.status"',
    "command",
)

NO_POSTGRES = Mistake(
    84,
    "Postgres does not run",
    "vigil episodes list",
    "`vigil up` brings servers of its own, `vigil doctor` shows",
    "command",
)

DSNS = [
    Mistake(
        85, "a database that there is not", "/nodb", 'database "nodb" does not exist', "command"
    ),
    Mistake(85, "a role that there is not", "nobody@", 'role "nobody" does not exist', "command"),
    Mistake(
        85,
        "a DSN that is none",
        "mysql://h/x",
        "use postgresql://user:password@host:port/database",
        "command",
    ),
]

SETTINGS = [
    Mistake(
        86,
        "the URL of NATS is that of a web server",
        'nats_url = "http://h"',
        "it does not begin with one of nats, tls, ws, wss; use nats://host:port",
        "command",
    ),
    Mistake(
        87,
        "a setting is misspelt",
        'nats_ulr = "h"',
        "vigil.toml: there is no setting 'nats_ulr'; did you mean nats_url?",
        "command",
    ),
    Mistake(
        87,
        "the file of settings is not TOML",
        "nats_url h",
        "vigil.toml is not TOML: Expected '=' after a key in a key/value pair",
        "command",
    ),
    Mistake(
        87,
        "a setting has a value that it cannot have",
        'lease_s = "soon"',
        "vigil.toml: lease_s = 'soon': use a whole number from 1 to 3600",
        "command",
    ),
]

SECOND_UP = Mistake(
    89,
    "a second `vigil up` in the folder",
    "vigil up",
    "another `vigil up` or `vigil demo` runs in .vigil; stop it, or go elsewhere",
    "command",
)

FOLDER_REMOVED = Mistake(
    91,
    "the folder of the servers is removed while they run",
    "rm -r .vigil",
    "vigil: .vigil was removed, or a part of it, while `vigil up` ran",
    "command",
)

CTRL_C = Mistake(
    92,
    "Ctrl-C while a step runs",
    "",
    "waits for what runs to reach the end of its step",
    "log",
)

CTRL_C_TWICE = Mistake(
    93,
    "Ctrl-C twice while a step runs",
    "",
    "vigil: ends now; what ran is left as after a crash, and goes on once its lease has ended",
    "command",
)

KILLED = Mistake(
    94,
    "`vigil up` is killed, and started again",
    "kill -9",
    "did not stop in order: what it held goes on now",
    "log",
)

NATS_DIED = [
    Mistake(95, "the NATS server of `vigil up` dies", "kill -9", "the server runs again", "log"),
    Mistake(
        95,
        "the NATS server of `vigil up` dies again",
        "kill -9",
        "vigil: the NATS server has ended again (signal 9)",
        "command",
    ),
]

MISSING_SECRET = Mistake(
    96,
    "the variable with a secret is not set",
    "NO_SUCH_SECRET",
    "an output cannot be delivered here: output=hook, not_set=NO_SUCH_SECRET",
    "start",
)

NOT_DELIVERED = [
    Mistake(
        96,
        "an output goes out while the variable with its secret is not set",
        "hook",
        "not delivered; tried again: error_class=secret_missing, detail=Webhook: secret: the"
        " environment variable NO_SUCH_SECRET is not set",
        "log",
    ),
    Mistake(
        97,
        "the receiver of a webhook is down",
        "closed",
        "not delivered; tried again: error_class=receiver_unavailable, detail=127.0.0.1:1: All"
        " connection attempts failed",
        "log",
    ),
]

MISTAKES = [
    *(NO_SUCH_STREAM, *UNKNOWN_KEYS, NO_COLUMN, NO_POSTGRES, *DSNS, *SETTINGS),
    *(SECOND_UP, FOLDER_REMOVED, CTRL_C, CTRL_C_TWICE, KILLED, *NATS_DIED),
    *(MISSING_SECRET, *NOT_DELIVERED),
]

desk = Actor("desk")


@desk.expectation(on=manual())
async def tells(ctx, trigger):
    return propose_output(trigger.payload["to"], {"a": 1})


app = App(
    actors=[desk],
    outputs={
        "hook": Webhook("http://127.0.0.1:1/x", secret=env("NO_SUCH_SECRET")),
        "closed": Webhook("http://127.0.0.1:1/x"),
    },
)


@pytest.mark.parametrize("mistake", SETTINGS, ids=lambda each: each.made)
def test_a_wrong_file_of_settings_is_told_with_what_to_write(tmp_path, mistake):
    (tmp_path / "vigil.toml").write_text(mistake.done)
    with pytest.raises(told.Mistake) as caught:
        settings.read({}, folder=tmp_path)
    assert mistake.said in str(caught.value)


async def test_a_program_that_publishes_to_no_stack_is_told_by_its_client(nats_url):
    client = await nats.connect(nats_url)
    with pytest.raises(NoStreamResponseError) as caught:
        await client.jetstream().publish(NO_SUCH_STREAM.done, b"{}")
    await client.close()
    assert str(caught.value) == NO_SUCH_STREAM.said


@pytest.fixture
def nats_url(nats: EmbeddedNats) -> str:
    return nats.url


def in_words(line: dict, *names: str) -> str:
    given = ", ".join(f"{name}={line[name]}" for name in names)
    return f"{line['event']}: {given}"


def test_a_node_that_starts_names_the_variables_that_it_lacks(monkeypatch):
    with capture_logs() as logged:
        tell_missing_secrets(app)
        monkeypatch.setenv(MISSING_SECRET.done, "whsec_x")
        tell_missing_secrets(app)
    (line,) = logged
    assert in_words(line, "output", "not_set") == MISSING_SECRET.said


@pytest.mark.parametrize("mistake", NOT_DELIVERED, ids=lambda each: each.made)
async def test_a_delivery_that_fails_says_why(mistake):
    with capture_logs() as logged:
        async with run(app, allow=["output.*"]) as vigil:
            await vigil.fire("desk", "tells", {"to": mistake.done})
            await vigil.run_until_idle()
    first = next(each for each in logged if each["event"].startswith("not delivered"))
    assert in_words(first, "error_class", "detail") == mistake.said
