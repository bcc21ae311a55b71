"""An episode's ways through the engine are short enough to be read."""

from __future__ import annotations

import pytest

from streams.memory import memory_ports
from tests.engine.stage import HAPPENED, Scripted, running
from tests.simulation.time import SimClock, simulate
from tests.walk.chain import longest_chain
from tests.walk.trace import walking
from tests.walk.ways import walks
from vigil import Actor, App, event

# What `make walk` counts today, of a class: it has run on the machine of functions since ADR 0071,
# which is 5 to 7 files more than one of its own had. These may only fall.
# A branch is counted in its function, or in the agent that it is part of: `functions/activity.py`
# is one more file, and a replay enters it for each record that it waits for.
# Since ADR 0111 the claim and the lease of a node have files of their own, and the reactor notes
# what is covered as it follows: four files more, five where a node dies. A replay looks up each
# record by itself (ADR 0113), which costs less and is two changes more for each. An end asks
# whether its episode had a place in its lane (ADR 0112): one more.
MOST = {  # way: files, changes
    "converge": (42, 138),
    "proposal": (57, 225),
    "approval and delivery": (41, 224),  # Who decides may be of a group: `waits/deciders.py`;
    "approved output": (66, 449),  # and of several: an approval is given before it is whole.
    "kill to next step": (40, 239),
    "kill to end": (44, 328),
}
CHAIN_MOST = 24

# Where an output's history is gone through, and how often for an output that is approved.
FOLDS = [
    ("outputs/output.py", "fold"),
    ("outputs/store.py", "_fold"),
    ("outputs/dead_letters.py", "_each_gone_on"),
]
FOLDS_MOST = 6


@pytest.fixture(scope="module")
def found():
    return walks()


@pytest.mark.parametrize("way", MOST)
def test_a_way_enters_no_more_files_and_changes_between_them_no_more_often(found, way):
    files, changes = MOST[way]
    assert len(found[way].files) <= files
    assert found[way].changes <= changes


def test_every_way_has_its_bounds(found):
    assert found.keys() == MOST.keys()


def test_the_history_of_an_output_is_not_gone_through_again_and_again(found):
    calls = found["approved output"].calls
    assert all(calls[each] for each in FOLDS)
    assert sum(calls[each] for each in FOLDS) <= FOLDS_MOST


def test_an_episode_enters_no_file_of_what_it_has_none_of(found):
    others = ("workflows/", "findings/", "waits/", "outputs/", "lanes/", "spending/")
    assert [file for file in found["converge"].files if file.startswith(others)] == []


def test_no_chain_of_imports_is_longer():
    chain = longest_chain()
    assert len(chain) <= CHAIN_MOST, " → ".join(chain)


def test_a_node_that_nobody_wakes_is_on_no_way():
    async def idles():
        actor = Actor("worker")
        actor.expect("thing", Scripted(), on=event(HAPPENED))
        clock = SimClock()
        with walking() as walk:
            async with running(App(actors=[actor]), memory_ports(clock=clock), clock=clock):
                await clock.sleep(120.0)
        return walk

    assert simulate(idles()).files == {}
