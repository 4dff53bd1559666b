"""Principals, ACLs, credentials and quotas as values, TLS and SASL without sockets: for brokers and controllers."""
