"""Functions as strategies: their context, their branches, and how a replay feeds them.

    ctx.call(…) ──▶ FunctionRun.step ──▶ Order.ask ──record──▶ the result that the journal holds
                                              └────none────▶ Turns.take: announce, perform, record

Every call has a path: its number in its branch, such as `3`, or `4.2.1` for the first call in the
second branch of the fourth. Read `run.py` first, then `order.py`.
"""
