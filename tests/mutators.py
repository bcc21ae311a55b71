"""The mutation operators: how a guard that a marker marks is switched off.

They work on what the code *is*, never on its text, so that a row of `tests/mutants.py` needs no
change when names change or code moves:

    never, always       the condition that is marked (or in what is marked) is False, is True
    dropped             what is marked is left out: a statement, operand, argument, entry, clause
    without("1")        the same of a part of it
    uncaught            the `except` or `suppress` catches nothing
    unwrapped           the body of a `with`, `try` or `if` runs without it
    later               the statement changes places with the next one; `later_if("…")`: and is
                        then run only on that condition
    gives("0")          the value of an assignment, `return`, argument or entry is another one
    returns("None")     the statement returns instead
    before("return")    another statement is put before it; `after`: after it
    becomes("…")        what is marked is something else
    instead("a", "b")   in SQL, whose syntax is not looked at: `b` instead of `a` in the line

An operator is aimed at a part of what is marked by `.at("left")`, and the text of a replacement
names parts of the original as `$left`; `$it` is all of it. A part is named by steps with dots
between them. A step is a field of Python's syntax tree (`test`, `left`, `func`), a number (of an
operand, argument or element), a word of `KINDS` (the only conditional expression within, the only
call), or the name of an argument, a key or an attribute.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
import symtable
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.markers import BadRow, Entry, Marked, Piece, Source, only

PART: Final = re.compile(r"\$((?:\w+)(?:\.\w+)*)")

KINDS: Final[Mapping[str, Callable[[ast.AST], bool]]] = {
    "if": lambda node: isinstance(node, ast.IfExp),
    "and": lambda node: isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And),
    "or": lambda node: isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or),
    "not": lambda node: isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not),
    "call": lambda node: isinstance(node, ast.Call),
    "compare": lambda node: isinstance(node, ast.Compare),
    "for": lambda node: isinstance(node, ast.comprehension),
    "set": lambda node: isinstance(node, ast.Set),
    "tuple": lambda node: isinstance(node, ast.Tuple),
    "list": lambda node: isinstance(node, ast.List),
    "dict": lambda node: isinstance(node, ast.Dict),
    "slice": lambda node: isinstance(node, ast.Slice),
    "number": lambda node: isinstance(node, ast.Constant) and type(node.value) is int,
    "text": lambda node: isinstance(node, ast.Constant) and isinstance(node.value, str),
    "binary": lambda node: isinstance(node, ast.BinOp),
    "fstring": lambda node: isinstance(node, ast.JoinedStr),
    "lambda": lambda node: isinstance(node, ast.Lambda),
    "await": lambda node: isinstance(node, ast.Await),
}

ATOMS: Final = (
    *(ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Starred, ast.Slice, ast.JoinedStr),
    *(ast.List, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp),
)
"""What needs no brackets around it."""


@dataclass(frozen=True)
class Change:
    """How a guard is switched off."""

    operator: str
    text: str = ""
    """Of the replacement, where the operator asks for one."""
    part: str = ""
    """The part of what is marked; empty: all of it."""

    def at(self, part: str) -> Change:
        """Return the same change of a part of what is marked."""
        return replace(self, part=part)


never: Final = Change("never")
always: Final = Change("always")
dropped: Final = Change("dropped")
uncaught: Final = Change("uncaught")
unwrapped: Final = Change("unwrapped")
later: Final = Change("later")


def without(part: str) -> Change:
    """Leave out a part of what is marked."""
    return dropped.at(part)


def gives(text: str) -> Change:
    """Give another value to what is marked."""
    return Change("gives", text)


def later_if(text: str) -> Change:
    """Have the next statement come first, and this one only on a condition."""
    return Change("later", text)


def returns(text: str) -> Change:
    """Return instead of what is marked, or return something else."""
    return Change("returns", text)


def before(text: str) -> Change:
    """Put a statement before the one that is marked."""
    return Change("before", text)


def after(text: str) -> Change:
    """Put a statement after the one that is marked."""
    return Change("after", text)


def becomes(text: str) -> Change:
    """Have something else instead of what is marked."""
    return Change("becomes", text)


def instead(old: str, new: str) -> Change:
    """Have `new` instead of `old` in the marked line of SQL."""
    return Change("instead", new, old)


# What a part is.


def part_of(source: Source, piece: Piece, part: str) -> Piece:
    """Return the part of `piece` that the steps of `part` lead to."""
    steps = part.split(".") if part and part != "it" else []
    while steps:
        step = steps.pop(0)
        if step == "body" and steps and steps[0].isdecimal():
            piece = _item_of(piece, int(steps.pop(0)))
        else:
            piece = _step(source, piece, step)
    return piece


def _item_of(piece: Piece, number: int) -> ast.AST:
    """Return a statement of a block."""
    body = getattr(piece, "body", None)
    if not isinstance(body, list) or number >= len(body):
        raise BadRow(f"{_shown(piece)} has no statement {number}")
    found = body[number]
    assert isinstance(found, ast.AST)
    return found


def _step(source: Source, piece: Piece, step: str) -> Piece:
    if isinstance(piece, Entry):
        if step in {"key", "value"}:
            found = piece.key if step == "key" else piece.value
            assert found is not None
            return found
        piece = piece.value
    if step.lstrip("-").isdecimal():
        return _numbered(_opened(piece), int(step))
    if isinstance(piece, ast.Compare) and step == "right" and len(piece.ops) == 1:
        return piece.comparators[0]
    if isinstance(child := getattr(piece, step, None), ast.AST):
        return child
    if isinstance(child, list) and len(child) == 1:
        return child[0]
    if step in KINDS:
        return _only_of(piece, step)
    if isinstance(child := getattr(_opened(piece), step, None), ast.AST):
        return child
    return _named(piece, step)


def _opened(piece: Piece) -> Piece:
    """Return what is in `piece`, without the statement, the `await` or the name around it."""
    if isinstance(piece, ast.If | ast.While | ast.Assert):
        return _opened(piece.test)
    if isinstance(piece, ast.For | ast.AsyncFor):
        return _opened(piece.iter)
    if isinstance(piece, ast.With | ast.AsyncWith) and len(piece.items) == 1:
        return _opened(piece.items[0].context_expr)
    if isinstance(piece, ast.ExceptHandler) and piece.type is not None:
        return piece.type
    if (
        isinstance(
            piece,
            Entry
            | ast.Expr
            | ast.Return
            | ast.Await
            | ast.Assign
            | ast.AnnAssign
            | ast.AugAssign
            | ast.keyword
            | ast.Starred
            | ast.NamedExpr
            | ast.Yield,
        )
        and piece.value is not None
    ):
        return _opened(piece.value)
    return piece


def _numbered(piece: Piece, number: int) -> Piece:
    match piece:
        case ast.BoolOp(values=found) | ast.JoinedStr(values=found):
            parts: Sequence[Piece] = found
        case ast.Compare():
            parts = [piece.left, *piece.comparators]
        case ast.BinOp():
            parts = [piece.left, piece.right]
        case ast.Call():
            parts = piece.args
        case ast.Tuple() | ast.List() | ast.Set():
            parts = piece.elts
        case ast.Dict():
            parts = [Entry(piece, index) for index in range(len(piece.values))]
        case ast.comprehension():
            parts = piece.ifs
        case _:
            raise BadRow(f"{_shown(piece)} has no parts that are numbered")
    if not -len(parts) <= number < len(parts):
        raise BadRow(f"{_shown(piece)} has no part {number}")
    return parts[number]


def _only_of(piece: Piece, kind: str) -> ast.AST:
    within = piece.value if isinstance(piece, Entry) else piece
    found = [node for node in _own(within) if KINDS[kind](node)]
    if len(found) != 1:
        raise BadRow(f"{_shown(piece)} has {len(found)} of the kind {kind!r}, not one")
    return found[0]


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield `node` and what is in it, but of a compound statement only its head."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"body", "orelse", "finalbody", "handlers", "cases"} and isinstance(value, list):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _own(child)


def _named(piece: Piece, name: str) -> Piece:
    within = piece.value if isinstance(piece, Entry) else piece
    found: list[Piece] = []
    for node in _own(within):
        if isinstance(node, ast.keyword) and node.arg == name:
            found.append(node)
        elif isinstance(node, ast.Dict):
            keys = enumerate(node.keys)
            found += [Entry(node, n) for n, key in keys if getattr(key, "value", None) == name]
    if len(found) != 1:
        raise BadRow(f"{_shown(piece)} has {len(found)} parts called {name!r}, not one")
    return found[0]


def _shown(piece: Piece) -> str:
    if isinstance(piece, Entry):
        return _shown(piece.value)
    try:
        return repr(ast.unparse(piece).splitlines()[0])
    except (AttributeError, IndexError):
        return type(piece).__name__


# What becomes of it.


@dataclass(frozen=True)
class Edit:
    """Something else instead of some nodes."""

    olds: Sequence[ast.AST]
    """Nodes that follow each other in the text; all of them are replaced."""
    news: Sequence[ast.AST]
    head: str = ""
    """If there is one, it replaces what stands before the body of the only old one."""


def mutated(source: Source, line: int, change: Change) -> str:
    """Return the text of a Python file with a guard switched off.

    Raises:
        BadRow: The change does not fit what is marked.
    """
    whole = source.piece_at(line)
    edit = OPERATORS[change.operator](source, part_of(source, whole, change.part), change.text)
    if not edit.head and [*map(ast.dump, edit.olds)] == [*map(ast.dump, edit.news)]:
        raise BadRow("changes nothing")
    return _applied(source, edit)


def _never(source: Source, piece: Piece, _: str) -> Edit:
    return Edit([_condition(source, piece)], [ast.Constant(False)])


def _always(source: Source, piece: Piece, _: str) -> Edit:
    return Edit([_condition(source, piece)], [ast.Constant(True)])


def _condition(source: Source, piece: Piece) -> ast.AST:
    """Return what decides in `piece`."""
    match piece:
        case (
            ast.If(test=test) | ast.While(test=test) | ast.Assert(test=test) | ast.IfExp(test=test)
        ):
            return test
        case ast.match_case(guard=ast.expr() as guard):
            return guard
        case ast.comprehension(ifs=[only]):
            return only
        case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return piece
        case ast.Name() | ast.Attribute() | ast.Call() | ast.Await() if _decides(source, piece):
            return piece
        case (
            Entry() | ast.Return() | ast.Assign() | ast.AnnAssign() | ast.keyword() | ast.Expr()
        ) if piece.value is not None:
            return _condition(source, piece.value)
    within = piece.value if isinstance(piece, Entry) else piece
    tests = [each for node in _own(within) for each in _tests(node)]
    if len(tests) != 1:
        raise BadRow(f"{_shown(piece)} has {len(tests)} conditions, not one")
    return tests[0]


def _tests(node: ast.AST) -> Sequence[ast.expr]:
    match node:
        case ast.IfExp(test=test):
            return [test]
        case ast.comprehension(ifs=ifs):
            return ifs
    return []


def _decides(source: Source, node: ast.AST) -> bool:
    """Return whether `node` is a condition, or an operand of one."""
    match source.parents.get(node):
        case ast.If() | ast.While() | ast.Assert() | ast.BoolOp():
            return True
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.IfExp(test=test) if test is node:
            return True
        case ast.comprehension(ifs=ifs) if node in ifs:
            return True
    return False


def _dropped(source: Source, piece: Piece, _: str) -> Edit:
    if isinstance(piece, ast.stmt):
        return Edit([piece], [ast.Pass()])
    if isinstance(piece, Entry):
        made = copy.copy(piece.dict)
        made.keys = _left_out(made.keys, piece.index)
        made.values = _left_out(made.values, piece.index)
        return Edit([piece.dict], [made])
    parent = source.parents[piece]
    match parent:
        case ast.BoolOp(values=[one, other]):
            return Edit([parent], [other if one is piece else one])
        case ast.BinOp(left=left, right=right):
            return Edit([parent], [right if left is piece else left])
        case ast.NamedExpr() | ast.Starred() | ast.Await() | ast.UnaryOp() | ast.FormattedValue():
            return _dropped(source, parent, _)
    for field, value in ast.iter_fields(parent):
        if isinstance(value, list) and piece in value:
            made = copy.copy(parent)
            setattr(made, field, _left_out(value, value.index(piece)))
            return _edit_of(source, parent, made)
    raise BadRow(f"{_shown(piece)} cannot be left out of {_shown(parent)}")


def _left_out(values: Sequence[Any], index: int) -> list[Any]:
    return [*values[:index], *values[index + 1 :]]


def _edit_of(source: Source, old: ast.AST, new: ast.AST) -> Edit:
    """Return the edit that makes `new` of `old`; a clause is made anew with what it is in."""
    if isinstance(old, ast.expr | ast.stmt):
        return Edit([old], [new])
    parent = source.parents[old]
    made = copy.copy(parent)
    for field, value in ast.iter_fields(parent):
        if value is old:
            setattr(made, field, new)
        elif isinstance(value, list) and old in value:
            setattr(made, field, [new if each is old else each for each in value])
    return _edit_of(source, parent, made)


def _uncaught(source: Source, piece: Piece, _: str) -> Edit:
    match piece:
        case ast.ExceptHandler(type=ast.expr() as type_):
            return Edit([type_], [ast.Tuple([], ast.Load())])
        case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)]):
            return Edit([call], [ast.Call(call.func, [], [])])
    raise BadRow(f"{_shown(piece)} catches nothing")


def _unwrapped(source: Source, piece: Piece, _: str) -> Edit:
    if not isinstance(piece, ast.With | ast.AsyncWith | ast.If):
        raise BadRow(f"{_shown(piece)} wraps nothing")
    return Edit([piece], [], head="if True:")


def _later(source: Source, piece: Piece, text: str) -> Edit:
    body, index = _siblings(source, piece)
    if index + 1 == len(body):
        raise BadRow(f"{_shown(piece)} is the last of its block")
    moved, following = body[index : index + 2]
    if text:
        moved = ast.If(_expression(source, piece, moved, text), [moved], [])
    return Edit(body[index : index + 2], [following, moved])


def _siblings(source: Source, piece: Piece) -> tuple[list[ast.stmt], int]:
    if isinstance(piece, ast.stmt):
        for _, value in ast.iter_fields(source.parents[piece]):
            if isinstance(value, list) and piece in value:
                return value, value.index(piece)
    raise BadRow(f"{_shown(piece)} is no statement")


def _gives(source: Source, piece: Piece, text: str) -> Edit:
    value = piece.value if isinstance(piece, Entry) else getattr(piece, "value", None)
    if not isinstance(value, ast.expr):
        raise BadRow(f"{_shown(piece)} gives nothing")
    return Edit([value], [_expression(source, piece, value, text)])


def _returns(source: Source, piece: Piece, text: str) -> Edit:
    if not isinstance(piece, ast.stmt):
        raise BadRow(f"{_shown(piece)} is no statement")
    it = (piece.value if isinstance(piece, ast.Return | ast.Expr) else None) or piece
    return Edit([piece], _statements(source, piece, it, f"return {text}"))


def _before(source: Source, piece: Piece, text: str) -> Edit:
    _siblings(source, piece)
    assert isinstance(piece, ast.AST)
    return Edit([piece], [*_statements(source, piece, piece, text), piece])


def _after(source: Source, piece: Piece, text: str) -> Edit:
    _siblings(source, piece)
    assert isinstance(piece, ast.AST)
    return Edit([piece], [piece, *_statements(source, piece, piece, text)])


def _becomes(source: Source, piece: Piece, text: str) -> Edit:
    if isinstance(piece, Entry | ast.keyword):
        return _gives(source, piece, text)
    if isinstance(piece, ast.stmt):
        return Edit([piece], _statements(source, piece, piece, text))
    if isinstance(piece, ast.pattern):
        made = ast.parse(f"match _:\n case {text}: pass").body[0]
        assert isinstance(made, ast.Match)
        return Edit([piece], [made.cases[0].pattern])
    return Edit([piece], [_expression(source, piece, piece, text)])


OPERATORS: Final[Mapping[str, Callable[[Source, Piece, str], Edit]]] = {
    "never": _never,
    "always": _always,
    "dropped": _dropped,
    "uncaught": _uncaught,
    "unwrapped": _unwrapped,
    "later": _later,
    "gives": _gives,
    "returns": _returns,
    "before": _before,
    "after": _after,
    "becomes": _becomes,
}


# The text of a replacement.


class _Filled(ast.NodeTransformer):
    """Puts parts of the original where the text of a replacement names them."""

    def __init__(self, parts: Mapping[str, ast.AST]) -> None:
        self._parts = parts

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return copy.deepcopy(self._parts.get(node.id, node))

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        made = self.generic_visit(node)
        assert isinstance(made, ast.Expr)
        return made.value if isinstance(made.value, ast.stmt) else made


def _expression(source: Source, piece: Piece, it: ast.AST, text: str) -> ast.expr:
    made = _statements(source, piece, it, text)
    if len(made) != 1 or not isinstance(made[0], ast.Expr):
        raise BadRow(f"{text!r} is no expression")
    return made[0].value


def _statements(source: Source, piece: Piece, it: ast.AST, text: str) -> list[ast.stmt]:
    parts: dict[str, ast.AST] = {}

    def named(match: re.Match[str]) -> str:
        name = f"part_{len(parts)}_"
        steps = match[1].split(".")
        start: Piece = it if steps[0] == "it" else piece
        found = part_of(source, start, ".".join(steps[1:] if steps[0] == "it" else steps))
        parts[name] = found.value if isinstance(found, Entry | ast.keyword) else found
        return name

    try:
        tree = ast.parse(PART.sub(named, text))
    except SyntaxError as error:
        raise BadRow(f"{text!r} does not parse: {error.msg}") from error
    filled = _Filled(parts).visit(tree)
    assert isinstance(filled, ast.Module)
    return filled.body


# The text of the file.


def _applied(source: Source, edit: Edit) -> str:
    """Return the text of `source` with `edit` made."""
    lines = source.text.splitlines(keepends=True)
    first, last = edit.olds[0], edit.olds[-1]
    assert isinstance(first, ast.stmt | ast.expr | ast.pattern)
    assert isinstance(last, ast.stmt | ast.expr | ast.pattern)
    if edit.head:
        assert isinstance(first, ast.With | ast.AsyncWith | ast.If)
        body = first.body[0]
        start = _offset(lines, first.lineno, first.col_offset)
        end = _offset(lines, body.lineno, 0)
        return f"{source.text[:start]}{edit.head}\n{source.text[end:]}"
    if isinstance(first, ast.expr):
        if (around := _around_text(source, first)) is not first:
            return _applied(source, Edit([around], [_put(around, first, edit.news[0])]))
        new = edit.news[0]
        made = ast.unparse(ast.fix_missing_locations(new))
        if isinstance(first, ast.GeneratorExp) or not isinstance(new, ATOMS):
            made = (
                made
                if made.startswith("(") and isinstance(new, ast.Tuple | ast.GeneratorExp)
                else f"({made})"
            )
    elif isinstance(first, ast.stmt):
        indent = "\n" + " " * first.col_offset
        texts = [ast.unparse(ast.fix_missing_locations(each)) for each in edit.news]
        made = indent.join("\n".join(texts).splitlines())
    else:
        made = ast.unparse(edit.news[0])
    begins = min([first.lineno, *(each.lineno for each in getattr(first, "decorator_list", ()))])
    start = _offset(lines, begins, first.col_offset)
    end = _offset(lines, last.end_lineno or 0, last.end_col_offset or 0)
    return source.text[:start] + made + source.text[end:]


def _offset(lines: Sequence[str], line: int, column: int) -> int:
    """Return where in the text the byte at `column` of `line` is."""
    before = sum(map(len, lines[: line - 1]))
    return before + len(lines[line - 1].encode()[:column].decode())


def _around_text(source: Source, node: ast.AST) -> ast.AST:
    """Return the f-string that `node` is in, or `node`: what is in one does not know its place."""
    found, at = node, node
    while (parent := source.parents.get(at)) is not None and isinstance(at, ast.AST):
        at = parent
        if isinstance(at, ast.stmt):
            break
        if isinstance(at, ast.JoinedStr):
            found = at
    return found


def _put(around: ast.AST, old: ast.AST, new: ast.AST) -> ast.AST:
    """Return `around` with `new` instead of `old`."""
    if around is old:
        return new
    made = copy.copy(around)
    for field, value in ast.iter_fields(around):
        if isinstance(value, ast.AST):
            setattr(made, field, _put(value, old, new))
        elif isinstance(value, list):
            setattr(
                made, field, [_put(v, old, new) if isinstance(v, ast.AST) else v for v in value]
            )
    return made


# Whether a mutant can die for the right reason only.


def fault_of(source: Source, text: str) -> str:
    """Return what is wrong with `text`, which a change has made of `source`; empty: nothing."""
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"does not compile: {error.msg}"
    found = undefined_in(text) - undefined_in(source.text)
    if found:
        found = undefined_in(ast.unparse(_Reached().visit(ast.parse(text)))) & found
    return f"{', '.join(sorted(found))}: not defined" if found else ""


class _Reached(ast.NodeTransformer):
    """Leaves out what stands under `if False:`, and so needs no names."""

    def visit_If(self, node: ast.If) -> ast.AST:
        if isinstance(node.test, ast.Constant) and not node.test.value:
            node.body = [ast.Pass()]
        return self.generic_visit(node)


@cache
def undefined_in(text: str) -> frozenset[str]:
    """Return the names that a Python file uses and nobody defines."""
    top = symtable.symtable(text, "file", "exec")
    known = {
        each.get_name() for each in top.get_symbols() if each.is_assigned() or each.is_imported()
    }
    known |= {each.get_name() for each in top.get_children()} | set(dir(builtins))
    return frozenset(_globals_of(top) - known - {"__file__"})


def _globals_of(table: symtable.SymbolTable) -> set[str]:
    found = {
        each.get_name()
        for each in table.get_symbols()
        if each.is_referenced() and (each.is_global() or table.get_type() == "module")
    }
    return found.union(*(_globals_of(child) for child in table.get_children()))


@cache
def switched_off(marker: str, change: Change) -> tuple[Path, str]:
    """Return the file with the marker, and its text with the guard switched off.

    Raises:
        BadRow: The marker or the change is at fault, or what becomes of the file would fail for
            another reason than that the guard is missing: it does not compile, or has a name that
            nobody defines.
    """
    place = only(marker)
    try:
        text = _switched_off(place, change)
    except BadRow as error:
        raise BadRow(f"{marker}: {error}") from error
    return place.path, text


def _switched_off(place: Marked, change: Change) -> str:
    if place.path.suffix == ".sql":
        return _switched_off_in_sql(place.path.read_text(), place.line, change)
    source = source_at(place.path)
    text = mutated(source, place.line, change)
    if fault := fault_of(source, text):
        raise BadRow(fault)
    return text


@cache
def source_at(path: Path) -> Source:
    """Return the Python file at `path`, parsed."""
    return Source(path.read_text())


def _switched_off_in_sql(text: str, line: int, change: Change) -> str:
    lines = text.splitlines(keepends=True)
    marked = lines[line - 1]
    code = marked.split("-- guard: ")[0].strip()
    if change == dropped:
        made = marked.replace(code, "")
    elif change.operator == "instead":
        if code.count(change.part) != 1:
            raise BadRow(f"{change.part!r} is not once in {code!r}")
        made = marked.replace(code, code.replace(change.part, change.text))
    else:
        raise BadRow(f"{change.operator} is not for SQL")
    return "".join([*lines[: line - 1], made, *lines[line:]])
