"""What an expectation runs: a `Strategy`, which decides one step at a time, or a `Function`. Pure.

A function runs from the top whenever a node has its episode, and is fed what the journal has. So
what it does between two calls of its `ctx` must be the same each time; `vigil check` names what
in its source is not.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from inspect import getattr_static
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, ClassVar, Final, Generic, TypeAlias, get_type_hints

import msgspec
from pydantic import BaseModel
from typing_extensions import TypeVar

from engine import validation
from engine.app.actions import Action, ReportFindings, Step
from engine.app.context import Context, EpisodeView
from engine.app.findings import SUMMARY_CHARS_MAX, Enriched, checked_key
from engine.app.outputs import checked_intent
from engine.app.tools import Failure, check_name
from engine.errors import InvalidFinding, InvalidResult
from streams.json import JsonObject, unraw
from streams.model.events import EpisodeConverged, StepKind
from streams.model.findings import ClearFinding, Finding, FindingIntent, RaiseFinding, UpdateFinding
from streams.model.outputs import OutputIntent
from streams.model.triggers import Trigger

Enrich: TypeAlias = Callable[[Finding, EpisodeView], Enriched | Awaitable[Enriched | None] | None]
"""Looks something up about a finding that an episode has raised; None: there is nothing to add."""

StrategyFunction: TypeAlias = Callable[[Any, Trigger], Awaitable[object]]
"""What users write: `async def name(ctx, trigger)`."""

IN_STRATEGY: Final[ContextVar[bool]] = ContextVar("in_strategy", default=False)
"""Whether the code that runs is that of a function, of `next_step` or of `handle_result`, which a
replay runs again, and not of a tool that it calls."""

CONVERGED_BYTES_MAX: Final = 768 * 1024
"""Largest convergence or report: it must fit in one message, 1 MiB by the server's default."""

FINDINGS_MAX: Final = 1_000
"""Most findings of one convergence or report: the end of its episode names the outcome of each and
must fit in one message.
"""

OUTPUTS_MAX: Final = 100
"""Most outputs of one convergence: its episode waits until each is settled, and names them."""


S = TypeVar("S", default=Any)
"""A strategy's state."""

BUILT_IN_TEMPLATES: Final = frozenset(
    {"observe_classify_converge", "observe_synthesize_converge", "dispatch", "agentic_task"}
)
"""Names of the templates that every app has; see `engine.templates`."""


class ConvergeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The conclusion of a strategy."""

    classification: JsonObject = {}
    """Any JSON object, such as `{"primary": "disk_full"}`."""
    confidence: float | None = None
    """0.0 to 1.0; None where the strategy does not judge."""
    summary: str = ""
    """One sentence for people, of at most `SUMMARY_CHARS_MAX` characters."""
    findings: Sequence[FindingIntent] = ()
    """Made with `raise_finding`, `update_finding` and `clear_finding`; applied in order."""
    outputs: Sequence[OutputIntent] = ()
    """Made with `propose_output`; delivered in any order once the findings are applied."""
    result: object = None
    """The result of a workflow's step, any JSON value; None: an object of classification,
    confidence and summary.
    """
    metadata: JsonObject = {}
    """Any JSON object that people and queries find with the episode, such as `{"ticket": 42}`; its
    values win over those that the episode was fired with.
    """


def checked_result(result: object) -> ConvergeResult:
    """Return what `converge` returned; `InvalidResult`: it is no conclusion."""
    if not isinstance(result, ConvergeResult):
        raise InvalidResult(f"converge() returned {_name(result)}; it must return a ConvergeResult")
    return result


def conclude(result: ConvergeResult) -> EpisodeConverged:
    """Return `result` as the event for the journal, or raise a `StrategyError`."""
    _check(result)
    converged = EpisodeConverged(
        classification=validation.encode(result.classification, what="classification"),
        confidence=None if result.confidence is None else float(result.confidence),
        summary=result.summary[:SUMMARY_CHARS_MAX],
        findings=tuple(result.findings),
        outputs=tuple(result.outputs),
        result=validation.encode(result.result, what="result"),
        metadata=unraw(validation.encode(result.metadata, what="metadata")),
    )
    encoded = msgspec.json.encode(converged)
    try:
        msgspec.json.decode(encoded, type=EpisodeConverged)
    except msgspec.ValidationError as error:
        raise InvalidResult(f"something is of the wrong type: {error}") from error
    size_bytes = len(encoded)
    if size_bytes > CONVERGED_BYTES_MAX:
        raise InvalidResult(
            f"{_contents(result)} make {size_bytes:,} bytes, the limit is"
            f" {CONVERGED_BYTES_MAX:,}; keep evidence elsewhere and hand on references"
        )
    return converged


def report(*findings: FindingIntent) -> ReportFindings:
    """Return the action that applies `findings` now, instead of after convergence.

    They are made with `raise_finding`, `update_finding` and `clear_finding`, and applied in order:
    1 to 1,000. `handle_result` gets what became of each, such as `[{"finding_key": "disk:web-1",
    "outcome": "raised", "raise_no": 1}]`; the outcome is `raised`, `updated`, `cleared`,
    `unchanged` or `dry_run`. Raises `InvalidFinding` if a value is impossible.
    """
    return ReportFindings(checked_findings(findings))


def checked_findings(findings: object) -> tuple[FindingIntent, ...]:
    """Return `findings` if a report can apply them; raise `InvalidFinding` otherwise."""
    if not isinstance(findings, tuple) or not findings:
        raise InvalidFinding("report: there is no finding; give it raise_finding(…)")
    if len(findings) > FINDINGS_MAX:
        raise InvalidFinding(f"report: {len(findings):,} findings, the limit is {FINDINGS_MAX:,}")
    for intent in findings:
        if not isinstance(intent, FindingIntent):
            raise InvalidFinding(f"report: give it raise_finding(…), not {_name(intent)}")
        checked_key(intent.finding_key)
    try:
        encoded = msgspec.json.encode(findings)
        msgspec.json.decode(encoded, type=tuple[FindingIntent, ...])
    except (TypeError, ValueError) as error:
        raise InvalidFinding(f"report: something is of the wrong type: {error}") from error
    if len(encoded) > CONVERGED_BYTES_MAX:
        raise InvalidFinding(
            f"report: {len(findings)} findings make {len(encoded):,} bytes, the limit is"
            f" {CONVERGED_BYTES_MAX:,}; keep evidence elsewhere and hand on references"
        )
    return findings


def _check(result: ConvergeResult) -> None:
    if not isinstance(result.classification, dict):
        raise InvalidResult(f"classification must be a dict, not {_name(result.classification)}")
    if not isinstance(result.metadata, dict):
        raise InvalidResult(f"metadata must be a dict, not {_name(result.metadata)}")
    if not isinstance(result.summary, str):
        raise InvalidResult(f"summary must be text, not {_name(result.summary)}")
    confidence: object = result.confidence
    if confidence is not None and not (
        isinstance(confidence, int | float) and 0 <= confidence <= 1
    ):
        raise InvalidResult(f"confidence must be a number from 0 to 1, not {confidence!r}")
    _check_list("findings", result.findings, most=FINDINGS_MAX)
    _check_list("outputs", result.outputs, most=OUTPUTS_MAX)
    for output in result.outputs:
        checked_intent(output)
    for intent in result.findings:
        if not isinstance(intent, RaiseFinding | UpdateFinding | ClearFinding):
            raise InvalidResult(f"findings must be made with raise_finding(…), not {_name(intent)}")
        checked_key(intent.finding_key)


def _contents(result: ConvergeResult) -> str:
    outputs = f" and {len(result.outputs)} outputs" if result.outputs else ""
    return f"{len(result.findings)} findings{outputs}"


def _check_list(field: str, value: object, *, most: int) -> None:
    if not isinstance(value, list | tuple):
        raise InvalidResult(f"{field} must be a list, not {_name(value)}")
    if len(value) > most:  # guard: findings-max-of-an-end
        raise InvalidResult(f"{len(value):,} {field}, the limit is {most:,}")


def _name(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


class StepTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The step whose result `handle_result` gets."""

    step_no: int
    """1-based."""
    kind: StepKind
    tool: str
    """`capability.action` of a tool call; else empty."""
    action: Step


