"""The locks that most requests take, which can be counted."""
