"""The house style, as far as a machine can hold it (after TigerBeetle's src/tidy.zig).

To give a thing a home, or a home another thing, edit a table; the tests follow it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("streams", "engine", "projections", "vigil")
PROGRAMS = ("tests", "bench")


@dataclass(frozen=True)
class Banned:
    """Something that only its homes may have. `text` is looked for in code, not in prose."""

    what: str
    text: str
    homes: tuple[str, ...] = ()
    found: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "found", re.compile(self.text))


OTHERS_CODE_RUNS = (  # Which may raise anything.
    "engine/functions/run.py",
    "engine/node/node.py",
    "engine/usercode/leavable.py",
    "engine/runtime/tasks.py",
    "engine/usercode/threads.py",
    "engine/usercode/call.py",
    "projections/custom/fold.py",
    "engine/workflows/steps.py",
    "vigil/serving/app.py",
    "vigil/testing/crashes.py",
    "vigil/web/live.py",  # Not others' code, but a page of ours must not take the others with it.
)

IN_CODE = (
    Banned(
        "a wall clock",
        r"\bdatetime\.(now|utcnow|today)\(|\bdate\.today\("
        r"|\btime\.(time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns)\(",
        ("streams/clock.py", "vigil/demo/"),  # The demo is written as users write.
    ),
    Banned(
        "a sleep",
        r"\basyncio\.sleep\((?!0\))|\btime\.sleep\(",
        ("streams/clock.py", "vigil/demo/"),
    ),
    Banned(
        "randomness",
        r"\brandom\.\w|\buuid[14]\(|\bsecrets\.\w|\bos\.urandom\(",
        # Nonces; requests of their own.
        (
            "streams/jetstream/",
            "streams/repartition/",
            "engine/definitions/store.py",
            "engine/outputs/requests.py",
            "engine/episodes/cancel.py",
            "engine/episodes/fire.py",
            "engine/episodes/fork.py",
            "engine/operations/decide_request.py",
            "engine/waits/requests.py",
            "engine/workflows/requests.py",
            "engine/orders/store.py",
            "engine/people/store.py",
            "vigil/web/oidc/login.py",
            "engine/findings/requests.py",
        ),
    ),
    Banned("a print", r"(?<![.\w])print\(", ("vigil/",)),
    Banned(
        "the environment",
        r"\bos\.(environ|getenv)\b",
        # Settings; what must not stand in code; what is looked for in the code of users.
        ("vigil/", "engine/adapters/secret.py", "engine/functions/source.py"),
    ),
    Banned(
        "a subject, stream or bucket, spelled out",
        r"[}>]\.(event|inbox|due|timer|stream|episode|finding|output|workflow|definition|dead)\."
        r"|\}-(events|work|journal|dead|claims|gates|registry|blobs)\b",
        ("streams/layout.py", "streams/subjects.py", "vigil/demo/publisher.py"),
    ),
    Banned(
        "a catch-all",
        r"\bexcept\s*:|\bexcept\b[^:\n]*\b(Base)?Exception\b|\bsuppress\([^)]*\b(Base)?Exception\b",
        OTHERS_CODE_RUNS,
    ),
)

IN_STRINGS = (
    Banned(
        "SQL",
        r"(?is)\bselect\b.+\bfrom\b|\binsert\s+into\b|\bupdate\b.+\bset\b.+=|\bdelete\s+from\b"
        r"|\b(create|alter|drop)\s+(table|view|schema|index|role|function|type)\b",
    ),
)

ANYWHERE = (
    Banned("work left undone", r"\b(FIXME|XXX|HACK)\b|\bTODO\b(?!\(#\d+\))"),
    Banned(
        "a silenced checker that does not say which rule",
        r"# type: ignore(?!\[)|# noqa(?!: ?[A-Z])",
    ),
)

IN_ANY_FILE = (
    Banned(
        "a package registry's host or an index option",
        r"://\S+/[s]imple\b|--(extra-)?index[-]url|--find[-]links|--trusted[-]host",
    ),
    Banned(
        "a path of someone's machine",
        r"(?<![\w.}~-])/(?:home|root|Users|work)/",
    ),
)

VAGUE = {"util", "helper", "common", "base", "manager", "misc", "stuff"}


def packaged() -> list[Path]:
    return sorted(path for top in PACKAGES for path in (ROOT / top).rglob("*.py"))


def programmed() -> list[Path]:
    return sorted(path for top in PROGRAMS for path in (ROOT / top).rglob("*.py"))


def kept() -> list[Path]:
    """Every text file of the repository: what is not hidden, built or fetched."""
    paths = (path for path in ROOT.rglob("*") if path.is_file())
    return sorted(path for path in paths if not _is_ignored(path.relative_to(ROOT)))


def _is_ignored(path: Path) -> bool:
    hidden = any(part.startswith(".") and part not in {".ci", ".github"} for part in path.parts)
    made = {"__pycache__", "build", "dist"}.intersection(path.parts)
    return hidden or bool(made) or path.suffix not in TEXT_SUFFIXES


TEXT_SUFFIXES = {
    "", ".cfg", ".ini", ".json", ".lock", ".md", ".py", ".sh", ".sql", ".toml", ".txt", ".yaml",
    ".yml", ".html", ".css", ".js", ".svg", ".conf", ".typed",
}  # fmt: skip


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def docstrings(tree: ast.Module) -> set[ast.Constant]:
    """Return the strings that stand alone: docstrings, of attributes too."""
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def code_of(path: Path) -> str:
    """Return the file with comments and docstrings blanked out, every line where it was."""
    lines = path.read_text().splitlines(keepends=True)
    prose = {(doc.lineno, doc.col_offset) for doc in docstrings(tree_of(path))}
    for token in tokenize.generate_tokens(io.StringIO("".join(lines)).readline):
        alone = token.type == tokenize.STRING and token.start in prose
        if alone or token.type == tokenize.COMMENT:
            _blank(lines, token.start, token.end)
    return "".join(lines)


def _blank(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> None:
    for number in range(start[0], end[0] + 1):
        line = lines[number - 1]
        left = start[1] if number == start[0] else 0
        right = end[1] if number == end[0] else len(line.rstrip("\n"))
        lines[number - 1] = line[:left] + " " * (right - left) + line[right:]


def is_home(name: str, homes: tuple[str, ...]) -> bool:
    return any(name == home or (home.endswith("/") and name.startswith(home)) for home in homes)


def faults(name: str, text: str, table: tuple[Banned, ...]) -> list[str]:
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {banned.what}: {match[0]!r}"
        for banned in table
        if not is_home(name, banned.homes)
        for match in banned.found.finditer(text)
    ]


def report(found: list[str]) -> None:
    assert not found, "\n" + "\n".join(found)


def test_a_module_says_what_it_is():
    modules = packaged() + programmed()
    silent = [path for path in modules if path.read_text().strip() and not has_docstring(path)]
    report([f"{name_of(path)}: no module docstring" for path in silent])


def has_docstring(path: Path) -> bool:
    return ast.get_docstring(ast.parse(path.read_text())) is not None


IMPURE = re.compile(
    r"\bawait\b|\b__await__\b|\b[cC]lock\.|\bopen\(|\.(read|write)_(text|bytes)\("
    r"|\binspect\.(currentframe|stack|getsource\w*)\b|\bsys\._getframe\b|\blinecache\b"
    r"|\bos\.(?!PathLike)|\b(structlog|logging|subprocess|socket|asyncio)\b"
)


def test_a_file_that_says_it_is_pure_is_pure():
    report(
        [
            f"{name_of(path)}:{line}: {what}"
            for path in packaged()
            if says_it_is_pure(path)
            for line, what in sorted(impurities(path))
        ]
    )


def says_it_is_pure(path: Path) -> bool:
    """Return whether the first paragraph of the docstring says *Pure.*"""
    summary = (ast.get_docstring(tree_of(path)) or "").partition("\n\n")[0]
    return re.search(r"\bPure\.", summary) is not None


def impurities(path: Path) -> list[tuple[int, str]]:
    text = code_of(path)
    found = [(text.count("\n", 0, each.start()) + 1, each[0]) for each in IMPURE.finditer(text)]
    return found + [(each.lineno, f"{each.name} waits") for each in waiting(tree_of(path))]


def waiting(tree: ast.Module) -> list[ast.AsyncFunctionDef]:
    """Return the `async` functions of `tree`, without those that a Protocol only declares."""
    declared = {
        method
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        if any(ast.unparse(base).startswith("Protocol") for base in node.bases)
        for method in node.body
    }
    found = (node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef))
    return [function for function in found if function not in declared]


def test_each_thing_has_one_home():
    report(
        [fault for path in packaged() for fault in faults(name_of(path), code_of(path), IN_CODE)]
    )


def test_a_catch_all_has_its_home_by_another_name_too():
    names = "|".join(sorted(catch_alls()))
    by_name = Banned(
        "a catch-all by another name",
        rf"\b(except\b[^:\n]*|suppress\([^)]*)\b({names})\b" if names else r"(?!)",
        OTHERS_CODE_RUNS,
    )
    found = [
        fault for path in packaged() for fault in faults(name_of(path), code_of(path), (by_name,))
    ]
    report(found)


def catch_alls() -> set[str]:
    """Return the names of the product that stand for every exception, by way of others too."""
    values = {
        target.id: {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
        for path in packaged()
        for line in tree_of(path).body
        if isinstance(line, ast.Assign | ast.AnnAssign)
        if isinstance(value := line.value, ast.Name | ast.Tuple)
        for target in (line.targets if isinstance(line, ast.Assign) else [line.target])
        if isinstance(target, ast.Name)
    }
    found, known = {"Exception", "BaseException"}, 0
    while len(found) > known:
        known = len(found)
        found |= {name for name, parts in values.items() if parts & found}
    return found - {"Exception", "BaseException"}


def test_sql_lives_in_sql_files():
    report(
        [
            f"{name_of(path)}: line {string.lineno}: {fault}"
            for path in packaged()
            for string in said_in(tree_of(path))
            for fault in faults(name_of(path), str(string.value), IN_STRINGS)
        ]
    )


def said_in(tree: ast.Module) -> list[ast.Constant]:
    """Return the strings of `tree` that are not prose."""
    prose = docstrings(tree)
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [node for node in strings if isinstance(node.value, str) and node not in prose]


def test_nothing_is_left_for_later():
    paths = [path for path in packaged() + programmed() if "tidy" not in path.parts]
    report([fault for path in paths for fault in faults(name_of(path), path.read_text(), ANYWHERE)])


def test_a_module_has_a_name_that_means_something():
    report([name_of(path) for path in packaged() + programmed() if words_of(path) & VAGUE])


def words_of(path: Path) -> set[str]:
    """Return the words of the path inside the repository, in the singular."""
    parts = (*path.relative_to(ROOT).parts, path.stem)
    return {word.removesuffix("s") for part in parts for word in part.split("_")}


def test_no_file_names_a_package_registry_or_someones_machine():
    report(
        [fault for path in kept() for fault in faults(name_of(path), path.read_text(), IN_ANY_FILE)]
    )


POINTER = re.compile(
    r"(?<![\w/.…<-])(?:streams|engine|projections|vigil|tests|bench|docs)/[\w/.-]*\.(?:py|md|sql)\b"
)
"""A path from the root of the repository, in prose."""


def test_what_a_docstring_or_comment_points_to_is_there():
    lost = [
        f"{name_of(path)}:{line}: {pointer}"
        for path in packaged() + programmed()
        if POINTER.search(path.read_text())
        for line, text in prose_of(path)
        for pointer in POINTER.findall(text)
        if not (ROOT / pointer).exists()
    ]
    report(lost)


def prose_of(path: Path) -> list[tuple[int, str]]:
    """Return the comments and docstrings of a file, with the lines on which they begin."""
    found = [(each.lineno, str(each.value)) for each in docstrings(tree_of(path))]
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return found + [
        (each.start[0], each.string) for each in tokens if each.type == tokenize.COMMENT
    ]


def test_every_decision_is_in_the_index():
    decisions = sorted((ROOT / "docs/adr").glob("[0-9]*.md"))
    index = ROOT / "docs/adr/README.md"
    listed = index.read_text() if index.exists() else ""
    assert [path.name for path in decisions if path.name not in listed] == []


NO_CHANGE = ("README.md", "template.jinja")

FRAGMENT = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\.(feature|fix|docs)\.md")


def test_a_change_fragment_can_become_a_line_of_the_changelog():
    fragments = [
        path for path in sorted((ROOT / "changes").glob("*")) if path.name not in NO_CHANGE
    ]
    report([f"{name_of(path)}: {fault}" for path in fragments for fault in unfit(path)])


def unfit(path: Path) -> list[str]:
    """Return what is wrong with a fragment."""
    text = path.read_text()
    rules = {
        "a fragment is changes/<slug>.<feature|fix|docs>.md": FRAGMENT.fullmatch(path.name),
        "a fragment says something": text.strip(),
        "a fragment ends with a newline": text.endswith("\n"),
        "a fragment is sentences, not a list": not text.lstrip().startswith(("#", "-", "*")),
    }
    return [rule for rule, is_kept in rules.items() if not is_kept]
