"""Where settings come from, and what is said when one cannot work."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from streams.model.modes import NodeMode
from vigil import runfile, settings
from vigil.errors import Mistake, Trouble


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("VIGIL_")]:
        monkeypatch.delenv(name)


def test_a_flag_beats_the_environment_beats_the_file_beats_the_run_file_beats_the_default(
    tmp_path, monkeypatch
):
    def stack(**flags):
        config = settings.read(flags, folder=tmp_path)
        return config.settings.stack, config.origins["stack"]

    assert stack() == ("vigil", "default")
    with runfile.announced(made(tmp_path / ".vigil"), {"stack": "running"}):
        assert stack() == ("running", ".vigil/run.toml")
        (tmp_path / "vigil.toml").write_text('stack = "filed"')
        assert stack() == ("filed", "vigil.toml")
        monkeypatch.setenv("VIGIL_STACK", "told")
        assert stack() == ("told", "environment")
        assert stack(stack="typed") == ("typed", "flag")
        assert stack(stack=None) == ("told", "environment")


def made(folder):
    folder.mkdir()
    return folder


def test_an_env_label_makes_a_stack_of_its_own(tmp_path):
    assert (
        settings.read({"stack": "orders", "env": "qa"}, folder=tmp_path).stack.name == "orders-qa"
    )


def test_a_process_has_a_name_of_its_own_unless_it_is_given_one(tmp_path):
    assert settings.read({}, folder=tmp_path).node.endswith(f"-{os.getpid()}")
    assert settings.read({"node": "n1"}, folder=tmp_path).node == "n1"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("VIGIL_LEASE_S", "soon"),
        ("VIGIL_LEASE_S", "0"),
        ("VIGIL_GRACE_S", "-1"),
        ("VIGIL_REPLICAS", "2"),
        ("VIGIL_MODE", "off"),
        ("VIGIL_SERVE_STACKS", "a,,b"),
        ("VIGIL_SERVE_STACKS", "a,a"),
        ("VIGIL_SERVE_STACKS", "a.b"),
        ("VIGIL_NATS_INBOX", "_INBOX.>"),
        ("VIGIL_NATS_INBOX", "a b"),
        ("VIGIL_NATS_DOMAIN", "a.b"),
        ("VIGIL_NATS_DOMAIN", "a b"),
        ("VIGIL_LOG", "xml"),
        ("VIGIL_LOG_LEVEL", "loud"),
    ],
)
def test_a_wrong_setting_is_named_as_it_was_set(tmp_path, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)

    with pytest.raises(Mistake, match=f"{variable} = '{value}': "):
        settings.read({}, folder=tmp_path)


def test_other_stacks_are_said_with_commas_and_are_not_the_own_one(tmp_path):
    served = settings.read({"serve_stacks": "a, b-qa"}, folder=tmp_path).serves
    assert [stack.name for stack in served] == ["a", "b-qa"]
    with pytest.raises(Mistake, match="'orders-qa' is the stack"):
        settings.read(
            {"stack": "orders", "env": "qa", "serve_stacks": "a,orders-qa"}, folder=tmp_path
        )


def test_the_modes_of_the_settings_are_those_of_the_engine(tmp_path):
    for mode in NodeMode:
        assert settings.read({"mode": mode.value}, folder=tmp_path).settings.mode == mode


@pytest.mark.parametrize("flags", [{"replicas": "3"}, {"grace_s": "0.5"}, {"lease_s": "2"}])
def test_a_number_may_be_said_in_text(tmp_path, flags):
    ((setting, said),) = flags.items()

    assert getattr(settings.read(flags, folder=tmp_path).settings, setting) == float(said)


def test_a_lease_lasts_whole_seconds_as_the_server_drops_the_rest(tmp_path):
    with pytest.raises(Mistake, match="use a whole number from 1 to 3600"):
        settings.read({"lease_s": "1.9"}, folder=tmp_path)


def test_a_wrong_flag_is_named_as_it_was_typed(tmp_path):
    with pytest.raises(Mistake, match="--replicas = 'many'"):
        settings.read({"replicas": "many"}, folder=tmp_path)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("nats://me:s3cret@127.0.0.1:abc", "its port"),
        ("nats://me:s3cret@127.0.0.1:99999", "its port"),
        ("nats://me:s3cret", "its port"),
        ("nats://me:s3cret@[::1", "its host is no name"),
        ("nats://me:s3cret@", "names no host"),
        ("http://me:s3cret@127.0.0.1", "begin with one of nats"),
        ("nats://me:s3cret@127.0.0.1,", "is empty"),
        ("", "is empty"),
    ],
)
def test_a_server_without_an_address_is_refused_and_its_password_is_not_shown(tmp_path, url, why):
    with pytest.raises(Mistake, match=f"--nats-url: not the address .*{why}") as caught:
        settings.read({"nats_url": url}, folder=tmp_path)

    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "h",
        "h:4222",
        "127.0.0.1",
        "nats://[::1]:4222",
        "tls://u:p@h",
        "nats://a:1, nats://b",
        "ws://h",
    ],
)
def test_an_address_may_be_short_or_one_of_several(tmp_path, url):
    assert settings.read({"nats_url": url}, folder=tmp_path).settings.nats_url == url


@pytest.mark.parametrize("flags", [{"stack": "a b"}, {"node": "n.1"}, {"env": "x" * 40}])
def test_a_name_that_cannot_be_one_is_refused(tmp_path, flags):
    with pytest.raises(Mistake, match="use 1 to"):
        settings.read(flags, folder=tmp_path)


def test_an_unknown_key_in_the_file_is_refused_with_a_suggestion(tmp_path):
    (tmp_path / "vigil.toml").write_text("lease = 5")

    with pytest.raises(Mistake, match="no setting 'lease'; did you mean lease_s"):
        settings.read({}, folder=tmp_path)


def test_a_file_that_is_not_toml_is_refused(tmp_path):
    (tmp_path / "vigil.toml").write_text("lease_s 5")

    with pytest.raises(Mistake, match="is not TOML"):
        settings.read({}, folder=tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("postgres_dsn", "postgresql://me:s@cret@host/db", "postgresql://…@host/db"),
        (
            "postgres_dsn",
            "postgresql://host/db?password=x&a=b",
            "postgresql://host/db?password=…&a=b",
        ),
        ("postgres_dsn", "postgresql://host:5432/db", "postgresql://host:5432/db"),
        ("nats_url", "nats://token@a:4222,nats://u:p@b", "nats://…@a:4222,nats://…@b"),
        ("nats_url", "u:p@a", "…@a"),
        ("stack", "a", "a"),
    ],
)
def test_no_password_is_shown(key, value, shown):
    assert settings.shown(key, value) == shown


def test_a_run_file_that_a_killed_process_left_is_ignored(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    (made(tmp_path / ".vigil") / "run.toml").write_text(f'pid = {child.pid}\nstack = "gone"\n')

    assert settings.read({}, folder=tmp_path).settings.stack == "vigil"


def test_one_folder_has_one_set_of_servers(tmp_path):
    with (
        runfile.locked(tmp_path),
        pytest.raises(Trouble, match="another"),
        runfile.locked(tmp_path),
    ):
        pass


def test_two_folders_are_locked_as_one_where_they_are_the_same(tmp_path):
    with (
        runfile.locked(tmp_path, tmp_path / "a" / ".."),
        pytest.raises(Trouble, match="another"),
        runfile.locked(tmp_path / "b", tmp_path),
    ):
        pass
