"""The app: a monitor that finds, and an advisor that wakes on what was found."""

from __future__ import annotations

from typing import Final

from vigil import Actor, App, Budget, event
from vigil.demo.advisor import LookCloser, WithdrawAdvice
from vigil.demo.inspection import largest_directories, top_processes
from vigil.demo.monitor import DISK, LOAD, MEMORY, CheckGauge

AT_ONCE: Final = Budget(turns=1, wall_s=10.0)
"""For strategies that decide on what came with the event."""

resource_monitor = Actor("resource_monitor", domain="hosts", max_concurrent_episodes=20)
resource_monitor.expect(
    "disk", CheckGauge(DISK), on=event("host.disk.measured"), subject_key="mount", budget=AT_ONCE
)
resource_monitor.expect(
    "memory",
    CheckGauge(MEMORY),
    on=event("host.memory.measured"),
    subject_key="host",
    budget=AT_ONCE,
)
resource_monitor.expect(
    "load", CheckGauge(LOAD), on=event("host.load.measured"), subject_key="host", budget=AT_ONCE
)

# Without the filter the advisor would wake on its own advice.
BY_THE_MONITOR: Final = {"actor_id": ["resource_monitor"]}

resource_advisor = Actor(
    "resource_advisor",
    domain="hosts",
    max_concurrent_episodes=2,  # Adding up folders keeps a disk busy.
    tools={"processes": {"top": top_processes}, "directories": {"largest": largest_directories}},
)
resource_advisor.expect(
    "look_closer",
    LookCloser,
    on=event("finding.raised", filter=BY_THE_MONITOR),
    subject_key="finding_key",
    budget=Budget(turns=6, tokens=5_000, wall_s=30.0),
)
resource_advisor.expect(
    "withdraw_advice",
    WithdrawAdvice,
    on=event("finding.cleared", filter=BY_THE_MONITOR),
    subject_key="finding_key",
    budget=AT_ONCE,
)

app = App(actors=[resource_monitor, resource_advisor])
