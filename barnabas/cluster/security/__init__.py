"""A secured local cluster: a throw-away authority, certificates, users, and settings for clients."""