class Retry(msgspec.Struct, frozen=True):
    """Continue with this state. `next_step` may ask for the same step again. The budget counts."""

    state: Any


class Abort(msgspec.Struct, frozen=True):
    """End the episode as failed."""

    error_class: str
    detail: str = ""


def retry(state: object) -> Retry:
    """Return, from `handle_result`, that the strategy continues with `state`."""
    return Retry(state)


def abort(error_class: str, detail: str = "") -> Abort:
    """Return, from `handle_result`, that the episode has failed."""
    return Abort(error_class, detail)


Handled: TypeAlias = S | Retry | Abort


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a strategy needs from its app; checked when the app is declared."""

    gatherer: str = ""
    """Name of its gatherer; empty: none."""
    synthesizer: bool = False
    """Whether it cannot work without a synthesizer."""
    outputs: tuple[str, ...] = ()
    """Names of the outputs that it proposes, in order."""
    tools: tuple[str, ...] = ()
    """Names of the tools that it offers to an agent, in order, as `capability.action`."""
    model: str = ""
    """Name of the model of its agent, such as `openai:gpt-5`; empty: it has none."""
    answers_limited: bool = False
    """Whether the agent limits the tokens of an answer."""


class Strategy(Generic[S]):
    """Subclass this. Every callback may be plain or `async`.

    A plain callback runs on the node's event loop. If it blocks (`time.sleep`, a synchronous HTTP
    client), the node's leases may lapse, and other nodes take over its episodes. Use async code or
    `asyncio.to_thread` for anything that waits.

    `next_step` and `handle_result` must be deterministic: after a crash they are called again with
    what the journal recorded, and must decide the same. `init`, `converge`, tools and synthesizers
    may read the outside. One instance serves all episodes: store nothing on `self`.
    """

    State: ClassVar[type | None] = None
    """The state's type. Optional for a dict, or if `init` declares its return type."""

    needs: Needs = Needs()
    """What the app must provide."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> S | Awaitable[S]:
        """Return the first state."""
        raise NotImplementedError

    def next_step(self, state: S, ctx: Context) -> Action | Awaitable[Action]:
        """Return what to do next."""
        raise NotImplementedError

    def handle_result(
        self,
        state: S,
        step: StepTaken,
        result: Any,  # noqa: ANN401 - a tool's shape is its own
    ) -> Handled[S] | Awaitable[Handled[S]]:
        """Return the state after `step`, or `retry(…)` or `abort(…)`.

        `state` is the state before the step; `result` is its result, decoded from JSON, or a
        `Failure`. By default a failure ends the episode and a result is ignored.
        """
        del step
        if isinstance(result, Failure):
            return Abort(result.error_class, result.detail)
        return state

    def converge(self, state: S, ctx: Context) -> ConvergeResult | Awaitable[ConvergeResult]:
        """Return the conclusion."""
        raise NotImplementedError


def state_type(strategy: Strategy[Any]) -> type:
    """Return the type of the state of `strategy`; `TypeError`: it declares none to store."""
    declared = strategy.State or _returned_by(strategy.init)
    if declared is None:
        return dict
    if not inspect.isclass(declared) or not _can_be_kept(declared):
        raise TypeError(
            f"{declared!r} cannot be kept; use a msgspec.Struct, a dataclass, a pydantic model"
            " or a dict"
        )
    return declared


def _returned_by(init: object) -> object:
    try:
        returned = get_type_hints(init).get("return")
    except NameError:  # An annotation that only a type checker can see.
        return None
    origin = getattr(returned, "__origin__", returned)
    return origin if inspect.isclass(origin) and _can_be_kept(origin) else None


def _can_be_kept(candidate: type) -> bool:
    keeps = (msgspec.Struct, BaseModel, dict)
    return issubclass(candidate, keeps) or hasattr(candidate, "__dataclass_fields__")


def missing(strategy: Strategy[Any]) -> list[str]:
    """Return the callbacks that `strategy` must override and does not."""
    return [
        name
        for name in ("init", "next_step", "converge")
        if getattr(type(strategy), name) is getattr(Strategy, name)
    ]


@dataclass(frozen=True)
class Function:
    """A function, in the place of a strategy."""

    run: StrategyFunction
    needs: Needs = field(default_factory=Needs)
    """What the app must provide."""

    @property
    def name(self) -> str:
        """What the function is called."""
        return self.run.__name__


Template: TypeAlias = Callable[..., Strategy[Any] | StrategyFunction | Function]
"""Makes a strategy from a configuration; raises a `ValueError` if that cannot work.

