"""The engine: what actors declare, the rules of episodes, and the services that run them.

Apps import the public names from `vigil`. Rules live in the modules of this package and wait for
nothing; `engine.runtime` holds the services that carry them out.
"""
