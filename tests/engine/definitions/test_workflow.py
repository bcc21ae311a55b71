"""A workflow as data is the same workflow as the one declared in Python, option by option."""

from __future__ import annotations

import inspect

import pytest

from engine.app.conditions import all_of, filter_of, ge, lt
from engine.app.dedupe import by_value
from engine.app.triggers import event, every, manual
from engine.app.workflow import STEPS_MAX, StepOptions, Workflow, retrying
from engine.definitions import canonical, difference, kind_of, read, to_workflow, workflow_of
from engine.definitions.workflow import (
    DEPTH_MAX,
    FIELDS_MAX,
    PATHS_MAX,
    Condition,
    FilledInput,
    Items,
    RetryDefinition,
    StepDefinition,
    WorkflowDefinition,
)
from engine.errors import BadDefinition
from streams.json import unraw
from streams.model.events import DefinitionKind
from streams.model.triggers import ManualTrigger

RATE = {"actor": "risk", "expectation": "rate"}
SCREEN = {"actor": "risk", "expectation": "screen"}


def defined(workflow=None, /, **step):
    """Define a workflow whose step `rate` follows `screen`, and says this besides."""
    said = {**RATE, "depends_on": ["screen"], **step}
    return workflow_of(
        {"name": "review", **(workflow or {}), "steps": {"screen": SCREEN, "rate": said}}
    )


def declared(workflow=None, /, **step):
    made = Workflow("review", **(workflow or {}))
    made.step("screen", "risk", "screen")
    made.step("rate", "risk", "rate", **{"depends_on": ["screen"], **step})
    return made


OF_STEPS = {  # option: (as data, as code, what must be said besides)
    "input": ({"a": "trigger.a"}, FilledInput({"a": "trigger.a"}), {}),
    "depends_on": ([], [], {}),
    "when": (
        {"prior.screen.hit": True, "trigger.amount": {"lt": 99, "gte": 10}},
        Condition(filter_of({"prior.screen.hit": True, "trigger.amount": all_of(ge(10), lt(99))})),
        {},
    ),
    "for_each": ("trigger.owners", Items("trigger.owners"), {}),
    "on_failure": (
        {"retry": {"attempts": 4, "backoff_s": 1, "skip_on": ["bad"], "then": "pause"}},
        retrying(attempts=4, backoff_s=1, skip_on=["bad"], then="pause"),
        {},
    ),
    "timeout_s": (60, 60, {}),
    "requires_approval": (True, True, {}),
    "approvers": (["ann"], ["ann"], {"requires_approval": True}),
    "quorum": (2, 2, {"requires_approval": True}),
    "requester_may_approve": (False, False, {"requires_approval": True}),
    "approval_expires_s": (3600, 3600, {"requires_approval": True}),
    "compensate": ({"actor": "risk", "expectation": "undo"}, ("risk", "undo"), {}),
    "reuse_s": (86_400, 86_400, {}),
}
OF_WORKFLOWS = {  # option: (as data, as code, what must be said besides)
    "on": ({"event": "client.changed"}, event("client.changed"), {}),
    "subject_key": ("client.id", "client.id", {}),
    "debounce_s": (3, 3, {"on": ({"event": "a.b"}, event("a.b"))}),
    "timeout_s": (60, 60, {}),
    "overlap": ("skip", "skip", {}),
    "budget_usd": (0.1, "0.10", {}),
    "dedupe": (
        {"by": "value", "path": "client.id"},
        by_value("client.id"),
        {"on": ({"event": "a.b"}, event("a.b"))},
    ),
}


def options_of(function):
    return inspect.signature(function).parameters.keys() - {"self", "name", "revision"}


def test_a_definition_has_every_option_of_a_step():
    assert OF_STEPS.keys() == StepOptions.__annotations__.keys()
    what_runs = {"actor", "expectation", "workflow"}
    assert StepDefinition.model_fields.keys() == OF_STEPS.keys() | what_runs


def test_a_definition_has_every_option_of_a_workflow():
    assert OF_WORKFLOWS.keys() == options_of(Workflow.__init__)
    assert WorkflowDefinition.model_fields.keys() == OF_WORKFLOWS.keys() | {"name", "steps"}


def test_a_definition_has_all_that_can_be_said_of_another_attempt():
    assert RetryDefinition.model_fields.keys() == inspect.signature(retrying).parameters.keys()


def test_what_is_not_said_is_as_by_default_in_code():
    assert to_workflow(defined()) == declared()
    assert to_workflow(defined()).on == (manual(),)
    retried = to_workflow(defined(on_failure={"retry": {}})).steps["rate"]
    assert retried.on_failure == retrying()


