"""What `barnabas up --security` prints: settings for clients, which are also files of the cluster's directory.

It also says how to open the pages. The link of the live page has the token in it, since a browser can only ask for a
name and a password; it is printed on a terminal only, where the passwords of users are, too.
"""

from __future__ import annotations

import json
from pathlib import Path

from barnabas.common.pages.page_access import BEARER, TOKEN_FILE, TOKEN_USER, Access

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


def login_link(access: Access, page: str, directory: Path | None) -> str:
    """Return the address of the live page at HOST:PORT; in it is the token that `directory`, DIR/security, has."""
    is_known = directory is not None and _asks_for_our_token(access, directory)
    login = f"{TOKEN_USER}:{access.credential.removeprefix(BEARER)}@" if is_known else ""
    return f"{access.scheme}://{login}{page}/live"


def page_lines(access: Access, directory: Path) -> list[str]:
    """Return the lines for people about the pages of a secured cluster; `directory` is its DIR/security."""
    if not _asks_for_our_token(access, directory):
        return []
    file = directory / TOKEN_FILE
    lines = [f"The pages ask for the user {TOKEN_USER} and the password in {file}; commands here have it."]
    tls = []
    if access.scheme == "https":
        lines.append("A browser warns of their certificate, since it does not know the authority of this cluster.")
        tls = ["scheme: https", f"tls_config: {{ca_file: {access.ca}}}"]
    lines.append("Prometheus scrapes them with:")
    return [*lines, *(f"{INDENT}{line}" for line in [f"authorization: {{credentials_file: {file}}}", *tls])]


def _asks_for_our_token(access: Access, directory: Path) -> bool:
    """Return whether no configuration replaces the token of `up --security`."""
    return access.credential == BEARER + (directory / TOKEN_FILE).read_text()


def _shown(file: Path) -> list[str]:
    text = file.read_text()
    return json.dumps(json.loads(text), indent=1).splitlines() if file.suffix == ".json" else text.splitlines()
