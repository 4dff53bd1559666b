"""Where a node gets its token."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from barnabas.common.clock import FakeClock
from barnabas.security.sasl.mechanism import AuthenticationError
from barnabas.security.sasl.oauthbearer.login import (
    Backoff,
    ClientCredentials,
    ProviderTokens,
    Refresh,
    token_of_file,
)
from barnabas.security.sasl.oauthbearer.web import Web, WebError

URL = "https://provider/token"
DAY_MS = 86_400_000


class Provider:
    """Answers with one token after another, or with what is in `answers`."""

    def __init__(self, lifetime_s: int = 1000) -> None:
        self.clock = FakeClock()
        self.requests: list[tuple[str, str, str]] = []
        self.answers: list[bytes | Exception] = []
        self._lifetime_s = lifetime_s

    def read(self, url: str, data: bytes, headers: Mapping[str, str]) -> bytes:
        self.requests.append((url, headers["Authorization"], data.decode()))
        if not self.answers:
            return json.dumps({"access_token": f"t{len(self.requests)}", "expires_in": self._lifetime_s}).encode()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def tokens(self, scope: str | None = "a b", **more: object) -> ProviderTokens:
        settings = {"refresh": Refresh(), "backoff": Backoff(), "chance": lambda: 0.0, **more}
        return ProviderTokens(URL, ClientCredentials("id", "s3cret", scope), self.clock, self.read, **settings)  # type: ignore[arg-type]


def test_tokens_of_a_provider_are_used_until_they_grow_old() -> None:
    provider = Provider(lifetime_s=1000)
    tokens = provider.tokens()
    assert [tokens(), tokens()] == ["t1", "t1"]
    provider.clock.advance_ms(699_999)  # 300 s before the end, which is earlier than 80 %
    assert tokens() == "t1"
    provider.clock.advance_ms(1)
    assert tokens() == "t2"
    assert provider.requests[0] == (URL, "Basic aWQ6czNjcmV0", "grant_type=client_credentials&scope=a+b")
    assert "s3cret" not in repr(ClientCredentials("id", "s3cret", None))


def test_a_failure_is_not_repeated_at_once() -> None:
    provider = Provider()
    provider.answers = [WebError("down")] * 3
    tokens = provider.tokens(backoff=Backoff(100, 150))
    for pause_ms, count in ((100, 1), (150, 2), (150, 3)):
        for _ in range(2):
            with pytest.raises(AuthenticationError, match="the provider gave no token: down"):
                tokens()
        assert len(provider.requests) == count
        provider.clock.advance_ms(pause_ms)
    assert tokens() == "t4"


def test_a_failure_does_not_replace_the_token_of_another_thread() -> None:
    provider = Provider()
    tokens = provider.tokens()
    answer = provider.read

    def fail_after_another_thread(url: str, data: bytes, headers: Mapping[str, str]) -> bytes:
        tokens._read = answer
        assert tokens() == "t1"
        raise WebError("down")

    tokens._read = fail_after_another_thread
    assert tokens() == "t1"


def test_a_token_that_is_valid_bridges_a_failure() -> None:
    provider = Provider(lifetime_s=1000)
    tokens = provider.tokens()
    assert tokens() == "t1"
    provider.answers = [WebError("down")] * 100
    provider.clock.advance_ms(999_999)
    assert tokens() == "t1"
    provider.clock.advance_ms(1)
    with pytest.raises(AuthenticationError, match="down"):
        tokens()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"access_token": 5}',
        b'{"access_token": ""}',
        b'{"access_token": "t", "expires_in": 0}',
        b'{"access_token": "t", "expires_in": -5}',
        b'{"access_token": "t", "expires_in": Infinity}',
        b'{"access_token": "t", "expires_in": NaN}',
        b"[" * 100_000,
    ],
)
def test_a_provider_without_a_token(body: bytes) -> None:
    provider = Provider()
    provider.answers = [body]
    with pytest.raises(AuthenticationError, match=r"the provider gave no token: .") as caught:
        provider.tokens()()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("refresh", "lifetime_ms", "chance", "after_ms"),
    [
        (Refresh(0.8, 0.0, 0, 0), 1000, 0.0, 800),
        (Refresh(0.8, 0.1, 0, 0), 1000, 0.5, 850),
        (Refresh(0.8, 0.0, 0, 300), DAY_MS, 0.0, DAY_MS * 0.8),
        (Refresh(0.8, 0.0, 0, 300), 1_000_000, 0.0, 700_000),  # the buffer
        (Refresh(0.5, 0.0, 600, 300), 1_000_000, 0.0, 600_000),  # the least period
        (Refresh(0.8, 0.0, 60, 300), 359_000, 0.0, 287_200),  # too short for both
        (Refresh(5.0, 0.0, 0, 0), 1000, 0.0, 1000),
        (Refresh(-1.0, 0.0, 0, 0), 1000, 0.0, 0),
    ],
)
def test_when_a_token_is_replaced(refresh: Refresh, lifetime_ms: int, chance: float, after_ms: float) -> None:
    assert refresh.after_ms(lifetime_ms, chance) == pytest.approx(after_ms)


def test_pauses_grow_to_their_bound() -> None:
    backoff = Backoff(100, 1000)
    assert [backoff.pause_ms(failures) for failures in (1, 2, 3, 4, 5, 1000)] == [100, 200, 400, 800, 1000, 1000]


def test_a_token_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(" abc\n")
    assert token_of_file(path.as_uri(), Web().read) == "abc"
    with pytest.raises(AuthenticationError, match="there is no token"):
        token_of_file((tmp_path / "none").as_uri(), Web().read)
