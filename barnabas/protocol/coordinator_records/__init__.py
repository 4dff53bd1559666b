"""Keys and values of the internal topics, one module for each kind of group, and their framing (`record`).

This package imports none of its modules, so that a broker loads only the records that it needs.
"""
