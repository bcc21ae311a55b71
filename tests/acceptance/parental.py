"""An app whose one actor starts 40 episodes of three others, and waits for them."""

from __future__ import annotations

from vigil import Actor, App, Budget, ConvergeResult, FunctionContext, Trigger, event, manual

CHILDREN = 40
WORKERS = ("north", "south", "west")
CHILD_TURNS = 3
"""Two calls, and the conclusion."""

boss = Actor("boss")


@boss.expectation(on=event("work.wanted"), budget=Budget(turns=1_000, tokens=0, wall_s=0))
async def divide(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Have each worker count."""
    await ctx.observe(trigger.payload)
    ends = await ctx.gather(
        *(
            ctx.episode(WORKERS[number % len(WORKERS)], "count", {"number": number})
            for number in range(CHILDREN)
        )
    )
    return ConvergeResult(result=sum(end.value for end in ends))


async def count(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Return the number."""
    await ctx.observe("one")
    await ctx.observe("two")
    return ConvergeResult(result=trigger.payload["number"])


workers = [Actor(name) for name in WORKERS]
for each in workers:
    each.expect("count", count, on=manual())

app = App(actors=[boss, *workers])
