"""What a checker knows of wrong answers, and what it says of one."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """What people get wrong: a function (or a value, or a zero-argument function computing it), its name, the undoing question."""

    wrong: object
    message: str
    question: str


@dataclass
class Verdict:
    """state: not attempted | correct | mistake | slip | wrong | error. mistake: its index in the exercise's list. slip: no listed
    mistake, but what comes out when the reference is written wrongly in a usual way."""

    state: str
    text: str
    mistake: int | None = None
