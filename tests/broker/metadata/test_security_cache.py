"""SecurityCache: pushes change it, late ones do not, and listeners hear of it in order."""

from __future__ import annotations

import pytest

from barnabas.broker.metadata.security_cache import SecurityCache
from barnabas.protocol.metadata_records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from barnabas.protocol.push_tags import FULL
from barnabas.security.image import Kind, SecurityImage, quota_record
from barnabas.security.values import QuotaEntity
from tests.support.broker.broker_rig import PUSH_OFFSET, BrokerRig, registration

QUOTA = quota_record(QuotaEntity.of({"user": "alice"}), "producer_byte_rate", 1024.0)


def user(name: str) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name, mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )


class Heard:
    """A listener that notes what it is told."""

    def __init__(self, cache: SecurityCache) -> None:
        self.calls: list[tuple[SecurityImage, frozenset[Kind]]] = []
        cache.on_change(lambda image, kinds: self.calls.append((image, kinds)))

    def take(self) -> list[frozenset[Kind]]:
        calls, self.calls = self.calls, []
        return [kinds for _, kinds in calls]


def users(cache: SecurityCache) -> list[str]:
    return [key.user for key in cache.image.credentials]


def test_a_full_push_replaces_everything() -> None:
    cache = SecurityCache()
    assert not cache.is_loaded
    cache.apply([user("alice"), QUOTA], 1, is_full=True)
    assert cache.is_loaded
    cache.apply([user("bob")], 2, is_full=True)
    assert users(cache) == ["bob"]
    assert cache.image.quotas == {}


def test_another_push_changes_what_it_names() -> None:
    cache = SecurityCache()
    cache.apply([user("alice"), user("bob")], 1, is_full=True)
    before = cache.image
    cache.apply([RemoveUserScramCredentialRecord(name="alice", mechanism=1), QUOTA], 2, is_full=False)
    assert users(cache) == ["bob"]
    assert len(before.credentials) == 2


@pytest.mark.parametrize("is_full", [True, False])
def test_what_is_older_is_ignored(is_full: bool) -> None:
    cache = SecurityCache()
    cache.apply([], 7, is_full=True)  # from the registration's response: a later state than that of the push
    cache.apply([user("revoked")], 6, is_full=is_full)
    assert users(cache) == []
    cache.apply([user("alice")], 7, is_full=is_full)
    assert users(cache) == ["alice"]


def test_credentials_of_an_earlier_process_count_until_the_metadata_arrives() -> None:
    cache = SecurityCache()
    cache.remember([user("node"), QUOTA])
    assert (users(cache), cache.image.quotas, cache.is_loaded) == (["node"], {}, False)
    cache.apply([user("alice")], 1, is_full=True)
    assert users(cache) == ["alice"]
    cache.remember([user("node")])
    assert users(cache) == ["alice"]


def test_listeners_are_told_what_changed() -> None:
    cache = SecurityCache()
    heard = Heard(cache)
    cache.apply([], 1, is_full=True)
    assert heard.take() == [frozenset(Kind)]
    cache.apply([user("alice")], 2, is_full=False)
    assert heard.calls[0][0] is cache.image
    assert heard.take() == [{Kind.CREDENTIALS}]
    cache.apply([user("alice")], 3, is_full=True)
    cache.apply([], 4, is_full=False)
    assert heard.take() == []
    cache.apply([user("alice"), QUOTA], 5, is_full=True)
    assert heard.take() == [{Kind.QUOTAS}]


@pytest.fixture
def rig() -> BrokerRig:
    return BrokerRig()


def push(rig: BrokerRig, *records: MetadataRecord, offset: int = PUSH_OFFSET, type_: int = 1) -> None:
    message = rig.update_metadata({}, type_=type_, registrations=records, offset=offset)  # type: ignore[arg-type]
    assert rig.answer(message, 8).error_code == 0


def test_pushes_fill_the_cache_of_a_broker(rig: BrokerRig) -> None:
    push(rig, user("early"))
    push(rig, registration(1), user("alice"), QUOTA, type_=FULL)
    assert users(rig.security) == ["alice"]
    assert list(rig.cache.snapshot.registrations) == [1]
    push(rig, RemoveUserScramCredentialRecord(name="alice", mechanism=1), offset=PUSH_OFFSET + 1)
    assert users(rig.security) == []
    assert len(rig.security.image.quotas) == 1
    assert list(rig.cache.snapshot.registrations) == [1]


def test_a_late_push_gives_no_right_back(rig: BrokerRig) -> None:
    push(rig, offset=PUSH_OFFSET + 2, type_=FULL)
    push(rig, user("revoked"), offset=PUSH_OFFSET + 1)
    assert users(rig.security) == []


def test_a_full_push_keeps_the_configs_of_its_other_half(rig: BrokerRig) -> None:
    before = rig.dynamic_config.version
    push(rig, user("alice"), type_=FULL)
    assert rig.dynamic_config.version == before


def test_a_listener_that_failed_hears_of_the_change_when_the_push_comes_again() -> None:
    """The push fails, so the controller sends it again; by then the image has it already."""
    cache = SecurityCache()
    failures = [RuntimeError("a bug")]

    def fail_once(*_: object) -> None:
        if cache.image.quotas and failures:
            raise failures.pop()

    cache.on_change(fail_once)
    heard = Heard(cache)
    cache.apply([user("alice")], 1, is_full=True)
    heard.take()
    with pytest.raises(RuntimeError):
        cache.apply([QUOTA], 2, is_full=False)
    assert heard.take() == []
    cache.apply([user("alice"), QUOTA], 2, is_full=True)
    assert heard.take() == [frozenset({Kind.QUOTAS})]
    cache.apply([user("alice"), QUOTA], 3, is_full=True)
    assert heard.take() == []


def test_what_changed_is_nothing_before_everything_has_come() -> None:
    """Else the cluster would seem to have no other ACLs and users."""
    cache = SecurityCache()
    cache.apply([QUOTA], 5, is_full=False)
    assert not cache.is_loaded
    cache.apply([user("alice"), QUOTA], 4, is_full=True)
    assert users(cache) == ["alice"]
