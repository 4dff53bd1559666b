"""Connections before they are authenticated: how much of the processor's time they have, and who is next."""