@pytest.mark.parametrize("option", OF_STEPS)
def test_an_option_of_a_step_means_what_it_means_in_code(option):
    data, code, besides = OF_STEPS[option]
    made = to_workflow(defined(**{**besides, option: data}))
    assert made == declared(**{**besides, option: code})
    assert made != to_workflow(defined(**besides))


@pytest.mark.parametrize("option", OF_WORKFLOWS)
def test_an_option_of_a_workflow_means_what_it_means_in_code(option):
    data, code, besides = OF_WORKFLOWS[option]
    as_data = {name: said for name, (said, _) in besides.items()}
    as_code = {name: said for name, (_, said) in besides.items()}
    made = to_workflow(defined({**as_data, option: data}))
    assert made == declared({**as_code, option: code})
    assert made != to_workflow(defined(as_data))


@pytest.mark.parametrize("word", ["abort", "continue", "pause"])
def test_what_is_done_about_a_failure_may_be_a_word(word):
    assert to_workflow(defined(on_failure=word)) == declared(on_failure=word)


def test_a_step_may_be_another_workflow():
    data = {"name": "review", "steps": {"onboard": {"workflow": "onboarding", "timeout_s": 9}}}
    made = Workflow("review")
    made.sub("onboard", "onboarding", timeout_s=9)
    assert to_workflow(workflow_of(data)) == made


def test_several_triggers_may_begin_it():
    on = [{"event": ["a.b", "c.d"]}, {"every": "1h"}]
    assert to_workflow(defined({"on": on})) == declared({"on": [event("a.b", "c.d"), every("1h")]})


def test_a_workflow_knows_the_revision_that_it_was_made_of():
    assert to_workflow(defined(), revision=7).revision == 7
    assert to_workflow(defined()).revision == 0


# The canonical form, and the order of the steps.


@pytest.mark.parametrize("option", OF_STEPS)
def test_a_definition_survives_its_canonical_form(option):
    data, _, besides = OF_STEPS[option]
    definition = defined(**{**besides, option: data})
    again = workflow_of(unraw(canonical(definition)))
    assert again == definition
    assert canonical(again) == canonical(definition)
    assert to_workflow(again) == to_workflow(definition)


STEPS = """
name: review
on: {manual: true}
dedupe: {}
steps:
  zeta: {actor: risk, expectation: rate, input: {b: 1, a: trigger.a}}
  alpha: {actor: risk, expectation: rate, on_failure: abort, when: {trigger.n: {lt: 9, gte: 1}}}
"""


def test_steps_stay_in_the_order_in_which_they_are_written():
    definition = workflow_of(read(STEPS, "yaml"))
    assert unraw(canonical(definition)) == {
        "name": "review",
        "steps": [
            {"id": "zeta", **RATE, "input": {"a": "trigger.a", "b": 1}},
            {"id": "alpha", **RATE, "when": {"trigger.n": {"gte": 1, "lt": 9}}},
        ],
    }
    again = workflow_of(unraw(canonical(definition)))
    assert list(to_workflow(again).steps) == list(to_workflow(definition).steps)
    assert list(to_workflow(again).steps) == ["zeta", "alpha"]


def test_steps_may_be_a_list_of_objects_with_ids():
    listed = {
        "name": "review",
        "steps": [{"id": "screen", **SCREEN}, {"id": "rate", **RATE, "depends_on": ["screen"]}],
    }
    assert workflow_of(listed) == defined()


def test_what_a_change_would_change_is_told_by_the_names_of_the_steps():
    old, new = defined(), defined({"subject_key": "client"}, timeout_s=60, depends_on=[])
    assert difference(unraw(canonical(old)), unraw(canonical(new))) == [
        '- steps.rate.depends_on: ["screen"]',
        "+ steps.rate.timeout_s: 60.0",
        '+ subject_key: "client"',
    ]


def test_a_step_that_is_new_or_elsewhere_shows_in_the_list_of_them():
    one = {"name": "w", "steps": [{"id": "b", **RATE}, {"id": "a", **RATE}]}
    turned = {"name": "w", "steps": one["steps"][::-1]}
    assert difference(one, turned) == ['~ steps: ["b","a"] → ["a","b"]']
    assert difference({"name": "w", "steps": one["steps"][:1]}, one) == [
        '~ steps: ["b"] → ["b","a"]',
        '+ steps.a.actor: "risk"',
        '+ steps.a.expectation: "rate"',
    ]


