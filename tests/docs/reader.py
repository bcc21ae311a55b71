"""Somebody who reads a page from top to bottom and does what it says.

Files are written, commands are run in a shell where `vigil` and `python` are ours, and
programs that go on are left running, as in a terminal of their own, until the page ends.
`vigil`, `python -m pytest` and a file of Python with plain words need no shell, and have their
imports: `tests/vigil/warm.py` runs them.
Whatever nobody has taught the reader to do fails the test: no block is passed over.
"""

from __future__ import annotations

import asyncio
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from engine.definitions import agent_of, format_of, read, workflow_of
from projections.postgres.pool import connect
from projections.postgres.reader import run_sql
from tests.docs.pages import Block, blocks
from tests.vigil.program import ROOT, Running, talking
from tests.vigil.warm import WarmProgram, run_warm
from vigil import settings

RUN_S_MAX: Final = 180.0
"""Longest that a command may take, in seconds: one that hangs is all that this ends."""

LOOK_AGAIN_S_MAX: Final = 60.0
"""Longest wait for rows to show what a page says they do, in seconds."""

LOOK_S: Final = 0.2

SAID_CHARS_MAX: Final = 4_000
"""Most of a program's output that the message about its end shows."""

GOES_ON: Final[Mapping[str, str]] = {
    "up": "node up",
    "node": "node up",
    "project": "projector ",
    "projections run": "projection ",
}
"""Commands of `vigil` that go on until they are stopped, and what they say once they are up."""

ASKS: Final = frozenset({"costs", "dead", "episodes", "findings", "recover", "sql"})
"""Those that read the rows, which follow the log some milliseconds behind: look again."""

SHOWN: Final = frozenset({"conf", "mermaid", "text"})
"""Languages of blocks to be looked at; tests of accounts start servers with each `conf`. A `text`
right after commands is what the last one says."""

PLACEHOLDERS: Final = ("nats://127.0.0.1:4222", "postgresql://127.0.0.1/vigil")
"""Addresses that pages name; what listens there on this machine is not ours."""

SHELL: Final = frozenset({"vigil", "python", "echo", "printf", "pip"})
"""Programs that a page may use."""

PLAIN: Final = re.compile(
    r"""(?P<settings>(?:[A-Z_]+=[^\s'"\\$`*?~<>|&;(){}]+\ )*)
    (?P<program>vigil|python\ -m\ pytest|python(?=\ \w+\.py\b))
    (?P<words>\ (?:[^'"\\$`*?~<>|&;(){}]|'[^']*'|"[^"\\$`]*")*)""",
    re.VERBOSE,
)
"""A line that means the same to any shell: a program with some words, and settings before it."""

TELLS_CODE: Final = ' || echo "exit code $?"'
"""What a page writes behind a command that may fail."""

TARGETS: Final = re.compile(r"(?m)^([a-z-]+):.*## ")


class Servers(NamedTuple):
    """Where the page's servers are."""

    nats_url: str
    postgres_dsn: str


class Typed(NamedTuple):
    """A line that needs no shell."""

    settings: Mapping[str, str]
    program: str
    words: Sequence[str]


class Answer(NamedTuple):
    """What the last command said."""

    text: str
    line: str = ""
    """The command, if it may say something else in a moment."""


