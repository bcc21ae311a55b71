"""Measurements. Nothing here is a test: machines are noisy, so compare within one run.

__main__       suites of programs ──JSON lines──▶ results/<date>.jsonl ──▶ report, plots
  episodes       Vigil on one node
  budget         what an episode costs there, by stage and by process
  scaling        on more nodes, and on a cluster of three NATS servers
  comparison     beside the peers, with ever more in flight
  retained       with a long history, which filling writes
  replay, takeover, projector, appends, idle      one thing each, by itself

rounds         runs cases in turns on systems that are up
  vigil, peers     such systems, with their servers
    program          the process that makes a system's load
  processes        the processor time that their parts use
  measure          what runs say together
"""