# Which kind of definition it is.


def test_a_file_says_what_it_defines_by_one_field():
    assert kind_of({"id": "a", "expectations": {}}) is DefinitionKind.AGENT
    assert kind_of(read(STEPS, "yaml")) is DefinitionKind.WORKFLOW


@pytest.mark.parametrize("data", [{}, {"id": "a"}, {"expectations": {}, "steps": {}}])
def test_a_file_that_defines_neither_or_both_says_what_to_write(data):
    with pytest.raises(BadDefinition, match=r"^write expectations for an actor, or steps for a wo"):
        kind_of(data)


# What cannot work.


def deep(levels):
    return "x" if not levels else {"a": deep(levels - 1)}


WRONG = [  # path within the step, what is said, what the step says
    ("timeout", "no such field; did you mean timeout_s? Or write one of actor", {"timeout": 5}),
    ("id", "there is no such field", {"id": "rate"}),
    ("timeout_s", "write a number, not '5'", {"timeout_s": "5"}),
    ("timeout_s", "-1.0 is not a number of seconds", {"timeout_s": -1}),
    ("", "write either actor, with an expectation, or workflow", {"actor": ""}),
    ("", "write either actor", {"workflow": "onboarding"}),
    ("expectation", "leave it out", {"actor": "", "workflow": "onboarding"}),
    ("expectation", "write it", {"expectation": ""}),
    ("actor", "'a b' is not a name", {"actor": "a b"}),
    ("depends_on", "write a list, not 'screen'", {"depends_on": "screen"}),
    ("depends_on", "there is no step 'scren'; there are screen, rate", {"depends_on": ["scren"]}),
    ("depends_on", "leads in a circle: rate → rate", {"depends_on": ["rate"]}),
    ("depends_on", "names one twice", {"depends_on": ["screen", "screen"]}),
    ("on_failure", "write 'abort', 'continue' or 'pause', not 'again'", {"on_failure": "again"}),
    ("on_failure", "write 'abort', 'continue' or 'pause', not 3", {"on_failure": 3}),
    ("on_failure.again", "there is no such field; write one of retry",
     {"on_failure": {"again": 1}}),
    ("on_failure.retry", "write an object, not 3", {"on_failure": {"retry": 3}}),
    ("on_failure.retry", "attempts: 0 is not", {"on_failure": {"retry": {"attempts": 0}}}),
    ("on_failure.retry.attempts", "write a whole number",
     {"on_failure": {"retry": {"attempts": "x"}}}),
    ("on_failure.retry.skip_on", "write a list", {"on_failure": {"retry": {"skip_on": "bad"}}}),
    ("on_failure.retry.then", "write 'abort'", {"on_failure": {"retry": {"then": "retry"}}}),
    ("requires_approval", "is not set", {"approvers": ["ann"]}),
    ("approvers", "an empty list names nobody; leave it out, and anybody may decide",
     {"approvers": [], "requires_approval": True}),
    ("compensate.expectation", "write it", {"compensate": {"actor": "risk"}}),
    ("compensate", "'a b' is not a name", {"compensate": {"actor": "a b", "expectation": "x"}}),
    ("reuse_s", "leave one of them out", {"reuse_s": 60, "requires_approval": True}),
    ("input", "write an object of fields, or one path, not 5", {"input": 5}),
    ("input", "or one path, not 'all of it'", {"input": "all of it"}),
    ("input", "more than 32 objects", {"input": {"a": deep(DEPTH_MAX)}}),
    ("input", "101 paths", {"input": {"a": ["trigger"] * (PATHS_MAX + 1)}}),
    ("input", "101 fields", {"input": {f"f{n}": n for n in range(FIELDS_MAX + 1)}}),
    ("input.a", "'trigger.x..y' is not a path", {"input": {"a": "trigger.x..y"}}),
    ("input.a.0.b", "there is no step 'scren'; there are",
     {"input": {"a": [{"b": "prior.scren"}]}}),
    ("input.a", "it does not depend on 'rate'; name that in depends_on",
     {"input": {"a": "prior.rate.score"}}),
    ("input", "it does not depend on 'screen'",
     {"input": "prior.screen.client", "depends_on": []}),
    ("input.kind", "no item here; if it is a text, write {value: item}",
     {"input": {"kind": "item"}}),
    ("when.amount", "write a path such as trigger.amount", {"when": {"amount": 5}}),
    ("when.prior", "write a path", {"when": {"prior": 5}}),
    ("when.trigger.n", "there is no 'ge'", {"when": {"trigger.n": {"ge": 1}}}),
    ("when.trigger.n", "write an operator", {"when": {"trigger.n": {}}}),
    ("when.trigger.n", "gt(True): compare", {"when": {"trigger.n": {"gt": True}}}),
    ("when.prior.last.a", "there is no step 'last'", {"when": {"prior.last.a": 1}}),
    ("when.item", "there is no item here", {"when": {"item": 1}, "for_each": "trigger.a"}),
    ("for_each", "write a path such as prior.rate.owners, not 'owners'", {"for_each": "owners"}),
    ("for_each", "write a path", {"for_each": ""}),
    ("for_each", "write a text", {"for_each": ["a"]}),
    ("for_each", "it does not depend on 'rate'", {"for_each": "prior.rate.owners"}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "problem", "said"), WRONG)