class Reader:
    """Reads pages in one folder."""

    def __init__(self, folder: Path, *, running: Iterable[str] = ()) -> None:
        """Read in `folder`, where somebody has started the programs `running` already."""
        self.folder = folder
        self._running = frozenset(running)
        self._answer = Answer("")
        self._programs: dict[str, Running] = {}
        self._environ = _environ(_shims(folder))

    def beside(self) -> Reader:
        """Return a reader of another page in the same folder."""
        return Reader(self.folder, running=self._programs)

    def read(self, page: str) -> None:
        """Do what `page` says."""
        for block in blocks(page):
            self._read(block)

    def stop(self) -> None:
        """Stop what was started last first, and see that each ends in order."""
        for line in reversed(list(self._programs)):
            self._stop(line, signal.SIGTERM)

    def end(self) -> None:
        """Leave nothing running."""
        for program in self._programs.values():
            program.end()

    def _stop(self, line: str, number: signal.Signals) -> None:
        program = self._programs[line]
        code = program.stop(number)
        assert code == 0, f"{line} ended with {code}: {program.said[-SAID_CHARS_MAX:]}"
        self._programs.pop(line).end()

    def _read(self, block: Block) -> None:
        match block.language:
            case "python":
                self._write(block)
            case "console" | "sh":
                for line in _lines(block.text):
                    self._do(line, block.place)
            case "sql":
                assert asyncio.run(self._query(block.text)), f"{block.place}: no columns"
            case "toml" if block.text.startswith(f"# {settings.FILE}\n"):
                _check_settings(block, self.folder)
            case "json" | "toml" | "yaml":
                self._define(block)
            case "text" if block.is_glued and (self._answer.text or self._answer.line):
                self._compare(block)
            case language if language in SHOWN:
                return
            case language:
                raise AssertionError(f"{block.place}: nobody knows what to do with {language!r}")

    def _write(self, block: Block) -> None:
        """Write the file that the first line names, or continue it; then see that it runs."""
        named = re.match(r"# (\w+\.py)(, continued)?\n", block.text)
        assert named, f"{block.place}: the first line must say which file this is"
        file = self.folder / named[1]
        before = f"{file.read_text()}\n\n" if named[2] else ""
        file.write_text(before + block.text)
        with _importing_from(self.folder):
            runpy.run_path(str(file), run_name="page")

    def _define(self, block: Block) -> None:
        """Write the file that the first line may name, and see that what it defines can be."""
        said = read(block.text, format_of(f"a.{block.language}"))
        if "expectations" in said:
            agent_of(said)
        if "steps" in said:
            workflow_of(said)
        if named := re.match(r"# (\w+\.\w+)\n", block.text):
            (self.folder / named[1]).write_text(block.text)

    def _do(self, line: str, place: str) -> None:
        words = _words(line)
        stages = _stages(words)
        unknown = [stage[0] for stage in stages if stage[0] not in SHELL | {"make"}]
        assert not unknown, f"{place}: nobody has taught the reader to run {unknown[0]!r}"
        (first, *rest) = stages[0]
        if first == "make":
            _check_target(rest, place)
        elif first == "pip":
            _check_install(rest, place)
        elif first == "vigil" and (command := _going_on(rest)):
            self._start(line, command)
        else:
            is_asking = first == "vigil" and rest[0] in ASKS
            self._answer = self._ask(line, place) if is_asking else Answer(self._run(line, place))

    def _start(self, line: str, command: str) -> None:
        """Start a program that goes on. The same one again is stopped first, as with Ctrl-C."""
        if line in self._running:
            return
        if line in self._programs:
            self._stop(line, signal.SIGINT)
        self._programs[line] = Running(self._started(self._real(line)))
        self._programs[line].wait_said(GOES_ON[command])

    def _started(self, line: str) -> WarmProgram | subprocess.Popen[str]:
        # Nodes that a node starts are found by what was typed, and so is the one that starts them.
        if (typed := _typed(line)) and "--processes" not in line:
            environ = {**self._environ, **typed.settings}
            return WarmProgram(typed.words, folder=self.folder, environ=environ)
        return talking(["/bin/sh", "-c", f"exec env {line}"], self.folder, self._environ)

    def _ask(self, line: str, place: str) -> Answer:
        """Ask the rows, and again if they do not show it yet."""
        deadline_s = time.monotonic() + LOOK_AGAIN_S_MAX
        while True:
            try:
                return Answer(self._run(line, place), line)
            except AssertionError:
                if time.monotonic() > deadline_s:
                    raise
            threading.Event().wait(LOOK_S)

    def _run(self, line: str, place: str) -> str:
        real = self._real(line)
        alone = real.removesuffix(TELLS_CODE)
        typed = _typed(alone)
        done = self._run_warm(typed) if typed else self._run_shell(real)
        if done.returncode and alone != real:
            told = b"%bexit code %d\n" % (done.stdout, done.returncode)
            done = subprocess.CompletedProcess(done.args, 0, told, done.stderr)
        said, complained = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == 0, f"{place}: {line}\n{said}{complained}"
        return said

    def _run_shell(self, line: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=self.folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=RUN_S_MAX,
            check=False,
        )

    def _run_warm(self, typed: Typed) -> subprocess.CompletedProcess[bytes]:
        return run_warm(
            typed.words,
            folder=self.folder,
            environ={**self._environ, **typed.settings},
            stdin=b"",
            most_s=RUN_S_MAX,
            program=typed.program,
        )

    def _compare(self, block: Block) -> None:
        """See that the last command says what the page says it does, `…` standing for anything."""
        wanted = [_pattern(line) for line in block.text.splitlines()]
        deadline_s = time.monotonic() + LOOK_AGAIN_S_MAX
        while missing := [each for each in wanted if not re.search(each, self._answer.text)]:
            may_change = self._answer.line and time.monotonic() < deadline_s
            assert may_change, f"{block.place}: no {missing} in\n{self._answer.text}"
            threading.Event().wait(LOOK_S)
            self._answer = self._ask(self._answer.line, block.place)

    async def _query(self, text: str) -> Sequence[str]:
        pool = await connect(self._servers().postgres_dsn)
        async with pool:
            return (await run_sql(pool, text)).columns

    def _real(self, line: str) -> str:
        if not any(address in line for address in PLACEHOLDERS):
            return line
        for address, real in zip(PLACEHOLDERS, self._servers(), strict=True):
            line = line.replace(address, real)
        return line

    def _servers(self) -> Servers:
        """Return the addresses that `vigil up` left for other terminals."""
        said = tomllib.loads((self.folder / ".vigil" / "run.toml").read_text())
        return Servers(said["nats_url"], said["postgres_dsn"])


