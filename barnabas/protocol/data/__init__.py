"""Structures that travel inside other messages, records and files."""
