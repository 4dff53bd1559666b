"""What `barnabas up --security` prints: settings for clients, which are also files of the cluster's directory."""

from __future__ import annotations

import json
from pathlib import Path

ADMIN = "admin"
USERS = "users"
#: (title, file) of each client's settings, as ClusterSecurity writes them.
CLIENTS = (
    ("Java client, kafka-topics.sh --command-config", "client.properties"),
    ("librdkafka, kcat -F, confluent-kafka", "librdkafka.conf"),
    ("kafka-python: KafkaProducer(**settings)", "kafka_python.json"),
    ("Spark: spark.readStream.format('kafka').options(**settings)", "spark.json"),
)
INDENT = "    "


def settings_lines(directory: Path) -> list[str]:
    """Return the lines for people about the users of a secured cluster; `directory` is its DIR/security."""
    users = sorted(path.name for path in (directory / USERS).iterdir())
    shown = next((user for user in users if user != ADMIN), ADMIN)
    lines = [
        f"Users: {', '.join(users)}. The settings of each for clients are in {directory / USERS}/NAME.",
        "Commands on this machine connect as admin, who may do everything; others need ACLs, such as:",
        f"{INDENT}barnabas acl add {shown if shown != ADMIN else 'alice'} all 'topic:*'",
        f"{INDENT}barnabas acl add {shown if shown != ADMIN else 'alice'} read 'group:*'",
        f"Settings of {shown}:",
    ]
    for title, name in CLIENTS:
        file = directory / USERS / shown / name
        lines.append(f"  {title} ({name})")
        lines += [f"{INDENT}{line}" for line in _shown(file)]
    return lines


def _shown(file: Path) -> list[str]:
    text = file.read_text()
    return json.dumps(json.loads(text), indent=1).splitlines() if file.suffix == ".json" else text.splitlines()
