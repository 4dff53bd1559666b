"""Authorization: THE table of rights, and the authorizer that requests are checked with."""
