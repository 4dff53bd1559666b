"""The responses in which Barnabas deviates from Apache Kafka, and the reasons.

InitProducerId v6 is unstable in Apache Kafka 4.3.1, which neither lists nor serves it. Barnabas does both.

Apache Kafka 4.3.1 has no branch for some invalid inputs. An unexpected exception becomes UNKNOWN_SERVER_ERROR, which
clients retry. Barnabas returns a specific error.
"""

from __future__ import annotations

import json

from tests.compare.conversation import AnswersByVersion

# API key -> versions that we serve. Apache Kafka's schema has them, but they are unstable there.
ADVERTISED = {"22": "0-6"}
# Question -> our error where Apache Kafka returns UNKNOWN_SERVER_ERROR.
INSTEAD_OF_UNKNOWN_SERVER_ERROR = {
    "IncrementalAlterConfigs with an unknown operation": "INVALID_REQUEST",
    "Produce compression 7": "UNSUPPORTED_COMPRESSION_TYPE",
    "Produce a varint without an end in NONE": "INVALID_RECORD",
    "Produce gzip that is none": "INVALID_RECORD",
    "Produce zstd that is none": "INVALID_RECORD",
}


def apply(question: str, answers: AnswersByVersion) -> AnswersByVersion:
    """Return Barnabas's expected responses for these responses of Apache Kafka."""
    ours = INSTEAD_OF_UNKNOWN_SERVER_ERROR.get(question, "UNKNOWN_SERVER_ERROR")
    if question.startswith("InitProducerId"):
        answers = {versions.replace("-5", "-6"): answer for versions, answer in answers.items() if versions != "6"}
    changed: AnswersByVersion = json.loads(json.dumps(answers).replace("UNKNOWN_SERVER_ERROR", ours))
    return changed
