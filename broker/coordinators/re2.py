"""RE2's regular expressions, for names: read, checked, and matched in time linear in the name.

Whatever pattern a client gives is matched here: for names of topics (SubscribedTopicRegex) and transactional ids.

Theory
The expression becomes the program of a non-deterministic automaton. It is run on a name by keeping the set of all
instructions that it may have reached; each set met becomes a state of a deterministic automaton, made when it is
needed and kept, so that a scan of many names soon costs one look-up a character. Python's `re` backtracks: one
expression like (a*)*b could stop a broker. It also knows things that RE2 refuses (look-around, back-references).

Rules
1. The names are known, so a set of characters is a set of those that names have (`Alphabet`); of topics these are 65.
2. A whole name matches or it does not; groups and laziness change nothing.
3. Every cost is bounded beforehand: of reading (`re2_parser.py`), of the program, of what is kept, and of making steps
   (`STEPS_MAX`), so that no pattern holds a thread for more than a second or two, however many names there are.

Source: RE2 syntax as RE2/J 1.8 has it (Kafka's SubscribedTopicRegex, KIP-848); R. Cox, "Regular Expression Matching
in the Wild".
Different from RE2/J: an expression may have 10,000 instructions, nest 200 deep, and take `STEPS_MAX` steps.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.broker.coordinators.re2_parser import (
    NO_CHARS,
    REPEAT_SIZE,
    TOO_DEEP,
    TOPIC_NAMES,
    WORD,
    Alphabet,
    Assertion,
    Chars,
    Choice,
    Node,
    RegexError,
    Repeat,
    Sequence,
    parse,
)

__all__ = ["Alphabet", "Regex", "RegexError", "compile_regex"]

PROGRAM_MAX: Final = 10_000  # instructions
KNOWN_MAX: Final = 200_000  # instructions in all steps that are known; when there are more they are forgotten
STEPS_MAX: Final = 2_000_000  # instructions looked at for all names; a step that is known costs none
TOO_SLOW: Final = "expression takes too many steps"


class Instruction(NamedTuple):
    """Take a character of `chars` and go to the next instruction; or, without, go to all of `then`.

    An assertion ("^", "$", "m^", "m$", "b", "B") has to hold for that. No chars and nothing to go to: the match.
    """

    chars: frozenset[str] = NO_CHARS
    then: tuple[int, ...] = ()
    assertion: str = ""


def compile_regex(text: str, alphabet: Alphabet = TOPIC_NAMES) -> Regex:
    """Read an expression for names of these characters. Raises RegexError."""
    program: list[Instruction] = []
    try:
        _emit(program, parse(text, alphabet))
    except RecursionError:  # repetitions of repetitions nest without a parenthesis: a*(?i)*(?i)*...
        raise RegexError(TOO_DEEP) from None
    program.append(Instruction())
    return Regex(program)


class Regex:
    """A compiled expression. Not for several threads at once."""

    __slots__ = ("_cost", "_known", "_program", "_steps")

    def __init__(self, program: list[Instruction]) -> None:
        self._program = program
        self._steps: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._known = 0
        self._cost = 0  # instructions looked at so far

    def matches(self, name: str) -> bool:
        """Whether the whole name matches. Raises RegexError when this and earlier names took too many steps."""
        state = frozenset({0})
        before = ""
        for char in name:
            state = self._step(state, before, char)
            if not state:
                return False
            before = "a" if char in WORD else "\n" if char == "\n" else "-"  # all that assertions ask
        return len(self._program) - 1 in self._reached(state, before, "")

    def _step(self, state: frozenset[int], before: str, char: str) -> frozenset[int]:
        key = (state, before, char)
        after = self._steps.get(key)
        if after is None:
            reached = self._reached(state, before, char)
            after = frozenset(pc + 1 for pc in reached if char in self._program[pc].chars)
            if self._known > KNOWN_MAX:
                self._known = 0
                self._steps.clear()
            self._known += len(after) + 1
            self._steps[key] = after
        return after

    def _reached(self, state: frozenset[int], before: str, after: str) -> set[int]:
        """Every instruction that can be reached between these two characters without taking one ("": no character)."""
        reached = set(state)
        waiting = list(state)
        while waiting:
            instruction = self._program[waiting.pop()]
            if instruction.assertion and not _holds(instruction.assertion, before, after):
                continue
            for pc in instruction.then:
                if pc not in reached:
                    reached.add(pc)
                    waiting.append(pc)
        self._cost += len(reached)
        if self._cost > STEPS_MAX:
            raise RegexError(TOO_SLOW)
        return reached


LINE_ENDS: Final = frozenset({"", "\n"})


def _holds(assertion: str, before: str, after: str) -> bool:
    if assertion == "^":
        return not before
    if assertion == "$":
        return not after
    if assertion == "m^":
        return before in LINE_ENDS
    if assertion == "m$":
        return after in LINE_ENDS
    is_boundary = (before in WORD) != (after in WORD)
    return is_boundary == (assertion == "b")


def _emit(program: list[Instruction], node: Node) -> None:
    """Append the instructions of a part; what comes after it follows them."""
    if len(program) >= PROGRAM_MAX:
        raise RegexError(REPEAT_SIZE)
    if isinstance(node, Chars):
        program.append(Instruction(node.chars))
    elif isinstance(node, Assertion):
        program.append(Instruction(then=(len(program) + 1,), assertion=node.kind))
    elif isinstance(node, Sequence):
        for part in node.parts:
            _emit(program, part)
    elif isinstance(node, Choice):
        _emit_choice(program, node)
    else:
        _emit_repeat(program, node)


def _emit_choice(program: list[Instruction], node: Choice) -> None:
    start = len(program)
    program.append(Instruction())
    starts, ends = [], []
    for branch in node.branches:
        starts.append(len(program))
        _emit(program, branch)
        ends.append(len(program))
        program.append(Instruction())
    program[start] = Instruction(then=tuple(starts))
    for end in ends:
        program[end] = Instruction(then=(len(program),))


def _emit_repeat(program: list[Instruction], node: Repeat) -> None:
    for _ in range(node.least):
        before = len(program)
        _emit(program, node.part)
        if len(program) == before:
            return  # nothing, however often
    if node.most is None:
        start = len(program)
        program.append(Instruction())
        _emit(program, node.part)
        program.append(Instruction(then=(start,)))
        program[start] = Instruction(then=(start + 1, len(program)))
        return
    skips = []
    for _ in range(node.most - node.least):
        skips.append(len(program))
        program.append(Instruction())
        _emit(program, node.part)
    for skip in skips:
        program[skip] = Instruction(then=(skip + 1, len(program)))