It is called with the configuration, a `JsonObject`. If it has a parameter `tools`, that receives
the tools of the app: capability → tool.
"""

TOOLS: Final = "tools"
"""The parameter of a template that receives the tools of the app."""


def takes_tools(template: Template) -> bool:
    """Return whether a template has a parameter for the tools of the app."""
    try:
        return TOOLS in inspect.signature(template).parameters
    except (TypeError, ValueError):  # It is no function of Python's, such as a class in C.
        return False


def checked_templates(templates: object) -> Mapping[str, Template]:
    """Return the templates of `App(templates=…)`; `TypeError` or `ValueError`: one cannot work."""
    if not isinstance(templates, Mapping):
        raise TypeError(f"{templates!r} is not a dict of name to template")
    for name, template in templates.items():
        check_name(name, of="a template")
        if name in BUILT_IN_TEMPLATES:
            raise ValueError(f"{name!r}: every app has a template of that name")
        if not callable(template):
            raise TypeError(f"{name!r}: {template!r} is no function of a configuration")
    return templates


def problem_of_function(candidate: object) -> str | None:
    """Return why `candidate` cannot be the function of an expectation, or None."""
    if inspect.isasyncgenfunction(candidate):
        return "it has `yield`; return all that it finds, in a list"
    if not inspect.iscoroutinefunction(candidate):
        name = getattr(candidate, "__qualname__", repr(candidate))
        return f"{name} is not `async def name(ctx, trigger)`; make it async"
    try:
        inspect.signature(candidate).bind(None, None)
    except TypeError:
        return f"{candidate.__qualname__}{inspect.signature(candidate)} must take (ctx, trigger)"
    return None


CODE_BYTES: Final = 6
"""How long a digest of code is: two versions of a strategy have the same once in 10^14 times."""

CODE_TEXTS_MAX: Final = 20_000
"""Most pieces, such as names and constants, that count for the code of one strategy."""

_ELSEWHERE: Final = frozenset({__name__.partition(".")[0], "streams", "vigil"})
"""Packages whose code is none of the user's."""


AGENTS: Final = "pydantic_ai"

PROMPTS: Final = ("name", "_instructions", "_system_prompts", "instruction")
"""What of an agent is its prompt, as far as the library has it there: an episode that is parked is
tried again with another one."""


def digest_of(texts: Iterable[str]) -> str:
    """Return a short digest of `texts` in their order."""
    digest = hashlib.blake2b(digest_size=CODE_BYTES)
    for text in texts:
        digest.update(text.encode(errors="backslashreplace") + b"\0")
    return digest.hexdigest()


