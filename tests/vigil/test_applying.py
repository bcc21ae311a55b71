"""`vigil apply` and its like: what is refused, what is only warned of, and in which order."""

from __future__ import annotations

import pytest

from tests.vigil.defining import DISKS, HEALTHY, LACKS, REVIEW, done
from tests.vigil.journal import Journal
from tests.vigil.test_command_line import one_line

TEMPLATE = """
id: judge
expectations:
  judge:
    on: {manual: true}
    strategy:
      template: observe_classify_converge
      config:
        gatherer: facts
        rules: [{when: {a: {gt: 1}}, class: high, severity: low}]
"""

PAGING = (
    TEMPLATE
    + """        outputs: [{adapter: pager, payload: "{class}"}]
"""
)

JUDGES = """
from vigil import App


async def facts(payload, options):
    return {}


async def deliver(output):
    return None


mails = App(gatherers={"facts": facts}, outputs={"mail": deliver})
pages = App(gatherers={"facts": facts}, outputs={"mail": deliver, "pager": deliver})
"""

WAY_BACK = (
    "vigil: disk_watch: nobody runs it now; until revision 2 it ran on n1; go back with: "
    "vigil actors definition disk_watch --revision 1 | vigil actors apply - --format yaml"
)


def test_a_stack_that_is_not_there_is_a_typo_and_is_not_made(standing, files):
    applied = standing.run("actors", "apply", "disks.yaml", "--stack", "nowhere")
    again = standing.run("actors", "list", "--stack", "nowhere")

    assert "no stack 'nowhere' on this server" in one_line(applied, code=1)
    assert "no stack 'nowhere' on this server" in one_line(again, code=1)


def test_what_a_node_declares_in_code_cannot_be_defined(standing, files):
    Journal(standing).pretend_node("n1", revisions={"disk_watch": 0, "workflow-review": 0})
    planned = standing.run("actors", "apply", "disks.yaml", "--dry-run")
    applied = standing.run("actors", "apply", "disks.yaml")
    flow = standing.run("workflows", "apply", "review.yaml")

    for each in (planned, applied):
        assert "disks.yaml: actor 'disk_watch' is declared in code on n1" in one_line(each, code=1)
    assert "review.yaml: workflow 'review' is declared in code on n1" in one_line(flow, code=1)
    assert standing.run("actors", "history", "disk_watch").returncode == 1


def test_where_nobody_runs_what_was_applied_the_way_back_is_said(standing, files):
    journal = Journal(standing)
    done(standing, "actors", "apply", "disks.yaml")
    journal.pretend_node("n1", revisions={"disk_watch": 1}, disk_watch=LACKS)
    vain = standing.run("actors", "apply", "two.yaml", "--timeout", "0.3")
    journal.pretend_node("n2", revisions={"disk_watch": 2})
    some = standing.run("actors", "apply", "two.yaml", "--timeout", "0.3")

    assert vain.returncode == 1
    assert vain.stderr.splitlines() == [f"vigil: disk_watch: n1 cannot run it: {LACKS}", WAY_BACK]
    assert "go back" not in some.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEMPLATE.replace("facts", "{}"), "strategy.config.gatherer: write a text, not {}"),
        (TEMPLATE.replace("gt: 1", "over: 1"), "strategy.config.rules.0.when"),
        (PAGING.replace("class}", "clas}"), "strategy.config.outputs.0.payload: {clas} is no"),
        (PAGING.replace("pager", "5"), "strategy.config.outputs.0.adapter: write a text, not 5"),
        (TEMPLATE + "        outputs: [pager]\n", "strategy.config.outputs.0: write an object"),
        (TEMPLATE.replace("judge", "workflow-judge", 1), "id: begins with 'workflow-'"),
        (TEMPLATE.replace("judge", "-judge", 1), "id: begins with '-'"),
        (TEMPLATE + "queue_max: 5\n", "queue_max: no episode waits for its turn"),
        (TEMPLATE + "stacks: [a, b]\n", "it is for a, b, and this stack is console-"),
        (
            "name: round\nsteps: {a: {workflow: round}}\n",
            "workflow 'round' runs itself: round → round",
        ),
    ],
)
def test_what_no_node_can_run_is_refused_without_an_app_too(standing, files, text, why):
    (files / "bad.yaml").write_text(text)

    planned = standing.run("apply", "disks.yaml", "bad.yaml", "--dry-run")
    applied = standing.run("apply", "disks.yaml", "bad.yaml")

    for each in (planned, applied):
        line = one_line(each, code=2)
        assert line.startswith("vigil: bad.yaml: ")
        assert why in line
    assert standing.run("actors", "history", "disk_watch").returncode == 1


def test_a_dry_run_says_what_only_an_app_could_tell(standing, files):
    own = DISKS.replace("disk_watch", "own").replace("ref: parts:Look", "template: mine")
    (files / "own.yaml").write_text(own)
    (files / "judge.yaml").write_text(PAGING)
    names = ("disks.yaml", "judge.yaml", "own.yaml")
    planned = standing.run("actors", "apply", *names, "--dry-run")
    checked = standing.run("actors", "apply", "disks.yaml", "--dry-run", "--app", "parts:app")

    assert one_line(planned, code=0) == (
        "vigil: not checked, for no --app is given: "
        "gatherer 'facts', output 'pager', strategy 'parts:Look', template 'mine'\n"
    )
    assert checked.stderr == ""


