"""Classes of the operator that may refuse new topics and changes of configs."""