def code_of(strategy: Strategy[Any] | Function) -> str:
    """Return a digest of what `strategy` runs, the same in every process that has this code.

    That is its compiled code, and that of the user's functions, classes, tools and constants that
    it names, and they in turn, and the prompts of agents. Lines, comments and names of files do
    not count.
    """
    root = inspect.unwrap(strategy.run) if isinstance(strategy, Function) else type(strategy)
    settings = () if isinstance(strategy, Function) else sorted(vars(strategy).items())
    waiting: list[object] = [root, *(value for _, value in settings)]
    seen, texts = set[int](), [name for name, _ in settings]
    for part in waiting:  # Which gets longer meanwhile.
        if len(texts) >= CODE_TEXTS_MAX:
            break
        if isinstance(part, str | bytes | int | float | None):
            texts.append(f"{type(part).__name__} {part!r}")
        elif id(part) not in seen:
            seen.add(id(part))
            said, named = _part(part, is_root=part is root)
            texts += said
            waiting += named
    return digest_of(texts)


def _part(part: object, *, is_root: bool) -> tuple[list[str], list[object]]:
    """Return what counts of a part of a strategy's code, and the other parts that it names."""
    match part:
        case FunctionType() if is_root or _is_users(part.__module__):
            cells = [_in_cell(each) for each in part.__closure__ or ()]
            defaults = [*(part.__defaults__ or ()), *(part.__kwdefaults__ or {}).values()]
            texts, names = _compiled(part.__code__)
            return texts, [*defaults, *cells, *_named(names, part.__globals__)]
        case type() if is_root or _is_users(part.__module__):
            kinds = [each for each in part.__mro__ if each not in {object, Strategy}]
            items = [item for kind in kinds for item in sorted(vars(kind).items())]
            own = [(name, value) for name, value in items if not _is_dunder(name)]
            return [name for name, _ in own], [_unwrapped(value) for _, value in own]
        case msgspec.Struct():
            return [type(part).__qualname__], list(msgspec.structs.asdict(part).values())
        case tuple() | list():
            return [f"{len(part)}"], list(part)
        case set() | frozenset():
            return sorted(map(repr, part)), []
        case Mapping():
            pairs = sorted(part.items(), key=lambda pair: repr(pair[0]))
            return [repr(key) for key, _ in pairs], [value for _, value in pairs]
        case _ if type(part).__module__.partition(".")[0] == AGENTS:
            # guard: other-prompt-is-other-code
            return [], [getattr(part, each, None) for each in PROMPTS]
        case _:
            function = getattr(part, "function", None)  # Of a tool.
            name, action = getattr(part, "capability", ""), getattr(part, "action", "")
            is_tool = isinstance(function, FunctionType)
            return ([f"{name}.{action}"], [function]) if is_tool else ([], [])


def _compiled(code: CodeType) -> tuple[list[str], list[str]]:
    """Return what counts of compiled code, and the names that it looks up elsewhere."""
    texts = [code.co_code.hex(), *code.co_names, *code.co_varnames[: code.co_argcount]]
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner, looked_up = _compiled(constant)
            texts += inner
            names += looked_up
        elif isinstance(constant, frozenset):  # Its order is another one in each process.
            texts += sorted(map(repr, constant))
        else:
            texts.append(repr(constant))
    return texts, names


def _named(names: Sequence[str], known: Mapping[str, object]) -> list[object]:
    """Return what `names` are of a module, and of the user's modules that are among them."""
    found: list[object] = []
    for name in dict.fromkeys(names):
        value = known.get(name)
        if isinstance(value, ModuleType) and _is_users(value.__name__):
            found += (getattr_static(value, each, None) for each in dict.fromkeys(names))
        elif not isinstance(value, str | int | float | tuple | Mapping) or name.isupper():
            found.append(value)  # What has no name of a constant may be another at any moment.
    return found


def _in_cell(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # It has no value yet.
        return None


def _unwrapped(value: object) -> object:
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__func__", value)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name != "__init__"


def _is_users(module: str | None) -> bool:
    """Return whether a module is of the user, and not of Python, a library or the engine."""
    package = (module or "").partition(".")[0]
    if package in _ELSEWHERE or package in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return "site-packages" not in file
