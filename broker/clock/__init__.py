"""The clock in the hand: the time of a process can be moved forward on purpose. Loaded only with barnabas.clock.enable.

    hand.py     the moved clock of one process, its page /clock, and the file that keeps the offset
    parts.py    the parts of a process that wait by this clock: how a move wakes them, and whether they have work

docs/internals/clock.md says which parts have the moved clock, and how a whole cluster is moved.
"""
