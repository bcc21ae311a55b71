"""compose.yaml and what it builds on: its settings, commands, files and servers exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any, Final

import pytest
import typer
import yaml

from vigil import settings
from vigil.commands import whole
from vigil.serving import app
from vigil.settings import PREFIX

ROOT: Final = Path(__file__).parents[2]
SERVICES: Final = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
OURS: Final = [name for name, service in SERVICES.items() if service["image"] == "vigil"]
SERVERS: Final = ["nats-1", "nats-2", "nats-3"]
IMAGE: Final = (ROOT / "deploy" / "Dockerfile").read_text()

CHECK_S_MAX: Final = 30.0


def _settings(service: dict[str, Any]) -> dict[str, str]:
    return {
        key.removeprefix(PREFIX).lower(): value
        for key, value in service["environment"].items()
        if key.startswith(PREFIX)
    }


def test_it_has_three_servers_three_nodes_and_a_projector():
    commands = [SERVICES[name]["command"][0] for name in OURS]

    assert {*SERVERS, "postgres"} <= SERVICES.keys()
    assert (commands.count("node"), commands.count("project")) == (3, 1)


@pytest.mark.parametrize("name", OURS)
def test_every_setting_is_one_and_can_work(name, tmp_path):
    chosen = settings.read(_settings(SERVICES[name]), folder=tmp_path).settings

    assert chosen.replicas == len(SERVERS)
    assert chosen.nats_url == ",".join(f"nats://{server}:4222" for server in SERVERS)


@pytest.mark.parametrize("name", OURS)
def test_every_command_can_be_parsed(name):
    word, *arguments = SERVICES[name]["command"]
    command: Any = typer.main.get_command(whole())

    command.commands[word].make_context(word, list(arguments))


def test_the_nodes_run_an_app_that_is_in_the_image():
    commands = [SERVICES[name]["command"] for name in OURS]
    (chosen,) = {command[command.index("--app") + 1] for command in commands if "--app" in command}

    assert app.load(chosen).actors
    assert f"COPY {chosen.partition('.')[0]} " in IMAGE


def test_nodes_have_names_of_their_own():
    names = [_settings(SERVICES[name]).get("node") for name in OURS if name != "vigil"]

    assert len(set(names)) == len(names)


def test_a_node_has_more_time_to_stop_than_it_takes():
    for name in OURS:
        grace_s = float(_settings(SERVICES[name])["grace_s"])
        assert grace_s < float(SERVICES[name]["stop_grace_period"].removesuffix("s"))


def test_every_service_waits_for_servers_that_can_tell_their_health():
    for name in OURS:
        assert SERVICES[name]["depends_on"].keys() == {*SERVERS, "postgres"}
    assert all("test" in SERVICES[name]["healthcheck"] for name in (*SERVERS, "postgres"))


def test_every_file_it_mounts_and_copies_is_there():
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", ())]
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (.+)$", IMAGE, re.MULTILINE)]
    kept = (ROOT / ".dockerignore").read_text().splitlines()

    assert all((ROOT / each.partition(":")[0]).exists() for each in mounts if each[0] == ".")
    for source in (source for sources in copied for source in sources):
        assert (ROOT / source).exists()
        assert f"!{source}" in kept


@pytest.mark.parametrize("name", SERVERS)
def test_the_servers_configuration_is_one(name):
    server = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or "nats-server"
    environ = {**os.environ, **SERVICES[name]["environment"]}
    done = subprocess.run(
        [server, "-t", "--config", str(ROOT / "deploy" / "nats.conf")],
        env=environ,
        capture_output=True,
        text=True,
        timeout=CHECK_S_MAX,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_what_the_servers_acknowledge_is_on_disk():
    assert "sync_interval: always" in (ROOT / "deploy" / "nats.conf").read_text()
