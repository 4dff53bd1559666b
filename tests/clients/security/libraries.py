"""The client libraries of the matrix, with one interface: a round trip of one record, and a session of many."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
import kafka.net.sasl.oauth

from barnabas.common.clock import SystemClock
from tests.clients.security.login import OAUTHBEARER, Login

TIMEOUT_S = 20
PAUSE_S = 0.1
#: For how long librdkafka keeps a token; it asks for the next one a second later at most.
TOKEN_S = 1
CLOCK = SystemClock()


class RefusedError(Exception):
    """The client could not do it; the text is what its library reports."""


class Library(Protocol):
    """One client library or tool."""

    def round(self, login: Login, topic: str) -> str:
        """Produce a record and return the first one of the topic; raises RefusedError."""

    def session(self, login: Login, topic: str, duration_ms: int) -> int:
        """Produce a record every 100 ms by one client; return how many were acknowledged. Raises RefusedError."""

    def close(self) -> None:
        """End what runs."""


class Librdkafka:
    """confluent-kafka."""

    def round(self, login: Login, topic: str) -> str:
        """See Library."""
        with self._producing(login) as (producer, errors):
            self._send(producer, topic, errors)
        consumer = confluent_kafka.Consumer({**self._settings(login), "group.id": topic, "enable.auto.commit": False})
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            (message,) = consumer.consume(1, TIMEOUT_S)
            return str(message.value(), "utf-8")
        finally:
            consumer.close()

    def session(self, login: Login, topic: str, duration_ms: int) -> int:
        """See Library."""
        delivered = 0
        end_ms = CLOCK.monotonic_ms() + duration_ms
        with self._producing(login) as (producer, errors):
            while CLOCK.monotonic_ms() < end_ms:
                self._send(producer, topic, errors)
                delivered += 1
                producer.poll(PAUSE_S)
        return delivered

    def close(self) -> None:
        """See Library."""

    @contextlib.contextmanager
    def _producing(self, login: Login) -> Iterator[tuple[confluent_kafka.Producer, list[str]]]:
        errors: list[str] = []

        def note(error: confluent_kafka.KafkaError) -> None:
            if error.code() == confluent_kafka.KafkaError._AUTHENTICATION or "SSL routines" in error.str():
                errors.append(f"{error.name()}: {error.str()}")

        producer = confluent_kafka.Producer({**self._settings(login), "error_cb": note})
        try:
            yield producer, errors
        finally:
            producer.purge()
            producer.flush(TIMEOUT_S)

    def _send(self, producer: confluent_kafka.Producer, topic: str, errors: list[str]) -> None:
        reports: list[confluent_kafka.KafkaError | None] = []
        producer.produce(topic, b"from confluent-kafka", on_delivery=lambda error, _: reports.append(error))
        end_ms = CLOCK.monotonic_ms() + TIMEOUT_S * 1000
        while not reports and not errors and CLOCK.monotonic_ms() < end_ms:
            producer.poll(0.05)
        if reports != [None]:
            raise RefusedError("; ".join([*errors, *map(str, reports)]))

    def _settings(self, login: Login) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap.servers": login.bootstrap,
            "security.protocol": login.protocol,
            "ssl.ca.location": str(login.ca),
            "log_level": 0,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
        }
        if login.certificate is not None:
            settings |= {"ssl.certificate.location": str(login.certificate), "ssl.key.location": str(login.certificate)}
        if login.mechanism:
            settings["sasl.mechanism"] = login.mechanism
        if login.mechanism == OAUTHBEARER:
            settings["oauth_cb"] = lambda _: (_token(login), CLOCK.wall_ms() / 1000 + TOKEN_S)
        elif login.mechanism:
            settings |= {"sasl.username": login.user, "sasl.password": login.password}
        return settings


class KafkaPython:
    """kafka-python."""

    def round(self, login: Login, topic: str) -> str:
        """See Library."""
        with self._producing(login) as producer:
            producer.send(topic, b"from kafka-python").get(TIMEOUT_S)
        consumer = kafka.KafkaConsumer(**self._settings(login), consumer_timeout_ms=TIMEOUT_S * 1000)
        try:
            partition = kafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            return str(next(iter(consumer)).value, "utf-8")
        finally:
            consumer.close()

    def session(self, login: Login, topic: str, duration_ms: int) -> int:
        """See Library."""
        delivered = 0
        end_ms = CLOCK.monotonic_ms() + duration_ms
        with self._producing(login) as producer:
            while CLOCK.monotonic_ms() < end_ms:
                producer.send(topic, b"x").get(TIMEOUT_S)
                delivered += 1
                threading.Event().wait(PAUSE_S)
        return delivered

    def close(self) -> None:
        """See Library. A producer that failed leaves sockets open, which are closed here, not in another test."""
        gc.collect()

    @contextlib.contextmanager
    def _producing(self, login: Login) -> Iterator[kafka.KafkaProducer]:
        with reported("kafka"):
            producer = kafka.KafkaProducer(**self._settings(login), bootstrap_timeout_ms=login.patience_ms)
            try:
                yield producer
            finally:
                producer.close()

    def _settings(self, login: Login) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap_servers": login.bootstrap,
            "security_protocol": login.protocol,
            "reconnect_backoff_ms": 200,
        }
        if login.has_tls:
            settings["ssl_cafile"] = str(login.ca)
        if login.certificate is not None:
            settings |= {"ssl_certfile": str(login.certificate), "ssl_keyfile": str(login.certificate)}
        if login.mechanism:
            settings["sasl_mechanism"] = login.mechanism
        if login.mechanism == OAUTHBEARER:
            settings["sasl_oauth_token_provider"] = _KafkaPythonTokens(login)
        elif login.mechanism:
            settings |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
        return settings


class _KafkaPythonTokens(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, login: Login) -> None:
        super().__init__()
        self._login = login

    def token(self) -> str:
        return _token(self._login)


class AioKafka:
    """aiokafka."""

    def round(self, login: Login, topic: str) -> str:
        """See Library."""
        with reported("aiokafka"):
            return asyncio.run(asyncio.wait_for(self._round(login, topic), TIMEOUT_S))

    def session(self, login: Login, topic: str, duration_ms: int) -> int:
        """See Library."""
        with reported("aiokafka"):
            return asyncio.run(self._session(login, topic, duration_ms))

    def close(self) -> None:
        """See Library."""

    async def _round(self, login: Login, topic: str) -> str:
        async with self._producing(login) as producer:
            await producer.send_and_wait(topic, b"from aiokafka")
        async with aiokafka.AIOKafkaConsumer(**self._settings(login)) as consumer:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return str((await consumer.getone()).value, "utf-8")

    async def _session(self, login: Login, topic: str, duration_ms: int) -> int:
        delivered = 0
        end_ms = CLOCK.monotonic_ms() + duration_ms
        async with self._producing(login) as producer:
            while CLOCK.monotonic_ms() < end_ms:
                await producer.send_and_wait(topic, b"x")
                delivered += 1
                await asyncio.sleep(PAUSE_S)
        return delivered

    @contextlib.asynccontextmanager
    async def _producing(self, login: Login) -> Any:
        producer = aiokafka.AIOKafkaProducer(**self._settings(login))
        try:
            await producer.start()
            yield producer
        finally:
            await producer.stop()

    def _settings(self, login: Login) -> dict[str, Any]:
        settings: dict[str, Any] = {"bootstrap_servers": login.bootstrap, "security_protocol": login.protocol}
        if login.has_tls:
            context = ssl.create_default_context(cafile=str(login.ca))
            if login.certificate is not None:
                context.load_cert_chain(login.certificate)
            settings["ssl_context"] = context
        if login.mechanism:
            settings["sasl_mechanism"] = login.mechanism
        if login.mechanism == OAUTHBEARER:
            settings["sasl_oauth_token_provider"] = _AioKafkaTokens(login)
        elif login.mechanism:
            settings |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
        return settings


class _AioKafkaTokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, login: Login) -> None:
        self._login = login

    async def token(self) -> str:
        return _token(self._login)


class Kcat:
    """kcat, a process for each command."""

    def round(self, login: Login, topic: str) -> str:
        """See Library."""
        self._run("-P", *self._arguments(login, topic), stdin="from kcat\n")
        return self._run("-C", *self._arguments(login, topic), "-o", "beginning", "-c", "1", "-q").strip()

    def session(self, login: Login, topic: str, duration_ms: int) -> int:
        """See Library: the process reads its lines one at a time."""
        delivered = 0
        command = [_kcat(), "-P", *self._arguments(login, topic), "-X", "linger.ms=0"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as child:
            assert child.stdin is not None
            end_ms = CLOCK.monotonic_ms() + duration_ms
            while CLOCK.monotonic_ms() < end_ms:
                child.stdin.write("x\n")
                child.stdin.flush()
                delivered += 1
                threading.Event().wait(PAUSE_S)
            output, _ = child.communicate(timeout=TIMEOUT_S)
        if child.returncode:
            raise RefusedError(output)
        return delivered

    def close(self) -> None:
        """See Library."""

    def _run(self, *arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [_kcat(), *arguments], input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode:
            raise RefusedError(done.stderr)
        return done.stdout

    def _arguments(self, login: Login, topic: str) -> list[str]:
        settings = {"security.protocol": login.protocol, "ssl.ca.location": str(login.ca)}
        if login.certificate is not None:
            settings |= {"ssl.certificate.location": str(login.certificate), "ssl.key.location": str(login.certificate)}
        if login.mechanism:
            settings["sasl.mechanism"] = login.mechanism
        if login.mechanism == OAUTHBEARER:
            settings |= {
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": f"principalClaimName={login.unsigned_claim} principal={login.user}",
            }
        elif login.mechanism:
            settings |= {"sasl.username": login.user, "sasl.password": login.password}
        given = [argument for key, value in settings.items() for argument in ("-X", f"{key}={value}")]
        return ["-b", login.bootstrap, "-t", topic, "-p", "0", *given]


def _kcat() -> str:
    program = shutil.which("kcat")
    assert program is not None, "kcat is missing: see `make test-tools`"
    return program


def _token(login: Login) -> str:
    assert login.token is not None
    return login.token.read_text()


@contextlib.contextmanager
def reported(logger: str) -> Iterator[None]:
    """Raise what a library raises as RefusedError, with what it logs: some name the cause only there."""
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    collector = Collector(logging.WARNING)
    logging.getLogger(logger).addHandler(collector)
    try:
        yield
    except Exception as error:
        raise RefusedError("; ".join([f"{type(error).__name__}: {error}", *lines])) from None
    finally:
        logging.getLogger(logger).removeHandler(collector)
