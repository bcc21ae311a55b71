"""Children and their parent, whatever dies, and whatever comes twice."""

from __future__ import annotations

from tests.engine.functions.test_children import app_of, played
from tests.moments import STRIDE
from vigil import ConvergeResult
from vigil.testing import crash_everywhere, deliver_twice, run


async def mixed(ctx, trigger):
    async def two(number):
        first = await ctx.episode("worker", "square", {"n": number, "takes_s": number * 20})
        second = await ctx.episode("worker", "square", {"n": -1}, on_failure="return")
        return first.value, second.error_class

    kids = ctx.gather(*(ctx.episode("worker", "square", {"n": n, "takes_s": n}) for n in range(3)))
    found = await ctx.gather(kids, two(1), ctx.sleep(30))
    return ConvergeResult(result=found)


async def going(vigil):
    boss = await played(vigil)
    assert [[end["value"] for end in boss.result[0]], *boss.result[1:]] == [
        [0, 1, 4],
        [1, "negative"],
        None,
    ]
    assert len(vigil.children(boss.id)) == 5


async def test_each_child_is_started_once_and_has_one_end_wherever_a_node_dies():
    await crash_everywhere(lambda: run(app_of(mixed)), going, may_fail=["negative"], every=STRIDE)


async def test_what_is_delivered_twice_changes_nothing():
    await deliver_twice(lambda: run(app_of(mixed)), going)
