"""Access control lists: an index of them, filters, and the rules by which they decide."""
