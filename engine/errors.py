"""What can go wrong in the engine, and what the caller should do about it.

EngineError
├── DeclarationError       an actor is declared wrongly      fix the place that it names
│   └── BadWorkflow        a workflow is                     the same
├── BadDefinition          a definition cannot work          change the field that it names
├── BadAdapter             an adapter is declared wrongly    change the argument that it names
├── BadTool                a function cannot be a tool       change the place that it names
├── BadModel               a model is declared wrongly       change the argument that it names
├── BadRequest             a request cannot work             change the field that it names
├── Refused                the journal no longer allows it   look at what has happened since
│   └── NotOnJournal       nothing has that id or name       look for it; do not retry
├── NoFinding              no finding ever had the key       look for its key; do not retry
├── Rejected               a command does not fit the state  a bug in the caller; do not retry
├── EpisodeFailed          the episode cannot go on          record it as failed, then stop
│   ├── BudgetExceeded     its budget is used up            the same, unless `on_exhausted` helps
│   │   └── SpendingExceeded   its actor or stack may spend no more   the same
│   └── ReplayDiffers      it takes another way than it did park it until other code is there
├── CallFailed             a call of a function failed       catch it, or let the episode fail
│   └── CallTimeout        its own timeout cut the call off  the same
├── PromptNotKept          nobody knows what was asked       look at another step; do not retry
├── BadHistory             a history cannot be replayed      fix the file or the app that it names
└── StrategyError          user code broke the contract     the episode fails with its class
    ├── BadInput           a workflow's function raised, or returned no valid input
    ├── InvalidAction      `next_step` returned no action, or one with impossible values
    ├── InvalidResult      `converge` returned no usable result
    ├── InvalidFinding     a finding intent has impossible values
    ├── InvalidOutput      an output has impossible values
    ├── Unencodable        a state, argument or result is no JSON, or too large
    └── NondeterministicReplay   a replay asked for another action than the one recorded

Three errors can come from any function that awaits the log; a `Raises:` section names only others:

* `Unavailable`: the log did not answer; the operation may have happened. Pass the error on and
  repeat the call later: every operation of the engine is safe to repeat.
* `UnreadableEvent`: a newer version of the engine has written what was read.
* `Contended`: other writers were faster each of `CONFLICTS_MAX` times. Repeat the call later.
"""

from __future__ import annotations

import inspect
import re
import sysconfig
from decimal import Decimal
from pathlib import Path
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec

from streams.json import NOTHING

_OURS: Final = Path(__file__).parents[1]

_PYTHON: Final = f"{sysconfig.get_path('stdlib')}/"

_INSTALLED: Final = tuple(f"{sysconfig.get_path(each)}/" for each in ("purelib", "platlib"))

_NOT_THE_USERS: Final = (*(f"{_OURS}/{each}/" for each in ("engine", "streams", "vigil")), "<")
"""How the files begin that declare nothing of the user's; Python makes methods in `<string>`."""

_BEYOND: Final = (f"{_PYTHON}asyncio/", f"{_OURS}/vigil/commands/", f"{_OURS}/vigil/__main__.py")
"""How the files begin whose callers declare nothing: those of an event loop, and our commands."""

_FRAMES: Final = re.compile(r"^(.*\n)?  File [^\n]*\n(  [^\n]*\n)*", re.DOTALL)
"""A traceback up to what was raised last."""


def cause_line(detail: str) -> str:
    """Return the first line of an error's detail; of a traceback, that of what was raised last.

    The function of this name in the tables does the same.
    """
    return _FRAMES.sub("", detail).strip().partition("\n")[0]


class EngineError(Exception):
    """Base of every error raised by `engine`."""


def _note_line(error: EngineError) -> None:
    """End the traceback of `error` with the user's line that is wrong, and what is wrong there."""
    frame = inspect.currentframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_BEYOND):  # guard: no-declaration-beyond-loop
            return
        if not _is_foreign(file):
            place = f"{Path(file).name}:{frame.f_lineno}"
            error.add_note(f"{place}: {error}")  # guard: declared-line-noted
            return
        frame = frame.f_back


