"""Our cron evaluator against cronsim and croniter, over random expressions.

Where an oracle reads the same text differently, a named rule rewrites the text into what the oracle
needs to mean the same. Nothing else may differ, and every rule must be necessary: for some expression
the oracle's result differs without it.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from croniter import CroniterError, croniter
from cronsim import CronSim, CronSimError

from bedrockjobs.schedule.cron import BadSchedule, next_tick
from tests.effort import examples

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]

EXPRESSIONS = examples(2_500, night=21_000)
PLAIN_EACH = examples(3, night=1)
"""One of so many expressions is compared that an oracle reads as we do; with a rule, each one is."""

TICKS = 2
"""Ticks in a row that are compared for each expression."""

Fields = tuple[str, str, str, str, str, str]
"""Second, minute, hour, day of month, month, day of week."""


def _terms(change: Callable[[str], str], *places: int) -> Callable[[Fields], Fields]:
    """Apply a change to every term of the fields at these places."""

    def rewrite(fields: Fields) -> Fields:
        found = list(fields)
        for place in places or range(6):
            found[place] = ",".join(change(term) for term in found[place].split(","))
        return found[0], found[1], found[2], found[3], found[4], found[5]

    return rewrite


def _number(text: str) -> int:
    return WEEKDAYS.index(text.upper()) if text.upper() in WEEKDAYS else int(text)


def _step_restricts(fields: Fields) -> Fields:
    if fields[3] == "*" or fields[5] == "*":
        return fields
    return _terms(lambda term: re.sub(r"^\*", "0-6", term), 5)(
        _terms(lambda term: re.sub(r"^\*", "1-31", term), 3)(fields)
    )


def _open_list(fields: Fields) -> Fields:
    found = ["*" if "*" in field.split(",") else field for field in fields]
    return found[0], found[1], found[2], found[3], found[4], found[5]


def _until_saturday(term: str) -> str:
    if match := re.fullmatch(r"([0-9A-Z]+)/([0-9]+)", term):
        start = _number(match[1])
        return f"{start}-6/{match[2]}" if start < 6 else str(start)
    return term


def _one_value(term: str) -> str:
    return re.sub(r"^([0-9A-Z]+)-\1(/[0-9]+)?$", r"\1", term)


def _number_before_last(term: str) -> str:
    return re.sub(r"^([A-Z]+)L$", lambda match: f"{_number(match[1])}L", term)


def _last_before(term: str) -> str:
    return re.sub(r"^([0-9A-Z]+)L$", lambda match: f"L{_number(match[1]) % 7}", term)


@dataclass
class Rule:
    """One difference in how an oracle reads a text."""

    name: str
    rewrite: Callable[[Fields], Fields]


OPEN_LIST = Rule("a list that holds * leaves its field open", _open_list)
STEP_RESTRICTS = Rule(
    "*/n restricts a day field like any other value: either field is enough", _step_restricts
)
UNTIL_SATURDAY = Rule("x/n in day-of-week ends with Saturday", _terms(_until_saturday, 5))
ONE_VALUE = Rule("x-x is x, with and without a step", _terms(_one_value))
SUNDAY_LAST = Rule(
    "a range of weekdays may end with SUN", _terms(lambda term: re.sub("(?<=.)-SUN", "-7", term), 5)
)
NAMED_LAST = Rule("a name may stand before L", _terms(_number_before_last, 5))
LAST_BEFORE = Rule("the last Friday is 5L, not L5", _terms(_last_before, 5))


@dataclass
class Oracle:
    """Another evaluator, and the rules that rewrite texts for it."""

    name: str
    rules: list[Rule]
    ask: Callable[[Fields, datetime], datetime | None]
    knows: Callable[[Fields], bool]


def _ask_cronsim(fields: Fields, after: datetime) -> datetime | None:
    try:
        return next(CronSim(" ".join(fields), after))
    except (CronSimError, RuntimeError, StopIteration):
        return None


def _ask_croniter(fields: Fields, after: datetime) -> datetime | None:
    try:
        found = croniter(" ".join(fields), after, second_at_beginning=True).get_next(datetime)
    except CroniterError:
        return None
    assert isinstance(found, datetime)
    return found


def _croniter_knows(fields: Fields) -> bool:
    """Skip what croniter cannot express: it intersects ``#``, ``L`` and ``W`` with the other field."""
    month_day, week_day = fields[3], fields[5]
    if re.search("[#L]", week_day):
        return month_day == "*" and all(re.search("[#L]", term) for term in week_day.split(","))
    if "W" in month_day:
        # It moves 31W to the end of a shorter month; for us and gorhill there is none in such a month.
        return week_day == "*" and bool(re.fullmatch("([1-9]|1[0-9]|2[0-8])W", month_day))
    return True


