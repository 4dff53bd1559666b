"""Secrets in settings: which values are secret, the providers that read them, and the files that reveal them."""
