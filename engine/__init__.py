"""The engine: runs actors as event-sourced episodes. One folder per feature.

`app` is what users write, `episodes` and `execution` run it, `triggers`, `lanes`, `findings`,
`outputs`, `waits`, `workflows` and `definitions` are features, `runtime` is plumbing without a word
of the domain, `node` composes, `operations` is what people run. Apps import the public names from
`vigil`. What any function here may raise is at the top of `engine/errors.py`.
"""
