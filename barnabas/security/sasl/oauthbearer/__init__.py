"""OAUTHBEARER (RFC 7628): a JSON web token in place of a password."""