CRONSIM = Oracle(
    "cronsim",
    [OPEN_LIST, STEP_RESTRICTS, ONE_VALUE, UNTIL_SATURDAY, SUNDAY_LAST, NAMED_LAST],
    _ask_cronsim,
    lambda fields: not re.search("[0-9]W", fields[3]),
)
CRONITER = Oracle(
    "croniter",
    [OPEN_LIST, STEP_RESTRICTS, ONE_VALUE, UNTIL_SATURDAY, LAST_BEFORE],
    _ask_croniter,
    _croniter_knows,
)


class Writer:
    """Writes random expressions."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def fields(self) -> Fields:
        """Return the fields of one expression."""
        return (
            "0" if self._random.random() < 0.8 else self._field(0, 59),
            self._field(0, 59),
            self._field(0, 23),
            self._field(1, 31, special=self._month_day),
            self._field(1, 12, MONTHS, often=0.6),
            self._field(0, 7, WEEKDAYS, special=self._week_day, often=0.5),
        )

    def moment(self) -> datetime:
        """Return a random start time."""
        return datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=self._random.randrange(10 * 365 * 86400))

    def _field(
        self,
        low: int,
        high: int,
        names: list[str] | None = None,
        special: Callable[[], str] | None = None,
        often: float = 0.4,
    ) -> str:
        if self._random.random() < often:
            return "*"
        if special and self._random.random() < 0.15:
            return special()
        count = self._random.choice((1, 1, 1, 2, 3))
        terms = [self._term(low, high, names or []) for _ in range(count)]
        if count > 1 and self._random.random() < 0.03:
            terms.append("*")
        return ",".join(terms)

    def _term(self, low: int, high: int, names: list[str]) -> str:
        kind = self._random.random()
        if kind < 0.5:
            return self._value(low, high, names)
        if kind < 0.6:
            return f"*/{self._random.randint(1, high)}"
        if kind < 0.7:
            return f"{self._value(low, high, names)}/{self._random.randint(1, high)}"
        if names is WEEKDAYS and kind < 0.72:
            return f"{self._random.choice(WEEKDAYS[1:])}-SUN"
        first, last = sorted((self._random.randint(low, high), self._random.randint(low, high)))
        return f"{first}-{last}" + (f"/{self._random.randint(1, high)}" if kind < 0.82 else "")

    def _value(self, low: int, high: int, names: list[str]) -> str:
        value = self._random.randint(low, high)
        named = self._random.random() < 0.3 and value - low < len(names)
        return names[value - low] if named else str(value)

    def _month_day(self) -> str:
        day = self._random.randint(1, 31)
        return self._random.choice(("L", "LW", "L,LW", f"{day}W", f"{day},L"))

    def _week_day(self) -> str:
        day, other = self._value(0, 7, WEEKDAYS), self._random.randint(0, 6)
        place = self._random.randint(1, 5)
        return self._random.choice(
            (f"{day}#{place}", f"{day}L", f"{day}#{place},{other}L", f"{other},{day}L")
        )


def _ours(fields: Fields, after: datetime) -> datetime | None:
    try:
        return next_tick(" ".join(fields), after)
    except BadSchedule:
        return None


def _answers(
    ask: Callable[[Fields, datetime], datetime | None], fields: Fields, after: datetime
) -> Iterator[str]:
    at: datetime | None = after
    for _ in range(TICKS):
        if at is not None:
            at = ask(fields, at)
        yield str(at)


@pytest.mark.parametrize("oracle", [CRONSIM, CRONITER], ids=lambda oracle: oracle.name)
def test_random_expressions(oracle: Oracle) -> None:
    writer = Writer(seed=20_240_101)
    asked, fired = 0, 0
    used: Counter[str] = Counter()
    needed: set[str] = set()
    while asked < EXPRESSIONS:
        fields, after = writer.fields(), writer.moment()
        if not oracle.knows(fields):
            continue
        asked += 1
        ours = list(_answers(_ours, fields, after))
        fired += ours[0] != "None"
        rewritten = fields
        for rule in oracle.rules:
            before, rewritten = rewritten, rule.rewrite(rewritten)
            if rewritten == before:
                continue
            used[rule.name] += 1
            if (
                rule.name not in needed
                and list(_answers(oracle.ask, _without(oracle, rule, fields), after)) != ours
            ):
                needed.add(rule.name)
        if rewritten == fields and asked % PLAIN_EACH:
            continue
        theirs = list(_answers(oracle.ask, rewritten, after))
        assert ours == theirs, (" ".join(fields), " ".join(rewritten), str(after))
    assert fired > EXPRESSIONS * 0.99
    assert {rule.name for rule in oracle.rules} == needed, "a rule that explains nothing"
    assert min(used.values()) >= 20, used


def _without(oracle: Oracle, left_out: Rule, fields: Fields) -> Fields:
    for rule in oracle.rules:
        fields = fields if rule is left_out else rule.rewrite(fields)
    return fields


def test_years_against_croniter() -> None:
    """cronsim has no years, and croniter's end with 2099; ours with 2199."""
    rng = random.Random(7)
    for _ in range(examples(100, night=1_500)):
        first = rng.randrange(2020, 2080)
        year = rng.choice((str(first), f"{first}-{first + 9}", f"{first},{first + 3}", f"{first}/7", "*/4"))
        if year == f"{first}/7":
            year = f"{first}-2099/7"
        text = (
            f"{rng.randrange(60)} {rng.randrange(60)} */6 {rng.choice(('*', '29', '31', 'L'))} */2 * {year}"
        )
        after = datetime(2024, 2, 1, tzinfo=UTC) + timedelta(days=rng.randrange(3650))
        try:
            theirs = croniter(text, after, second_at_beginning=True, max_years_between_matches=80).get_next(
                datetime
            )
        except CroniterError:
            theirs = None
        try:
            ours = next_tick(text, after)
        except BadSchedule:
            ours = None
        assert ours == theirs, (text, str(after))


@pytest.mark.parametrize(
    ("text", "cronsims", "croniters"),
    [
        ("0 0 30 2 *", "refuses", "finds none"),
        ("0 0 29 2 1", "fires", "fires"),
        ("0 5-2 * * *", "refuses", "fires"),
        ("0 ? * * *", "refuses", "refuses"),
        ("0 0 * * 5-1", "refuses", "fires"),
    ],
)
def test_what_the_oracles_do_with_texts_that_are_ours_to_judge(
    text: str, cronsims: str, croniters: str
) -> None:
    after = datetime(2024, 1, 1, tzinfo=UTC)
    fields = ("0", *text.split())
    assert len(fields) == 6
    assert (_ask_cronsim(fields, after) is not None) == (cronsims == "fires")
    assert (_ask_croniter(fields, after) is not None) == (croniters == "fires")
    if text == "0 0 29 2 1":
        assert next_tick(text, after) is not None
    else:
        with pytest.raises(BadSchedule):
            next_tick(text, after)
