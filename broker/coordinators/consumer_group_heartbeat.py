"""Turns of members that speak the consumer protocol: heartbeats, leaving, silence, regular expressions. Pure.

A heartbeat joins (epoch 0), goes on (the member's epoch), leaves (-1), or leaves for a while (-2: a static member that
will be back keeps its partitions). A member whose answer was lost may repeat its last epoch as long as it owns nothing
that it was not given; any other epoch fences it: it has to give up everything and join again.

Source: Kafka's GroupMetadataManager (4.3): consumerGroupHeartbeat, consumerGroupLeave, maybeUpdateRegularExpressions,
handleRegularExpressionsResult.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from barnabas.broker.coordinators import consumer_group_types as t
from barnabas.broker.coordinators.consumer_group_turn import REGEX_REFRESH_MIN_MS, Turn
from barnabas.broker.coordinators.consumer_group_types import Heartbeat, HeartbeatResult, Member, ResolvedRegex
from barnabas.broker.coordinators.re2 import RegexError, compile_regex
from barnabas.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("barnabas.group")


class HeartbeatTurn(Turn):
    """One turn; call one of the public methods, once. All raise ApiError."""

    def heartbeat(self, request: Heartbeat) -> HeartbeatResult:
        """Take a heartbeat of a member that joins or goes on."""
        self._check_room(request.member_id)
        before = self._identify(request)
        after = _updated(before, request)
        are_names_changed = self._write_member(before, after)
        is_regex_changed, is_resolved = self._take_regex(before, after)
        epoch = self._raise_epoch(before, after, are_names_changed or is_resolved)
        target_epoch, target = self._assign(epoch, after)
        after = self._reconcile(
            after, target_epoch, target, request.owned, is_changed=are_names_changed or is_regex_changed
        )
        self._start_session(after.member_id, self.situation.times.session_timeout_ms)
        is_told = request.epoch == t.JOIN_EPOCH or request.is_full or after.assigned != before.assigned
        interval_ms = self.situation.times.heartbeat_interval_ms
        return HeartbeatResult(after.member_id, after.epoch, interval_ms, after.assigned if is_told else None)

    def leave(self, request: Heartbeat) -> HeartbeatResult:
        """Let a member go."""
        if request.instance_id is None:
            member = self.group.member(request.member_id)
        else:
            member = self._static_member(request.instance_id, request.member_id)
            if request.epoch == t.STATIC_LEAVE_EPOCH:
                return self._leave_for_a_while(member)
        log.info("Member %s left consumer group %s", member.member_id, self.group.group_id)
        self._fence([member])
        return HeartbeatResult(member.member_id, request.epoch)

    def expire(self, event: t.GroupEvent) -> None:
        """A timer ran out: the member is removed, unless it has done meanwhile what it had to."""
        member = self.group.members.get(event.member_id)
        if member is None:
            return
        if isinstance(event, t.RevocationExpired):
            if member.epoch != event.epoch:
                return
            why = f"it did not leave epoch {event.epoch} within {event.timeout_ms} ms"
        else:
            why = event.why
        log.info("Member %s of consumer group %s is removed: %s", member.member_id, self.group.group_id, why)
        self._fence([member])

    def take_resolved(self, resolved: Mapping[str, ResolvedRegex]) -> None:
        """Regular expressions were matched with all topics."""
        group = self.group
        names = Counter(group.topic_names)
        is_changed = False
        for regex, now in resolved.items():
            if not group.regexes[regex]:
                continue  # everybody who asked is gone
            before = group.resolved_regexes.get(regex, t.NO_TOPICS)
            names.subtract(before.topics)
            names.update(now.topics)
            is_changed = is_changed or before.topics != now.topics
            self.records.append(t.RegexTopics(regex, now))
        self._epoch_after(+names, is_changed)

    def watch_members(self) -> None:
        """The group was loaded or taken over: members have the whole time to be heard of, and to revoke."""
        for member in self.group.members.values():
            if member.classic is not None:
                self._start_session(member.member_id, member.classic.session_timeout_ms)
                continue
            self._start_session(member.member_id, self.situation.times.session_timeout_ms)
            if member.state is t.MemberState.UNREVOKED_PARTITIONS:
                self._watch_revocation(member)

    # Who it is

    def _identify(self, request: Heartbeat) -> Member:
        """The member, a new one if it joins."""
        is_joining = request.epoch == t.JOIN_EPOCH
        if request.instance_id is not None:
            return self._identify_static(request, request.instance_id)
        if is_joining and request.member_id not in self.group.members:
            return Member(request.member_id)
        member = self.group.member(request.member_id)
        _check_epoch(member, request)
        return member

    def _identify_static(self, request: Heartbeat, instance_id: str) -> Member:
        if request.epoch != t.JOIN_EPOCH:
            member = self._static_member(instance_id, request.member_id)
            _check_epoch(member, request)
            return member
        existing = self.group.static_member(instance_id)
        if existing is None:
            return self.group.members.get(request.member_id) or Member(request.member_id)
        if not existing.uses_classic_protocol and existing.epoch != t.STATIC_LEAVE_EPOCH:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {instance_id} cannot join the group because the"
                f" instance id is owned by {existing.member_id} member.",
            )
        return self._replace_static(existing, request.member_id)

    def _leave_for_a_while(self, member: Member) -> HeartbeatResult:
        """Keep its place and its partitions for when it is back; its session goes on."""
        kept = t.with_epochs(t.without_epochs(member.assigned), 0)
        away = replace(member, epoch=t.STATIC_LEAVE_EPOCH, assigned=kept, pending_revocation={})
        self.records.append(t.CurrentAssignment(member.member_id, away))
        return HeartbeatResult(member.member_id, t.STATIC_LEAVE_EPOCH)

    # Regular expressions

    def _take_regex(self, before: Member, after: Member) -> tuple[bool, bool]:
        """Look after the member's regular expression; tells whether it changed, and what it stands for is known."""
        old, new = before.topic_regex, after.topic_regex
        is_changed = old != new
        is_known = False
        is_first = False
        if is_changed:
            if old and self.group.regexes[old] == 1:
                self.records.append(t.RegexTopics(old, None))
            if new:
                is_first = not self.group.regexes[new]
                is_known = not is_first and new in self.group.resolved_regexes
                if is_first:
                    _check_regex(new)
            else:
                is_known = bool(old)
        self._maybe_match(before, after, is_first)
        return is_changed, is_known

    def _maybe_match(self, before: Member, after: Member, is_first: bool) -> None:
        """Have the group's regular expressions matched if that is due: new ones, new topics, or long ago."""
        group, situation = self.group, self.situation
        if not (is_first or group.regexes) or group.is_resolving:
            return
        resolved = group.resolved_regexes.values()
        last_ms = max((one.timestamp_ms for one in resolved), default=None)
        if last_ms is not None and situation.now_ms <= last_ms + REGEX_REFRESH_MIN_MS:
            return
        regexes = Counter(group.regexes)
        if before.topic_regex:
            regexes[before.topic_regex] -= 1
        if after.topic_regex:
            regexes[after.topic_regex] += 1
        wanted = frozenset(+regexes)
        is_due = (
            is_first
            or len(wanted) != len(group.resolved_regexes)
            or max((one.version for one in resolved), default=0) < situation.picture.creation
            or (last_ms is not None and situation.now_ms > last_ms + situation.settings.regex_refresh_ms)
        )
        if is_due:
            self.regexes_wanted = wanted


def _updated(member: Member, request: Heartbeat) -> Member:
    """The member with what the request says; what it does not say stays. It speaks the consumer protocol now."""
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        topic_names=member.topic_names if request.topic_names is None else request.topic_names,
        topic_regex=member.topic_regex if request.topic_regex is None else request.topic_regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


def _check_epoch(member: Member, request: Heartbeat) -> None:
    """Raise ApiError(FENCED_MEMBER_EPOCH) unless the epoch is the member's, or its last one and it has no more."""
    epoch = request.epoch
    if epoch in (t.JOIN_EPOCH, member.epoch):
        return
    if epoch == member.previous_epoch < member.epoch and _is_within(request.owned, member.assigned):
        return
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'greater' if epoch > member.epoch else 'smaller'} member epoch ({epoch})"
        f" than the one known by the group coordinator ({member.epoch}). The member must abandon all its partitions and"
        " rejoin.",
    )


def _is_within(owned: t.Assignment | None, assigned: t.Owned) -> bool:
    return owned is not None and t.partitions_of(owned) <= t.partitions_of(assigned)


def _check_regex(regex: str) -> None:
    try:
        compile_regex(regex)
    except RegexError as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from None
