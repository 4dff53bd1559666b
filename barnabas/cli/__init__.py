"""The command line."""

import sys

from barnabas.common.processes import linux

if (problem := linux.refusal()) is not None:
    sys.exit(f"barnabas: {problem}")
