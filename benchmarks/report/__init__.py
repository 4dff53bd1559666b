"""What a run reports: the figures and their targets, a table, a picture, a line of the history."""
