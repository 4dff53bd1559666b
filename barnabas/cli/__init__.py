import sys

from barnabas.common import linux

if (told := linux.refusal()) is not None:
    sys.exit(f"barnabas: {told}")
