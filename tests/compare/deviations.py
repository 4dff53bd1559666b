"""Where Barnabas answers something else than Apache Kafka, and why.

InitProducerId v6 is unstable in Apache Kafka 4.3.1, which neither lists nor serves it; Barnabas does both.

Apache Kafka 4.3.1 has no branch for these inputs: an exception that nobody expects becomes UNKNOWN_SERVER_ERROR, which
clients retry. Barnabas says what is wrong.
"""

from __future__ import annotations

import json

from tests.compare.conversation import AnswersByVersion

# API key -> versions of it that we serve and Apache Kafka does not: unstable there, but written down in its schema.
ADVERTISED = {"22": "0-6"}
# Question -> what we answer where Apache Kafka answers UNKNOWN_SERVER_ERROR.
INSTEAD_OF_UNKNOWN_SERVER_ERROR = {
    "IncrementalAlterConfigs with an unknown operation": "INVALID_REQUEST",
    "Produce compression 7": "UNSUPPORTED_COMPRESSION_TYPE",
    "Produce a varint without an end in NONE": "INVALID_RECORD",
    "Produce gzip that is none": "INVALID_RECORD",
    "Produce zstd that is none": "INVALID_RECORD",
}


def apply(question: str, answers: AnswersByVersion) -> AnswersByVersion:
    """What Barnabas should answer where Apache Kafka answered this."""
    ours = INSTEAD_OF_UNKNOWN_SERVER_ERROR.get(question, "UNKNOWN_SERVER_ERROR")
    if question.startswith("InitProducerId"):
        answers = {versions.replace("-5", "-6"): answer for versions, answer in answers.items() if versions != "6"}
    changed: AnswersByVersion = json.loads(json.dumps(answers).replace("UNKNOWN_SERVER_ERROR", ours))
    return changed
