"""What tests of an app need: the whole real engine, in memory and in virtual time.

    async with run(app, tools={"disk.largest": {"path": "/var"}}) as vigil:
        await vigil.publish("resource.updated", {"host": "web-1", "disk_used": 0.97})
        await vigil.run_until_idle()
        assert vigil.finding("host:disk:web-1").severity == "high"

`run` needs no servers and calls nothing real that the test has not allowed. `ModelServer` answers
the real clients of models as a test says. For a node of one's own there are `memory_ports`,
`FakeLeases`, and the events of the journal that tests look for most often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vigil.public import public

if TYPE_CHECKING:
    from streams.clock import SystemClock
    from streams.memory import memory_ports
    from streams.memory.fake_leases import FakeLeases
    from streams.model.events import EpisodeFinished, FindingRaised, StepRecorded
    from vigil.testing.cassettes import Cassette
    from vigil.testing.contracts import (
        check_adapter,
        check_migrations,
        check_synthesizer,
        check_tool,
        check_workflow,
    )
    from vigil.testing.crashes import crash_everywhere, deliver_twice
    from vigil.testing.lab import lab_histories
    from vigil.testing.model_server.answers import (
        AskedTool,
        CutOffAnswer,
        FailureAnswer,
        HangingAnswer,
        JsonAnswer,
        ModelCall,
        ModelRequest,
        ModelUsage,
        RefusalAnswer,
        TextAnswer,
        ToolCallsAnswer,
    )
    from vigil.testing.model_server.server import ModelLedger, ModelServer, Unscripted
    from vigil.testing.outside import OutsideCall
    from vigil.testing.random_state import random_states
    from vigil.testing.replays import replay_histories
    from vigil.testing.running import RunningApp, StillBusy, run
    from vigil.testing.stubs import Call, FakeAdapter, FakeSynthesizer, Unstubbed, in_turn
    from vigil.testing.views import (
        EpisodeSnapshot,
        OutputSnapshot,
        StepSnapshot,
        Waiting,
        WorkflowSnapshot,
    )

__all__ = [
    "AskedTool",
    "Call",
    "Cassette",
    "CutOffAnswer",
    "EpisodeFinished",
    "EpisodeSnapshot",
    "FailureAnswer",
    "FakeAdapter",
    "FakeLeases",
    "FakeSynthesizer",
    "FindingRaised",
    "HangingAnswer",
    "JsonAnswer",
    "ModelCall",
    "ModelLedger",
    "ModelRequest",
    "ModelServer",
    "ModelUsage",
    "OutputSnapshot",
    "OutsideCall",
    "RefusalAnswer",
    "RunningApp",
    "StepRecorded",
    "StepSnapshot",
    "StillBusy",
    "SystemClock",
    "TextAnswer",
    "ToolCallsAnswer",
    "Unscripted",
    "Unstubbed",
    "Waiting",
    "WorkflowSnapshot",
    "check_adapter",
    "check_migrations",
    "check_synthesizer",
    "check_tool",
    "check_workflow",
    "crash_everywhere",
    "deliver_twice",
    "in_turn",
    "lab_histories",
    "memory_ports",
    "random_states",
    "replay_histories",
    "run",
]  # fmt: skip

_HOMES: Final = {
    "vigil.testing.cassettes": "Cassette",
    "vigil.testing.contracts": (
        "check_adapter check_migrations check_synthesizer check_tool check_workflow"
    ),
    "vigil.testing.crashes": "crash_everywhere deliver_twice",
    "streams.memory.fake_leases": "FakeLeases",
    "vigil.testing.model_server.answers": (
        "AskedTool CutOffAnswer FailureAnswer HangingAnswer JsonAnswer ModelCall ModelRequest "
        "ModelUsage RefusalAnswer TextAnswer ToolCallsAnswer"
    ),
    "vigil.testing.model_server.server": "ModelLedger ModelServer Unscripted",
    "vigil.testing.lab": "lab_histories",
    "vigil.testing.outside": "OutsideCall",
    "vigil.testing.random_state": "random_states",
    "vigil.testing.replays": "replay_histories",
    "vigil.testing.running": "RunningApp StillBusy run",
    "vigil.testing.stubs": "Call FakeAdapter FakeSynthesizer Unstubbed in_turn",
    "vigil.testing.views": "EpisodeSnapshot OutputSnapshot StepSnapshot Waiting WorkflowSnapshot",
    "streams.clock": "SystemClock",
    "streams.memory": "memory_ports",
    "streams.model.events": "EpisodeFinished FindingRaised StepRecorded",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = public(__name__, _HOMES)