def _is_foreign(file: str) -> bool:
    """Return whether a file is ours or Python's; what else is installed may be an app."""
    is_pythons = file.startswith(_PYTHON) and not file.startswith(_INSTALLED)
    return is_pythons or file.startswith(_NOT_THE_USERS)  # guard: python-declares-nothing


class DeclarationError(EngineError, ValueError):
    """An actor, an expectation or an app is declared in a way that cannot work."""

    def __init__(self, *, actor: str, expectation: str = "", field: str, problem: str) -> None:
        place = f"actor {actor!r}" + (f", expectation {expectation!r}" if expectation else "")
        super().__init__(f"{place}: {field}: {problem}")
        _note_line(self)
        self.actor = actor
        self.expectation = expectation
        self.field = field
        self.problem = problem


class BadDefinition(EngineError, ValueError):
    """What is defined as data cannot work."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        """Where, such as `expectations.disk.cooldown_s`; empty: it is the whole."""
        self.problem = problem

    def within(self, path: str) -> BadDefinition:
        """Return the same error with `path` put before its own."""
        return BadDefinition(".".join(filter(None, (path, self.path))), self.problem)


class BadAdapter(EngineError, ValueError):
    """An adapter that comes with the engine has an argument that cannot work."""

    def __init__(self, adapter: str, argument: str, problem: str) -> None:
        """Create the error; `problem` must not contain a secret."""
        super().__init__(f"{adapter}: {argument}: {problem}")
        self.adapter = adapter
        self.argument = argument
        self.problem = problem


class BadTool(EngineError, ValueError):
    """A function cannot be a tool, or not with what it is declared with."""

    def __init__(self, tool: str, problem: str) -> None:
        super().__init__(f"tool {tool}: {problem}")
        self.tool = tool
        """Its name, with file and line."""
        self.problem = problem


class BadModel(EngineError, ValueError):
    """A model is declared in a way that cannot work, or cannot be asked on this machine."""

    def __init__(self, model: str, problem: str) -> None:
        super().__init__(f"model {model!r}: {problem}")
        _note_line(self)
        self.model = model
        self.problem = problem


class BadWorkflow(DeclarationError):
    """A workflow or one of its steps is declared in a way that cannot work."""

    def __init__(self, *, workflow: str, step: str = "", field: str, problem: str) -> None:
        place = f"workflow {workflow!r}" + (f", step {step!r}" if step else "")
        EngineError.__init__(self, f"{place}: {field}: {problem}")
        _note_line(self)
        self.workflow = workflow
        self.step = step
        self.field = field
        self.problem = problem


class BadRequest(EngineError, ValueError):
    """A request, such as to fire or to cancel, that cannot work as it was made."""

    def __init__(self, *, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class Refused(EngineError):
    """The journal's state no longer allows what was asked for; the message says why, for people."""


class NotOnJournal(Refused):
    """What was asked about is not on the journal: nothing has that id, key or name."""


