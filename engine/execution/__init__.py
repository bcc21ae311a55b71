"""Running an episode: receive its command, claim it, drive the strategy, conclude, take over.

`commands.py` receives, `run.py` is one node's attempt from the fence to the last public event,
`driver.py` runs the strategy, `conclude.py` carries out its result, `takeover.py` recovers episodes
of dead nodes. Read `run.py` first.
"""
