"""A whole cluster in one process: one seed, one clock, faults on purpose.

| file | is |
| --- | --- |
| `time.py` | an event loop whose time jumps to the next deadline once every task is asleep |
| `faults.py` | what may go wrong, how often, and a count of how often it did |
| `life.py` | one process: it may freeze for longer than its leases, and it may die anywhere |
| `wire.py` | every port of the log, as one process meets it through a network that misbehaves |
| `themes.py` | what some worlds have besides: ways to wake an actor, and limits on it |
| `strategies.py` | how the actors think: every way of going on and of ending |
| `actors.py` | what the nodes run, and a ledger of every call that left them |
| `wakeful.py` | the actors of the themes |
| `errands.py` | what the world and its people do for the themes |
| `flowing.py` | the workflows, and the actors of their steps |
| `calling.py` | the actors whose strategies are functions |
| `deploying.py` | the actor whose code differs between nodes |
| `defining.py` | an actor that is data, and people who change it |
| `deciders.py` | people who see to instances of workflows |
| `rows.py` | the read model in a dict, behind a fenced checkpoint |
| `world.py` | three nodes, a publisher and a seed: what happened, as data |
| `evidence.py` | the same, sorted for those who judge it |
| `invariants.py` | what must hold of it, whatever happened |
| `wakings.py` | the same, of all that wakes an actor |
| `limits.py` | the same, of all that limits how often it fires |
| `turns.py` | the same, where episodes take turns in the whole cluster |
| `flows.py` | the same, of instances of workflows |
| `paths.py` | the same, of episodes by functions |
| `children.py` | the same, of episodes that others start |
| `parked.py` | the same, of episodes that wait for other code |
| `editions.py` | the same, of an actor that is data |
| `rest.py` | whether anything is left to do in a world |

SIM_SEED=17 pytest tests/simulation                   replays one world; a breach prints all of it
VIGIL_TEST_SIZE=worlds=2000 pytest tests/simulation   looks at more of them
"""
