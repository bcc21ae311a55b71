"""Ten questions of a newcomer, and the place in the code that answers each."""

from __future__ import annotations

import ast
from typing import Final

import pytest

from tests.docs.pages import ROOT, rows, section

ANSWERS: Final = [
    (question, path.strip("`"), name.strip("`"))
    for question, path, name in rows(section("docs/ARCHITECTURE.md", "## Ten questions"))
]


def test_there_are_ten_questions_and_each_is_asked_once():
    questions = {question for question, _, _ in ANSWERS}

    assert len(ANSWERS) == len(questions) == 10
    assert all(question.endswith("?") for question in questions)


@pytest.mark.parametrize(("question", "path", "name"), ANSWERS)
def test_the_file_that_answers_a_question_defines_what_is_named(
    question: str, path: str, name: str
):
    assert (ROOT / path).is_file(), question
    assert name in defined_in(path), question


def defined_in(path: str) -> set[str]:
    """Return the functions and classes of a module, those within others left out."""
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in body if isinstance(node, kinds)}