def test_an_app_without_an_output_that_is_named_says_which_it_has(standing, files):
    (files / "judge.yaml").write_text(PAGING)
    (files / "judges.py").write_text(JUDGES)
    lacking = standing.run("apply", "judge.yaml", "--dry-run", "--app", "judges:mails")
    fitting = standing.run("apply", "judge.yaml", "--dry-run", "--app", "judges:pages")

    place = "expectations.judge.strategy.config.outputs.0.adapter"
    problem = "no output is called 'pager'; App(outputs=…) has mail"
    assert one_line(lacking, code=2) == f"vigil: judge.yaml: {place}: {problem}\n"
    assert (fitting.returncode, fitting.stderr) == (0, "")


def test_a_workflow_that_names_what_nobody_has_is_only_warned_of(standing, files):
    Journal(standing).pretend_node()
    early = standing.run("workflows", "apply", "review.yaml", "--dry-run")
    both = standing.run("apply", "disks.yaml", "review.yaml", "--dry-run")

    assert early.returncode == 0
    assert early.stderr.splitlines() == [
        f"vigil: review: step {step}: there is no actor 'disk_watch'; there are: dba; "
        "until there is, no node can run it"
        for step in ("screen", "pay")
    ]
    assert "there is no actor" not in both.stderr


def test_workflows_that_need_an_expectation_that_goes_are_named(standing, files):
    (files / "healthy.yaml").write_text(DISKS.partition("  disk_has")[0] + HEALTHY)
    done(standing, "apply", "two.yaml", "review.yaml")
    planned = standing.run("actors", "apply", "healthy.yaml", "--dry-run")
    (told,) = standing.ask("actors", "apply", "healthy.yaml", "--dry-run")
    calm = standing.run("actors", "apply", "disks.yaml", "--app", "parts:app", "--dry-run")

    needs = "workflow review needs what goes (steps screen, pay), and begins no more without it"
    assert f"vigil: disk_watch: {needs}\n" in planned.stderr
    assert told["needed_by"] == {"review": ["screen", "pay"]}
    assert calm.stderr == ""


def test_a_folder_is_applied_as_one_actors_before_workflows(standing, files):
    deep = files / "all" / "a" / "b"
    deep.mkdir(parents=True)
    (files / "all" / "notes.txt").write_text("not a definition")
    (files / "all" / "a" / "a.yaml").write_text(REVIEW)
    (deep / "second.yml").write_text(DISKS)
    planned = done(standing, "apply", "all", "--dry-run", "--app", "parts:app")
    applied = done(standing, "apply", "all", "--by", "ada")
    twice = standing.run("apply", "all", "all/a/a.yaml")
    other = standing.run("actors", "apply", "all")
    (files / "none").mkdir()
    none = standing.run("apply", "none")

    for said, becomes in ((planned, "would be revision 1"), (applied, "revision 1")):
        firsts = [line for line in said.splitlines() if line.endswith(becomes)]
        assert firsts == [f"disk_watch: {becomes}", f"review: {becomes}"]
    assert standing.ask("workflows", "history", "review")[0]["person"] == "ada"
    assert "both define workflow 'review'" in one_line(twice, code=2)
    assert "say `vigil workflows apply all/a/a.yaml`" in one_line(other, code=2)
    assert "none: there is no .yaml, .yml, .json or .toml in it" in one_line(none, code=1)


def test_a_folder_may_hold_settings_and_what_is_hidden(standing, files):
    (files / ".vigil").mkdir()
    (files / ".vigil" / "run.toml").write_text('nats_url = "nats://127.0.0.1:1"')
    (files / ".draft.yaml").write_text("no definition")
    (files / "sub").mkdir()
    (files / "sub" / "vigil.toml").write_text("lease_s = 30")
    (files / "sub" / "review.yaml").write_text(REVIEW)
    for each in files.glob("*.yaml"):
        if each.name not in {"disks.yaml", ".draft.yaml"}:
            each.unlink()

    said = done(standing, "apply", ".", "--dry-run")

    named = [line.split(":")[0] for line in said.splitlines() if "would be revision" in line]
    assert named == ["disk_watch", "review"]


def test_a_revision_that_was_seen_must_stand_even_if_nothing_would_change(standing, files):
    done(standing, "apply", "disks.yaml", "--if-revision", "0")

    for more in ((), ("--dry-run",)):
        stale = standing.run("apply", "disks.yaml", "--if-revision", "0", *more)
        assert "disk_watch: it is at revision 1 by now, not 0" in one_line(stale, code=1)
    assert "as it is already" in done(standing, "apply", "disks.yaml", "--if-revision", "1")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--by", " "), "--by: give a name, or leave it out"),
        (("--reason", "x" * 4_001), "reason: "),
    ],
)
def test_a_dry_run_looks_at_who_and_why(standing, files, options, why):
    assert why in one_line(standing.run("apply", "disks.yaml", "--dry-run", *options), code=2)


def test_a_file_that_is_empty_is_called_that(vigil, files):
    (files / "empty.yaml").write_text("\n")

    assert "vigil: empty.yaml: it is empty" in one_line(vigil.run("apply", "empty.yaml"), code=2)
    nothing = vigil.run("apply", "-", "--format", "json")
    assert "standard input: it is empty" in one_line(nothing, code=2)


def test_a_field_that_is_mistyped_is_told_from_the_others(vigil, files):
    (files / "typo.yaml").write_text(DISKS.replace("cooldown_s", "cooldown"))

    typo = one_line(vigil.run("apply", "typo.yaml"), code=2)

    assert "cooldown: there is no such field; did you mean cooldown_s? Or write one of " in typo
