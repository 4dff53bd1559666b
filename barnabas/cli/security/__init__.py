"""Commands about users, ACLs and quotas, and how the commands connect to a secured cluster."""