def _lines(text: str) -> Iterator[str]:
    """Yield the commands of a block; one that ends in a backslash goes on in the next line."""
    for line in text.replace("\\\n", " ").splitlines():
        if _words(line):
            yield line


def _typed(line: str) -> Typed | None:
    """Return what a plain line says; None: only a shell understands it."""
    found = PLAIN.fullmatch(line)
    if found is None:
        return None
    settings = dict(each.split("=", 1) for each in found["settings"].split())
    words = shlex.split(found["words"], comments=True)
    return Typed(settings, found["program"].removeprefix("python -m "), words)


def _going_on(words: Sequence[str]) -> str:
    """Return the command that goes on, which is one word or two; empty: it does not."""
    return next((each for each in (words[0], " ".join(words[:2])) if each in GOES_ON), "")


def _words(line: str) -> list[str]:
    words = shlex.shlex(line, posix=True, punctuation_chars="|")
    words.whitespace_split = True
    return list(words)


def _stages(words: Sequence[str]) -> list[list[str]]:
    """Return the programs of a pipeline with their arguments, variables before them left out."""
    stages: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            stages.append([])
        elif stages[-1] or not re.match(r"[A-Z_]+=", word):
            stages[-1].append(word)
    return stages


def _pattern(line: str) -> str:
    """Return a pattern for a line of output: spaces are of any width."""
    words = (".*" if word == "…" else re.escape(word) for word in line.split())
    return r"[ ]*".join(words)


def _check_target(words: Sequence[str], place: str) -> None:
    targets = TARGETS.findall((ROOT / "Makefile").read_text())
    assert words[0] in targets, f"{place}: the Makefile has no target {words[0]!r}"


def _check_install(words: Sequence[str], place: str) -> None:
    """See that a page installs our package, with extras that it has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (verb, wanted) = words
    name, _, extras = wanted.rstrip("]").partition("[")
    unknown = {each for each in extras.split(",") if each} - {*project["optional-dependencies"]}
    assert (verb, name) == ("install", project["name"]), f"{place}: pip {' '.join(words)}"
    assert not unknown, f"{place}: {name} has no extra {unknown}"


def _check_settings(block: Block, folder: Path) -> None:
    """See that the settings of a page are such as can be set."""
    apart = folder / "apart"
    apart.mkdir(exist_ok=True)
    (apart / settings.FILE).write_text(block.text)
    settings.read({}, folder=apart)


def _shims(folder: Path) -> Path:
    """Make `vigil` and `python` for the shell: those of this environment."""
    shims = folder / ".shims"
    shims.mkdir(exist_ok=True)
    for name, arguments in {"vigil": "-m vigil", "python": ""}.items():
        shim = shims / name
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        shim.chmod(0o755)
    return shims


def _environ(shims: Path) -> Mapping[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("VIGIL_", "OTEL_"))}
    path = f"{shims}{os.pathsep}{inherited['PATH']}"
    own = {"XDG_CONFIG_HOME": str(shims / "config")}
    return {
        **inherited,
        **own,
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Let modules in `folder` be found, and forget them afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in {path.stem for path in folder.glob("*.py")} - before:
            sys.modules.pop(name, None)
