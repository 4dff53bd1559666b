"""Turns of members that speak the consumer protocol: heartbeats, leaving, expired timers, expressions. Pure.

The epoch of a heartbeat says what it does: 0 joins, the member's own epoch continues, -1 leaves, and -2 leaves
temporarily (a static member that will return keeps its partitions). A member whose answer was lost may repeat its
previous epoch, as long as it owns nothing beyond its assignment. Any other epoch fences the member: it must abandon
its partitions and join again.

Source: Kafka's GroupMetadataManager (4.3): consumerGroupHeartbeat, consumerGroupLeave, maybeUpdateRegularExpressions,
handleRegularExpressionsResult.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from barnabas.broker.coordinators.consumer import values as v
from barnabas.broker.coordinators.consumer.turn import REGEX_REFRESH_MIN_MS, Turn
from barnabas.broker.coordinators.consumer.values import Heartbeat, HeartbeatResult, Member, ResolvedRegex
from barnabas.broker.coordinators.regex.pattern import PatternError, check_pattern
from barnabas.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("barnabas.group")


class HeartbeatTurn(Turn):
    """One turn: call one of the public methods, once. All raise ApiError."""

    def heartbeat(self, request: Heartbeat) -> HeartbeatResult:
        """Handle the heartbeat of a member that joins or continues."""
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
        self._start_session(after.member_id, self.environment.times.session_timeout_ms)
        is_sent = request.epoch == v.JOIN_EPOCH or request.is_full or after.assigned != before.assigned
        interval_ms = self.environment.times.heartbeat_interval_ms
        return HeartbeatResult(after.member_id, after.epoch, interval_ms, after.assigned if is_sent else None)

    def leave(self, request: Heartbeat) -> HeartbeatResult:
        """Handle a leaving member."""
        if request.instance_id is None:
            member = self.group.member(request.member_id)
        else:
            member = self._static_member(request.instance_id, request.member_id)
            if request.epoch == v.STATIC_LEAVE_EPOCH:
                return self._leave_temporarily(member)
        log.info("Member %s left consumer group %s", member.member_id, self.group.group_id)
        self._fence([member])
        return HeartbeatResult(member.member_id, request.epoch)

    def expire(self, event: v.GroupEvent) -> None:
        """Handle an expired timer: the member is removed, unless it has met the deadline."""
        member = self.group.members.get(event.member_id)
        if member is None:
            return
        if isinstance(event, v.RevocationExpired):
            if member.epoch != event.epoch:
                return
            reason = f"it did not leave epoch {event.epoch} within {event.timeout_ms} ms"
        else:
            reason = event.reason
        log.info("Member %s of consumer group %s is removed: %s", member.member_id, self.group.group_id, reason)
        self._fence([member])

    def take_resolved(self, resolved: Mapping[str, ResolvedRegex]) -> None:
        """Apply the result of matching the regular expressions with all topics."""
        group = self.group
        names = Counter(group.topic_names)
        is_changed = False
        for regex, now in resolved.items():
            if not group.regexes[regex]:
                continue  # no member is subscribed any more
            before = group.resolved_regexes.get(regex, v.NO_TOPICS)
            names.subtract(before.topics)
            names.update(now.topics)
            is_changed = is_changed or before.topics != now.topics
            self.records.append(v.RegexTopics(regex, now))
        self._epoch_after(+names, is_changed)

    def watch_members(self) -> None:
        """Start the timers of a loaded or upgraded group: every member gets its full timeouts."""
        for member in self.group.members.values():
            if member.classic is not None:
                self._start_session(member.member_id, member.classic.session_timeout_ms)
                continue
            self._start_session(member.member_id, self.environment.times.session_timeout_ms)
            if member.state is v.MemberState.UNREVOKED_PARTITIONS:
                self._watch_revocation(member)

    # Identity

    def _identify(self, request: Heartbeat) -> Member:
        """Return the member; a new one if it joins."""
        is_joining = request.epoch == v.JOIN_EPOCH
        if request.instance_id is not None:
            return self._identify_static(request, request.instance_id)
        if is_joining and request.member_id not in self.group.members:
            return Member(request.member_id)
        member = self.group.member(request.member_id)
        _check_epoch(member, request)
        return member

    def _identify_static(self, request: Heartbeat, instance_id: str) -> Member:
        if request.epoch != v.JOIN_EPOCH:
            member = self._static_member(instance_id, request.member_id)
            _check_epoch(member, request)
            return member
        existing = self.group.static_member(instance_id)
        if existing is None:
            return self.group.members.get(request.member_id) or Member(request.member_id)
        if not existing.uses_classic_protocol and existing.epoch != v.STATIC_LEAVE_EPOCH:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {instance_id} cannot join the group because the"
                f" instance id is owned by {existing.member_id} member.",
            )
        return self._replace_static(existing, request.member_id)

    def _leave_temporarily(self, member: Member) -> HeartbeatResult:
        """Keep a static member and its partitions until it returns or its session expires."""
        kept = v.with_epochs(v.without_epochs(member.assigned), 0)
        away = replace(member, epoch=v.STATIC_LEAVE_EPOCH, assigned=kept, pending_revocation={})
        self.records.append(v.CurrentAssignment(member.member_id, away))
        return HeartbeatResult(member.member_id, v.STATIC_LEAVE_EPOCH)

    # Regular expressions

    def _take_regex(self, before: Member, after: Member) -> tuple[bool, bool]:
        """Handle a change of the member's regular expression; returns (it changed, its topics are known)."""
        old, new = before.topic_regex, after.topic_regex
        is_changed = old != new
        is_known = False
        is_first = False
        if is_changed:
            if old and self.group.regexes[old] == 1:
                self.records.append(v.RegexTopics(old, None))
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
        """Request matching when it is due: there is a new expression, a new topic, or the last match is old."""
        group, environment = self.group, self.environment
        if not (is_first or group.regexes) or group.is_resolving:
            return
        resolved = group.resolved_regexes.values()
        last_ms = max((one.timestamp_ms for one in resolved), default=None)
        if last_ms is not None and environment.now_ms <= last_ms + REGEX_REFRESH_MIN_MS:
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
            or max((one.version for one in resolved), default=0) < environment.image.creation
            or (last_ms is not None and environment.now_ms > last_ms + environment.settings.regex_refresh_ms)
        )
        if is_due:
            self.regexes_wanted = wanted


def _updated(member: Member, request: Heartbeat) -> Member:
    """Return the member with the fields that the request sets. It speaks the consumer protocol from now on."""
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
    """Raise ApiError(FENCED_MEMBER_EPOCH) unless the epoch is valid; see the module."""
    epoch = request.epoch
    if epoch in (v.JOIN_EPOCH, member.epoch):
        return
    if epoch == member.previous_epoch < member.epoch and _is_within(request.owned, member.assigned):
        return
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'greater' if epoch > member.epoch else 'smaller'} member epoch ({epoch})"
        f" than the one known by the group coordinator ({member.epoch}). The member must abandon all its partitions and"
        " rejoin.",
    )


def _is_within(owned: v.Assignment | None, assigned: v.Owned) -> bool:
    return owned is not None and v.partitions_of(owned) <= v.partitions_of(assigned)


def _check_regex(regex: str) -> None:
    try:
        check_pattern(regex)
    except PatternError as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from None
