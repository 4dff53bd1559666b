"""SASL: mechanisms as state machines over bytes, for servers and for clients, and the settings that choose them."""
