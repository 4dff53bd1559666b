"""Secured systems: how clients connect to them, the rules that the clients need, and many rules that they do not."""
