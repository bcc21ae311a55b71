"""Functions as strategies: their context, their branches, and how a replay feeds them.

    ctx.call(…) ──▶ StrategyRun.step ──▶ Order.ask ──record──▶ the result that the journal holds
                                              └────none────▶ Turns.take: announce, perform, record

Every call has a path: its number in its branch, such as `3`, or `4.2.1` for the first call in the
second branch of the fourth. A class is run as a function, too (`of_class.py`), and the path of a
step is its turn. Read `run.py` first, then `order.py`.
"""
