"""Faults on purpose, inside a node: what tests, drills and teachers break. Loaded only with barnabas.faults.enable.

    kit.py        all of it for one process: its clock, its files, its links, its engine, its pages
    engine.py     the faults that are in force, and the way of a request through them
    wire.py       what each fault does to a request, one function each
    partitions.py errors for some partitions of a request, the rest of it staying real
    fetching.py   the same for Fetch, and corrupt batches; withheld.py: sessions without what fails
    answers.py    waiting for an answer, and following up on it
    matching.py   whom a fault meets        triggers.py   when it fires        armed.py   one fault in force
    disk.py, links.py, skewed_clock.py      slow and full disks, cut links, wrong clocks
    recorder.py   requests and responses, kept to assert on        pages.py   /faults and /recorder

Without the key nothing of this is imported, and no request meets a line of it: the engine is a different API table,
whose rows call the real ones.
"""
