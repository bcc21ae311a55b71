"""What nodes are called, over restarts and beside each other."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from streams.subjects import Stack
from streams.tokens import name as checked_name
from vigil import Actor, App, Strategy, event, settings
from vigil.errors import Mistake, Trouble
from vigil.serving.names import PLACES_MAX, name_at, named, named_each


class Watch(Strategy):
    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        raise NotImplementedError

    def converge(self, state, ctx):
        raise NotImplementedError


def app_of(**options) -> App:
    actor = Actor("a")
    actor.expect("x", Watch, on=event("a.b"))
    return App(actors=[actor], **options)


APP = app_of()


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("VIGIL_")]:
        monkeypatch.delenv(name)
    return settings.read({})


def name_of(config, app: App = APP) -> str:
    with named(config, app) as known:
        return known.node


def test_a_node_is_called_the_same_at_every_start(config):
    assert name_of(config) == name_of(config)
    assert checked_name(name_of(config), of="node")


def test_nodes_that_run_beside_each_other_have_names_of_their_own(config):
    with named(config, APP) as first, named(config, APP) as second:
        assert len({first.node, second.node, config.node}) == 3
        names = {first.node, second.node}
    with named(config, APP) as third, named(config, APP) as fourth:
        assert {third.node, fourth.node} == names


def test_a_stack_and_a_folder_make_other_names():
    here, there = Path("/here"), Path("/there")
    names = {
        name_at(place, stack=Stack(stack), folder=folder)
        for place in range(2)
        for stack in ("vigil", "orders")
        for folder in (here, there)
    }
    assert len(names) == 8


def test_a_name_that_was_set_comes_first_and_the_apps_before_ours(config):
    app = app_of(node_name=lambda: "called")

    assert name_of(settings.read({"node": "n1"}), app) == "n1"
    assert name_of(config, app) == "called"


@pytest.mark.parametrize("name", ["", "a.b", None, "n" * 65])
def test_a_name_of_the_app_that_no_node_can_have_is_refused(config, name):
    with pytest.raises(Mistake, match="node_name"), named(config, app_of(node_name=lambda: name)):
        pass


def test_only_so_many_nodes_of_one_folder_go_without_a_name(config):
    with ExitStack() as stack:
        for _ in range(PLACES_MAX):
            stack.enter_context(named(config, APP))
        with pytest.raises(Trouble, match="VIGIL_NODE"):
            stack.enter_context(named(config, APP))


def test_where_nothing_can_be_kept_a_node_is_called_after_its_process(config, capsys):
    Path(".vigil").write_text("no folder")

    assert name_of(config) == config.node
    assert "VIGIL_NODE" in capsys.readouterr().err


def names_of_each(stacks: str, app: App = APP, **given: object) -> list[str]:
    with named_each(settings.read_each(given, stacks), app) as known:
        return [each.node for each in known]


@pytest.mark.usefixtures("config")
def test_nodes_of_several_stacks_never_share_a_name():
    assert names_of_each("orders,billing", node="web") == ["web-orders", "web-billing"]
    assert names_of_each("a,b", app_of(node_name=lambda: "mine")) == ["mine-a", "mine-b"]
    assert names_of_each("orders", node="web", env="qa") == ["web-orders-qa"]
    places = names_of_each("orders,billing")
    assert len(set(places)) == 2
    assert places == names_of_each("orders,billing")


@pytest.mark.usefixtures("config")
def test_where_no_name_is_kept_the_stacks_tell_the_nodes_apart(capsys):
    configs = settings.read_each({}, "orders,billing")
    Path(".vigil").write_text("no folder")
    with named_each(configs, APP) as known:
        assert [each.node for each in known] == [
            f"{each.node}-{each.stack.name}" for each in configs
        ]
    capsys.readouterr()


def test_a_node_that_comes_back_has_its_name_and_a_second_one_another(connected, write_app):
    write_app()
    command = ("node", "--app", "watch:app", "--no-project", "--log", "json")

    def greeted(node) -> str:
        return node.wait_said('"event": "node up"').split(" · ")[0]

    with connected.running(*command) as first:
        name = greeted(first)
        with connected.running(*command) as second:
            assert greeted(second) != name
        assert first.stop(signal.SIGKILL)
    with connected.running(*command) as again:
        assert greeted(again) == name
