"""GSSAPI with Kerberos: the two sides of a login, tickets, and names. Needs the package `gssapi` where it is used."""
