"""Fault injection inside a node, for tests, drills and teaching. Loaded only with barnabas.faults.enable.

    kit.py                   everything for one process: its clock, files, links, engine and pages
    engine.py                the active faults, and the path of a request through them
    actions/call.py          a request on this path
    actions/wire.py          the effect of each fault on a request, one function each
    actions/partitions.py    errors for some partitions of a request; the others are handled
    actions/fetching.py      the same for Fetch, and corrupt batches
    actions/withheld.py      fetch sessions without the partitions that fail
    actions/answers.py       calling an API
    matching.py              the requests that a fault matches
    triggers.py              the calls for which it fires
    armed.py                 one active fault
    disk.py, links.py, skewed_clock.py    slow and full disks, cut links, wrong clocks
    recorder.py              requests and responses, kept for assertions
    pages.py                 /faults and /recorder

Without the key none of this is imported, and no request runs any of its code: the engine is another API table, whose
rows call the real ones.
"""