def test_what_cannot_work_is_told_in_one_line_with_its_path(path, problem, said):
    with pytest.raises(BadDefinition) as refused:
        defined(**said)
    assert refused.value.path == ".".join(filter(None, ("steps.rate", path)))
    assert problem in refused.value.problem
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "problem", "said"),
    [
        ("", "write an object, not []", []),
        ("name", "write it", {"name": None}),
        ("name", "'a b' is no name of a workflow", {"name": "a b"}),
        ("name", "56 characters, the limit is 55", {"name": "x" * 56}),
        ("id", "there is no such field", {"id": "review"}),
        ("on.0", "write one of event, stream", {"on": {}}),
        ("on", "at least one", {"on": []}),
        ("debounce_s", "is for events", {"debounce_s": 3}),
        ("overlap", "'buffer_one' or 'cancel_other', not 'queue'", {"overlap": "queue"}),
        ("subject_key", "is not a path", {"subject_key": "a..b"}),
        ("steps", "at least one", {"steps": {}}),
        ("steps", "write an object, not 'rate'", {"steps": "rate"}),
        ("steps", "is no name of a step", {"steps": {"a b": RATE}}),
        ("steps", f"at most {STEPS_MAX}", {"steps": {f"s{n}": RATE for n in range(101)}}),
        ("steps.rate", "write an object, not 5", {"steps": {"rate": 5}}),
        ("steps.0", "write an object with an id, not 5", {"steps": [5]}),
        ("steps.1", "write an object with an id", {"steps": [{"id": "a", **RATE}, RATE]}),
        ("steps.1", "'a' is said twice", {"steps": [{"id": "a", **RATE}, {"id": "a", **RATE}]}),
        ("steps.b.timeout_s", "write a number",
         {"steps": [{"id": "a", **RATE}, {"id": "b", **RATE, "timeout_s": "x"}]}),
        ("steps.a.depends_on", "leads in a circle: b → a → b",
         {"steps": {"b": {**RATE, "depends_on": ["a"]}, "a": {**RATE, "depends_on": ["b"]}}}),
        ("steps.last.input.x", "step 'each' brings a list; write prior.each",
         {"steps": {"each": {**RATE, "for_each": "trigger.a"},
                    "last": {**RATE, "depends_on": ["each"], "input": {"x": "prior.each.y"}}}}),
    ],
)  # fmt: skip
def test_so_is_what_a_workflow_cannot_be(path, problem, said):
    whole = {"name": "review", "steps": {"rate": RATE}, **said} if said else said
    if said and said.get("name", "") is None:
        del whole["name"]
    with pytest.raises(BadDefinition) as refused:
        workflow_of(whole)
    assert refused.value.path == path
    assert problem in refused.value.problem
    assert "\n" not in str(refused.value)


def test_the_result_of_a_step_may_come_by_way_of_others():
    steps = {
        "screen": SCREEN,
        "rate": {**RATE, "depends_on": ["screen"]},
        "tell": {**RATE, "depends_on": ["rate"], "input": {"hit": "prior.screen.hit"}},
    }
    told = to_workflow(workflow_of({"name": "w", "steps": steps})).steps["tell"]
    trigger = ManualTrigger(requested_by="ada")
    assert told.input(trigger, {"screen": {"hit": True}, "rate": None}) == {"hit": True}


def test_what_was_skipped_is_something_and_holds_nothing():
    rate = to_workflow(defined(when={"prior.screen.hit": {"exists": False}})).steps["rate"]
    trigger = ManualTrigger(requested_by="ada")
    assert rate.when(trigger, {"screen": None})
    assert not rate.when(trigger, {"screen": {"hit": None}})