class NoFinding(EngineError):
    """No finding has ever been raised under this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there has never been a finding {key!r}")
        self.key = key


class Rejected(EngineError):
    """A command was put to a state that cannot accept it."""


class EpisodeFailed(EngineError):
    """The episode cannot go on: its budget is spent, it goes in circles, or user code broke."""

    def __init__(self, error_class: str, detail: str) -> None:
        super().__init__(f"{error_class}: {detail}")
        self.error_class = error_class
        self.detail = detail


CRASH: Final = "crash"
"""Error class of user code that raised what no other class stands for."""

OUTCOME_UNKNOWN: Final = "outcome_unknown"
"""Error class of an episode that does not know whether a call has happened, and of an output whose
last attempt was cut off by a crash."""

BUDGET_EXCEEDED: Final = "budget_exceeded"
"""Error class of an episode whose budget is used up."""


Limit: TypeAlias = Literal["turns", "tokens", "wall_s", "usd"]
"""What a budget limits."""


class BudgetExceeded(EpisodeFailed):
    """A limit of the budget is used up; `on_exhausted` may make a result of what there is."""

    def __init__(self, limit: Limit, detail: str, *, lacks: Decimal | int = 0) -> None:
        super().__init__(BUDGET_EXCEEDED, f"{limit}: {detail}")
        self.limit = limit
        self.lacks = lacks
        """Least of the limit that the episode needs beyond its budget to go on; 0: unknown."""

    def adding(self, why: str) -> BudgetExceeded:
        """Return the same error with `why` behind what is used."""
        used = self.detail.removeprefix(f"{self.limit}: ")
        return BudgetExceeded(self.limit, f"{used}; {why}", lacks=self.lacks)


class SpendingExceeded(BudgetExceeded):
    """What an actor or the stack may spend is used up; nobody can grant one episode more."""


class CallFailed(EngineError):
    """A call of a function failed: raised where it was awaited, live and on replay alike.

    Uncaught it fails the episode with its class.
    """

    def __init__(
        self, error_class: str, detail: str = "", *, recorded: msgspec.Raw = NOTHING
    ) -> None:
        super().__init__(f"{error_class}: {detail}" if detail else error_class)
        self.error_class = error_class
        """Such as `timeout`, `tool_unavailable` or one that the tool gave to `ToolFailed`."""
        self.detail = detail
        self.recorded = recorded
        """What its step has as the result, beside the failure."""


CALL_TIMEOUT: Final = "call_timeout"
"""Error class of a call that the function's own timeout has cut off."""


class CallTimeout(CallFailed, TimeoutError):
    """The function's own timeout, such as `asyncio.timeout`, has cut a call off.

    The call is recorded as failed, so that a replay fails it at once, as a `TimeoutError`, too. It
    had no side effects; one that has is not cut off without a word: see `outcome_unknown`.
    """

    def __init__(self, detail: str = "") -> None:
        super().__init__(CALL_TIMEOUT, detail)


class Interrupted(BaseException):
    """Ends a function that must not go on here. Not an `Exception`, so that no user catches it."""


class PromptNotKept(EngineError):
    """What a model was asked is not known, or may not be shown: look at another step."""


class BadHistory(EngineError, ValueError):
    """A file that is no recorded journal, or none that this app can replay."""


def with_place(said: str, place: str) -> str:
    """Return what is said with the user's line behind it, as far as there is either."""
    return " ".join(filter(None, (said, f"({place})" if place else "")))


class StrategyError(EngineError, ValueError):
    """User code broke the contract. The episode fails; the node does not."""

    error_class: ClassVar[str] = "strategy_error"
    """Recorded with the failed episode."""

    def __init__(self, problem: str = "", *, place: str = "") -> None:
        """Create the error; `place` is the user's line that it is about, if that is known."""
        super().__init__(with_place(problem, place))
        self.place = place
        """Such as `checks.py:12, in disk`; empty: the line that raised it."""


class BadInput(StrategyError):
    """`input`, `when` or `for_each` of a step raised, or returned a value that no step can use."""

    error_class = "bad_input"


class InvalidAction(StrategyError):
    """`next_step` returned something that is no action, or one with impossible values."""

    error_class = "invalid_action"


class InvalidResult(StrategyError):
    """`converge` returned something that is no result, or one with impossible values."""

    error_class = "invalid_result"


class InvalidFinding(StrategyError):
    """A finding intent has an impossible key, severity or confidence."""

    error_class = "invalid_finding"


class InvalidOutput(StrategyError):
    """An output has an impossible adapter, key or request for approval."""

    error_class = "invalid_output"


class Unencodable(StrategyError):
    """A state, an argument or a result is no valid JSON, or too large."""

    error_class = "unencodable"


class NondeterministicReplay(StrategyError):
    """A replay asked for another action than the one on the journal."""

    error_class = "nondeterministic_replay"


class ReplayDiffers(EpisodeFailed):
    """The code here takes another way than the one on the journal; other code may take that."""

    def __init__(self, how: str) -> None:
        super().__init__(NondeterministicReplay.error_class, how)
