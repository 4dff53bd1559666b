"""Principals, ACLs, credentials, tokens and quotas as values, shared by brokers and controllers."""
