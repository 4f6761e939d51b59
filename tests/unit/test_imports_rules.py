"""Each importer is compared with a small parser of the other system's rules, over random expressions.

The parsers are written from the other system's source, character by character where it reads so, and share
nothing with the importers. Which expressions the other system runs, when, and which it refuses must be the
same, and our expressions must fire at the same times.
"""

from __future__ import annotations

import json
import random
import re
from calendar import isleap, monthrange
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import cache

import pytest
from apscheduler.triggers.cron import CronTrigger

from bedrockjobs.imports import castle, cronken, crontab, ftl, kubernetes, luci
from bedrockjobs.imports.imported import ImportedSchedule
from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron.plan import next_moment
from tests.effort import examples

EXPRESSIONS = examples(400, night=10_000)
TICKS = 3
NOW = datetime(2026, 11, 21, 12, 30, 5, tzinfo=UTC)
DAYS = 800
"""Days that are looked at for ticks."""

CALENDARS = 60
"""Years that are searched for any day: each kind of calendar comes within 28 years."""


@cache
def days_of(year: int) -> list[date]:
    """Return the days of a year."""
    return [date(year, 1, 1) + timedelta(days=number) for number in range(365 + isleap(year))]


MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


class Refused(Exception):
    """Raised if the other system refuses the expression or never runs it."""


@dataclass
class Meaning:
    """The meaning of an expression in another system: sets of numbers, and a predicate for days."""

    seconds: set[int]
    minutes: set[int]
    hours: set[int]
    months: set[int]
    day: Callable[[date], bool]
    years: set[int] = field(default_factory=lambda: set(range(1970, 2200)))

    def ticks(self) -> list[datetime]:
        """Return the next ticks within some days."""
        found: list[datetime] = []
        for ahead in range(DAYS):
            day = NOW.date() + timedelta(days=ahead)
            if day.month not in self.months or day.year not in self.years or not self.day(day):
                continue
            for at in self._times():
                moment = datetime.combine(day, at, UTC)
                if moment > NOW:
                    found.append(moment)
                    if len(found) == TICKS:
                        return found
        return found

    def _times(self) -> Iterator[time]:
        for hour in sorted(self.hours):
            for minute in sorted(self.minutes):
                for second in sorted(self.seconds):
                    yield time(hour, minute, second)

    def check(self, first: int = 1970) -> Meaning:
        """Raise Refused if there is no day at all."""
        if self.seconds and self.minutes and self.hours:
            for year in sorted(year for year in self.years if year >= first)[:CALENDARS]:
                for day in days_of(year):
                    if day.month in self.months and self.day(day):
                        return self
        raise Refused("it never fires")


# --- Debian's cron and cronie: entry.c ---------------------------------------------------------------------


class Characters:
    """The characters of one field, for get_char and unget_char."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text + " ", 0

    @property
    def ch(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def word(self) -> str:
        begin = self.at
        while self.ch.isascii() and self.ch.isalnum():
            self.at += 1
        return self.text[begin : self.at]


def _cron_number(text: str, names: list[str], low: int) -> int:
    for at, name in enumerate(names):
        if text.lower() == name:
            return at + low
    if not text.isdigit():
        raise Refused(text)
    return int(text)


def debian_field(text: str, low: int, high: int, names: list[str]) -> set[int]:
    """Debian's get_list and get_range: what follows a range up to the next blank is skipped."""
    at, bits = Characters(text), set()
    while True:
        if at.ch == "*":
            num1, num2 = low, high
            at.at += 1
        else:
            num1 = _cron_number(at.word(), names, low)
            if at.ch != "-":
                if at.ch == "/" or not low <= num1 <= high:
                    raise Refused(text)
                bits.add(num1)
                if at.ch != ",":
                    return bits
                at.at += 1
                continue
            at.at += 1
            num2 = _cron_number(at.word(), names, low)
        step = 1
        if at.ch == "/":
            at.at += 1
            step = _cron_number(at.word(), [], 0)
            if step <= 0:
                raise Refused(text)
        if not (low <= num1 <= high and low <= num2 <= high):
            raise Refused(text)
        bits |= set(range(num1, num2 + 1, step))
        if at.ch != ",":
            return bits
        at.at += 1


def cronie_field(text: str, low: int, high: int, names: list[str]) -> set[int]:
    """cronie's states: a term ends at a comma or a blank; a backward range to 0 ends with 7."""
    bits: set[int] = set()
    for term in text.split(","):
        body, *rest = term.split("/")
        ends = body.split("-")
        if len(rest) > 1 or len(ends) > 2 or (rest and body != "*" and len(ends) == 1):
            raise Refused(text)
        if body == "*":
            first, last = low, high
        else:
            first = _cron_number(ends[0], names, low)
            last = _cron_number(ends[-1], names, low)
            if not rest and first > last == 0:
                last = 7
        step = _cron_number(rest[0], [], 0) if rest else 1
        if step == 0:
            raise Refused(text)
        number = first
        while number <= last:
            if not low <= number <= high:
                raise Refused(text)
            bits.add(number)
            number += step
    return bits


def crontab_meaning(expression: str, read: Callable[[str, int, int, list[str]], set[int]]) -> Meaning:
    """find_jobs: if a day field begins with a star both have to hold, else one is enough."""
    words = expression.split(" ")
    minutes, hours = read(words[0], 0, 59, []), read(words[1], 0, 23, [])
    days, months = read(words[2], 1, 31, []), read(words[3], 1, 12, MONTHS)
    weekdays = {weekday % 7 for weekday in read(words[4], 0, 7, WEEKDAYS)}
    star = words[2][0] == "*" or words[4][0] == "*"

    def day(at: date) -> bool:
        one, other = at.day in days, at.isoweekday() % 7 in weekdays
        return (one and other) if star else (one or other)

    return Meaning({0}, minutes, hours, months, day).check()


# --- gorhill/cronexpr and its forks: cronexpr_parse.go ------------------------------------------------------

VALUES = {
    "second": "0?[0-9]|[1-5][0-9]",
    "minute": "0?[0-9]|[1-5][0-9]",
    "hour": "0?[0-9]|1[0-9]|2[0-3]",
    "dom": "0?[1-9]|[12][0-9]|3[01]",
    "month": "0?[1-9]|1[012]|" + "|".join(MONTHS) + "|january|march|december",
    "dow": "0?[0-7]|" + "|".join(WEEKDAYS) + "|sunday|monday|friday",
    "year": "19[789][0-9]|20[0-9]{2}",
}
LIMITS = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "dom": (1, 31),
    "month": (1, 12),
    "dow": (0, 6),
    "year": (1970, 2099),
}


def go_number(name: str, text: str, fork: str) -> int:
    """The tables of tokens: what is not in them is 0."""
    if name == "dow":
        return WEEKDAYS.index(text[:3]) if text[:3] in WEEKDAYS else int(text) % 7 if len(text) == 1 else 0
    if name == "month":
        if text[:3] in MONTHS:
            return MONTHS.index(text[:3]) + 1
        return 0 if text[0] == "0" and fork == "gorhill" else int(text)
    return int(text)


def go_step(text: str, most: int) -> int:
    step = int(text) if re.fullmatch("[0-9]|[0-5][0-9]|19[789][0-9]|20[0-9]{2}", text) else 0
    if not 1 <= step <= most:
        raise Refused(text)
    return step


def go_field(name: str, text: str, fork: str) -> tuple[set[int], bool, list[str]]:
    """Return the values, whether the field is open, and what is left to a day field."""
    value, (low, high) = VALUES[name], LIMITS[name]
    values: set[int] = set()
    is_open, others = False, []
    terms = [term.lower() for term in text.split(",") if term]
    if not terms:
        raise Refused(text)
    for term in terms:
        if term in ("*", "?"):
            is_open = True
            values |= set(range(low, high + 1))
        elif re.fullmatch(value, term):
            values.add(go_number(name, term, fork))
        elif found := re.fullmatch(f"({value})-({value})", term):
            first, last = (go_number(name, found[part], fork) for part in (1, 2))
            if last == 0 and fork == "hashicorp":
                last = 6
            values |= set(range(first, last + 1))
        elif found := re.fullmatch(r"\*/(\d+)", term):
            values |= set(range(low, high + 1, go_step(found[1], high)))
        elif found := re.fullmatch(rf"({value})/(\d+)", term):
            values |= set(range(go_number(name, found[1], fork), high + 1, go_step(found[2], high)))
        elif found := re.fullmatch(rf"({value})-({value})/(\d+)", term):
            first, last = (go_number(name, found[part], fork) for part in (1, 2))
            step = go_step(found[3], high)
            if fork == "supercronic" and last < first:
                raise Refused(text)
            values |= set(range(first, last + 1, step))
        elif name in ("dom", "dow") or not is_open:
            others.append(term)
    if name not in ("dom", "dow"):
        if others:
            raise Refused(text)
        if is_open:
            values = set(range(low, high + 1))
    return values, is_open, others


def go_workday(day: date) -> int:
    last = monthrange(day.year, day.month)[1]
    if day.isoweekday() == 6:
        return day.day - 1 if day.day > 1 else 3
    if day.isoweekday() == 7:
        return day.day + 1 if day.day < last else day.day - 2
    return day.day


def go_meaning(seven: list[str], fork: str, first: int = 1970) -> Meaning:
    """Expression: the days of a month are listed, then looked up."""
    names = ["second", "minute", "hour", "dom", "month", "dow", "year"]
    fields = {name: go_field(name, text, fork) for name, text in zip(names, seven, strict=True)}
    days, days_open, day_forms = fields["dom"]
    weekdays, weekdays_open, weekday_forms = fields["dow"]
    last_days: set[int] = set()
    places: set[tuple[int, int]] = set()
    workdays: set[int] = set()
    for form in day_forms:
        if found := re.fullmatch(f"({VALUES['dom']})w", form):
            workdays.add(int(found[1]))
        elif form not in ("l", "lw"):
            raise Refused(form)
    for form in weekday_forms:
        if found := re.fullmatch(f"({VALUES['dow']})l", form):
            last_days.add(go_number("dow", found[1], fork))
        elif found := re.fullmatch(f"({VALUES['dow']})#([1-5])", form):
            places.add((go_number("dow", found[1], fork), int(found[2])))
        else:
            raise Refused(form)

    def by_number(at: date) -> bool:
        last = monthrange(at.year, at.month)[1]
        listed = set(days)
        listed |= {last} if "l" in day_forms else set()
        listed |= {go_workday(at.replace(day=last))} if "lw" in day_forms else set()
        listed |= {go_workday(at.replace(day=number)) for number in workdays if number <= last}
        return at.day in listed

    def by_weekday(at: date) -> bool:
        weekday, last = at.isoweekday() % 7, monthrange(at.year, at.month)[1]
        in_last = at.day > last - 7 and weekday in last_days
        return weekday in weekdays or in_last or (weekday, (at.day + 6) // 7) in places

    def day(at: date) -> bool:
        if days_open and weekdays_open:
            return True
        return (not days_open and by_number(at)) or (not weekdays_open and by_weekday(at))

    if 0 in fields["month"][0] or not all(fields[name][0] for name in names if name not in ("dom", "dow")):
        raise Refused("the library fails")
    sets = [fields[name][0] for name in ("second", "minute", "hour", "month")]
    meaning = Meaning(sets[0], sets[1], sets[2], sets[3], day, fields["year"][0])
    return meaning.check(first)


def gorhill_meaning(expression: str, fork: str = "gorhill") -> Meaning:
    """Parse: five to seven fields, the first from behind the year; more are ignored."""
    for macro, meant in {
        "@yearly": "0 0 0 1 1 * *",
        "@monthly": "0 0 0 1 * * *",
        "@weekly": "0 0 0 * * 0 *",
        "@daily": "0 0 0 * * * *",
        "@hourly": "0 0 * * * * *",
    }.items():
        expression = expression.replace(macro, meant)
    words = expression.split()
    if len(words) < 5 or (fork == "supercronic" and len(words) > 7):
        raise Refused(expression)
    seven = ["0", *words] if len(words) < 7 else words[:7]
    return go_meaning(seven if len(seven) == 7 else [*seven, "*"], fork)


# --- FTL: common/cron/pattern.go ----------------------------------------------------------------------------


def ftl_meaning(expression: str) -> Meaning:
    """A grammar of numbers and marks, in front of hashicorp's library; its numbers are Go's."""
    text = expression.strip()
    if found := re.fullmatch(r"([0-9]+)\s*([smh])", text):
        count = int(found[1])
        star = {"s": "*/{} * *", "m": "0 */{} *", "h": "0 0 */{}"}[found[2]].format(count)
        return go_meaning([*(star if count else "0 0 0").split(), "*", "*", "*", "*"], "hashicorp", 2020)
    if text.lower() in WEEKDAYS:
        return go_meaning(
            ["0", "0", "0", "*", "*", str(WEEKDAYS.index(text.lower())), "*"], "hashicorp", 2020
        )
    pieces = re.findall(r"[0-9]+(?:\.[0-9]+)?|\S", text)
    fields: list[list[str]] = []
    joined = True
    for piece in pieces:
        if piece in (",", "-", "/"):
            if joined or not fields:
                raise Refused(expression)
            fields[-1].append(piece)
            joined = True
        elif piece == "*" or piece[0].isdigit():
            if piece[0] == "0" and len(piece) > 1:
                if not re.fullmatch("[0-7]+", piece):
                    raise Refused(expression)
                piece = str(int(piece, 8))
            if joined and fields:
                fields[-1].append(piece)
            else:
                fields.append([piece])
            joined = False
        else:
            raise Refused(expression)
    term = r"(?:\*|[0-9]+(?:-[0-9]+)?)(?:/[0-9]+)?"
    texts = ["".join(parts) for parts in fields]
    if joined or not all(re.fullmatch(f"{term}(?:,{term})*", one) for one in texts):
        raise Refused(expression)
    if not 5 <= len(texts) <= 7:
        raise Refused(expression)
    if len(texts) == 5:
        texts = ["0", *texts, "*"]
    elif len(texts) == 6:
        years = [int(number) for number in re.findall(r"(?<![/0-9])[0-9]+", texts[5])]
        texts = ["0", *texts] if max(years, default=0) >= 1000 else [*texts, "*"]
    return go_meaning(texts, "hashicorp", 2020)


# --- robfig/cron, as prow uses it: parser.go ----------------------------------------------------------------


def robfig_meaning(expression: str) -> Meaning:
    """Five fields; a star with a step restricts a day field (since its third version)."""
    words = expression.split()
    if len(words) != 5:
        raise Refused(expression)
    bounds = [
        (0, 59, {}),
        (0, 23, {}),
        (1, 31, {}),
        (1, 12, dict(zip(MONTHS, range(1, 13), strict=True))),
        (0, 6, dict(zip(WEEKDAYS, range(7), strict=True))),
    ]
    sets: list[set[int]] = []
    stars: list[bool] = []
    for word, (low, high, names) in zip(words, bounds, strict=True):
        values: set[int] = set()
        star = False
        for term in filter(None, word.split(",")):
            parts = term.split("/")
            ends = parts[0].split("-")
            anything = ends[0] in ("*", "?")
            if len(parts) > 2 or (len(ends) > 2 and not anything):
                raise Refused(expression)
            try:
                numbers = (
                    [low, high]
                    if anything
                    else [names[end.lower()] if end.lower() in names else int(end) for end in ends]
                )
                step = int(parts[1]) if len(parts) == 2 else 1
            except ValueError:
                raise Refused(expression) from None
            first, last = numbers[0], numbers[-1]
            if len(ends) == 1 and len(parts) == 2:
                last = high
            star |= anything and step == 1
            if not (low <= first <= last <= high and step > 0):
                raise Refused(expression)
            values |= set(range(first, last + 1, step))
        sets.append(values)
        stars.append(star)

    def day(at: date) -> bool:
        one, other = at.day in sets[2], at.isoweekday() % 7 in sets[4]
        return (one and other) if stars[2] or stars[4] else (one or other)

    return Meaning({0}, sets[0], sets[1], sets[3], day).check()


# --- random expressions -------------------------------------------------------------------------------------


ODD = [
    "?",
    "L",
    "LW",
    "15W",
    "31W",
    "5L",
    "7L",
    "5#2",
    "7#1",
    "*/0",
    "*-3",
    "1-",
    "3#",
    "03-5",
    "6-7",
    "0-7",
    "7/2",
    "1-7",
    "5-0",
    "*5",
    "monday",
    "0-0",
    "7-7",
    "*/100",
    "1-5/2/3",
    "@",
]
"""Terms that one system or another reads in its own way."""


@dataclass
class Dice:
    """Makes random fields: mostly valid ones, and each odd kind often enough."""

    random: random.Random
    odd: float = 0.12

    def expression(self, low: int = 5, high: int = 5) -> str:
        count = self.random.randint(low, high)
        kinds = ["minute", "hour", "dom", "month", "dow"]
        kinds = ["second", *kinds, "year"] if count == 7 else [*kinds, "year"] if count == 6 else kinds
        return " ".join(self.field(kind) for kind in kinds[:count])

    def field(self, kind: str) -> str:
        if self.random.random() < (0.45 if kind in ("dom", "month", "dow", "year") else 0.2):
            return "*"
        return ",".join(self.term(kind) for _ in range(self.random.choice([1, 1, 1, 2, 3])))

    def number(self, kind: str) -> str:
        low, high = LIMITS[kind]
        roll = self.random.random()
        if kind == "year":
            return str(self.random.randint(2025, 2031))
        if kind == "dow" and roll < 0.25:
            return "7"
        if roll < self.odd / 3:
            return self.random.choice([f"0{self.random.randint(0, 9)}", str(high + 1), "x", ""])
        names = {"month": MONTHS, "dow": WEEKDAYS}.get(kind)
        if names and roll < 0.5:
            return self.random.choice(names).upper() if roll < 0.3 else self.random.choice(names)
        return str(self.random.randint(low, high))

    def term(self, kind: str) -> str:
        roll = self.random.random()
        if roll < self.odd:
            return self.random.choice(ODD)
        step = str(self.random.choice([1, 2, 3, 5, 7, 20, 24, 30, 60]))
        if roll < 0.35:
            return f"*/{step}"
        if roll < 0.6:
            return self.number(kind)
        if roll < 0.7:
            return f"{self.number(kind)}/{step}"
        first, last = self.number(kind), self.number(kind)
        if first.isdigit() and last.isdigit() and self.random.random() > self.odd:
            first, last = sorted((first, last), key=int)
        return f"{first}-{last}" if roll < 0.85 else f"{first}-{last}/{step}"


def judge(
    expression: str, found: ImportedSchedule, meant: Callable[[], Meaning], counts: Counter[str]
) -> None:
    """Compare what was imported with what the other system does."""
    ticks: list[datetime] | None = None
    with suppress(Refused):
        ticks = meant().ticks()
    if ticks is None:
        assert found.refused, (expression, found.repeat)
        counts["refused"] += 1
        return
    limit = NOW.replace(hour=0, minute=0, second=0) + timedelta(days=DAYS)
    there = [at for at in found.old_times(NOW, TICKS) if at < limit]
    assert there == ticks, (expression, there, ticks, found.refused)
    if found.refused:
        assert "no expression of ours" in found.refused or "there is no expression" in found.refused, found
        counts["no expression"] += 1
        return
    here = [at for at in found.our_times(NOW, TICKS) if at < limit]
    assert here == ticks, (expression, found.expression, here, ticks)
    assert not found.differs
    counts["same"] += 1
    counts["with a warning"] += any("written so" in warning for warning in found.warnings)


def enough(counts: Counter[str], *kinds: str) -> None:
    """Check that each kind of expression has occurred often enough."""
    assert all(counts[kind] >= EXPRESSIONS // 100 for kind in kinds), counts


RULES: dict[crontab.Cron, Callable[[str, int, int, list[str]], set[int]]] = {
    "debian": debian_field,
    "cronie": cronie_field,
}


@pytest.mark.parametrize("by", ["debian", "cronie"])
def test_crontabs(by: crontab.Cron) -> None:
    """Debian's cron and cronie, each by its own reader."""
    dice, counts = Dice(random.Random(f"crontab {by}")), Counter[str]()
    for _ in range(EXPRESSIONS):
        expression = dice.expression().lstrip("-")
        (found,) = crontab.parse_crontab(f"{expression} x\n", by=by)
        judge(expression, found, lambda said=expression: crontab_meaning(said, RULES[by]), counts)  # type: ignore[misc]
    enough(counts, "same", "refused", "with a warning", "no expression")


def test_a_crontab_of_nobody_knows_which_cron() -> None:
    """Only lines that both read alike are accepted."""
    dice, counts = Dice(random.Random("crontab")), Counter[str]()
    for _ in range(EXPRESSIONS):
        expression = dice.expression().lstrip("-")
        (found,) = crontab.parse_crontab(f"{expression} x\n")
        answers: list[list[datetime]] = []
        for read in RULES.values():
            try:
                answers.append(crontab_meaning(expression, read).ticks())
            except Refused:
                counts["one refuses"] += 1
        if len(answers) < 2 or answers[0] != answers[1] or "both crons read the same way" in found.refused:
            assert found.refused, (expression, answers)
            counts["differ"] += len(answers) > 0
        else:
            judge(expression, found, lambda said=expression: crontab_meaning(said, debian_field), counts)  # type: ignore[misc]
    enough(counts, "same", "one refuses", "differ")


def test_supercronic() -> None:
    """Lines of seven, six or five fields, of which it takes the longest that it can read."""
    dice, counts = Dice(random.Random("supercronic")), Counter[str]()
    for _ in range(EXPRESSIONS):
        line = f"{dice.expression(5, 7)} {dice.random.choice(['x', 'x 5 5', '* * x', '@daily x'])}"

        def meant(line: str = line) -> Meaning:
            words = line.split()
            for count in (7, 6, 5, 1):
                said = " ".join(words[:count])
                if len(words) <= count:
                    continue
                try:
                    return gorhill_meaning(said, "supercronic")
                except Refused as why:
                    if "never" in str(why) or "fails" in str(why):
                        raise
            raise Refused(line)

        (found,) = crontab.parse_crontab(f"{line}\n", by="supercronic")
        judge(line, found, meant, counts)
    enough(counts, "same", "refused", "with a warning")


@pytest.mark.parametrize("system", ["castle", "luci"])
def test_gorhill(system: str) -> None:
    """castle-cron and LUCI, whose library reads 7 as 0 in ranges and before steps."""
    dice, counts = Dice(random.Random(system)), Counter[str]()
    for _ in range(EXPRESSIONS):
        expression = dice.expression(5, 7)
        if system == "castle":
            (found,) = castle.parse_castle(f"castle-cron add a '{expression}' x\n")
        else:
            (found,) = luci.parse_luci(f'job {{ id: "a" schedule: "{expression}" noop {{}} }}')
        judge(expression, found, lambda said=expression: gorhill_meaning(said), counts)  # type: ignore[misc]
    enough(counts, "same", "refused", "with a warning")


def test_ftl() -> None:
    """FTL's grammar, and hashicorp's library behind it, in which a range to 7 ends with 6."""
    dice, counts = Dice(random.Random("ftl")), Counter[str]()
    for number in range(EXPRESSIONS):
        expression = dice.expression(5, 7)
        if number % 20 == 0:
            expression = dice.random.choice(
                ["5s", "59m", "60s", "0s", "12h", "24h", "1h30m", "Mon", "tue", "5d"]
            )
        elif number % 4:
            expression = re.sub("[A-Za-z#?@]+", "1", expression)
        (found,) = ftl.parse_ftl(
            f"package a\n//ftl:cron {expression}\nfunc A(ctx context.Context) error {{}}\n"
        )
        judge(expression, found, lambda said=expression: ftl_meaning(said), counts)  # type: ignore[misc]
    enough(counts, "same", "refused", "with a warning")


def apscheduler_ticks(expression: str) -> list[datetime]:
    """Return the next times of the library that runs Cronken's jobs; raises Refused."""
    try:
        trigger = CronTrigger.from_crontab(expression, UTC)
    except ValueError as error:
        raise Refused(str(error)) from None
    found: list[datetime] = []
    limit = NOW.replace(hour=0, minute=0, second=0) + timedelta(days=DAYS)
    at = trigger.get_next_fire_time(None, NOW + timedelta(microseconds=1))
    while at is not None and at < limit and len(found) < TICKS:
        found.append(at)
        at = trigger.get_next_fire_time(at, at)
    return found


def test_cronken() -> None:
    """APScheduler, in which 0 is Monday and both day fields must match."""
    dice, counts = Dice(random.Random("cronken"), odd=0.03), Counter[str]()
    # It ignores what follows a name, so these never meant what they say; they are refused.
    ignored = re.compile(r"[a-z]/|[a-z]-[0-9]", re.IGNORECASE)
    limit = NOW.replace(hour=0, minute=0, second=0) + timedelta(days=DAYS)
    for _ in range(EXPRESSIONS):
        expression = dice.expression()
        job = {"cron_args": {"cronstring": expression}, "job_args": {"cmd": "x", "lock": True, "ttl": 45}}
        (found,) = cronken.parse_cronken(json.dumps({"a": job}), weekday_0="monday")
        try:
            ticks = apscheduler_ticks(expression)
        except Refused:
            assert found.refused, expression
            counts["refused"] += 1
            continue
        if ignored.search(expression):
            assert found.refused, expression
            counts["ignored"] += 1
            continue
        here, there = (
            [at for at in times(NOW, TICKS) if at < limit] for times in (found.our_times, found.old_times)
        )
        assert here == there == ticks, (expression, found.refused)
        counts["same"] += 1
    enough(counts, "same", "refused", "ignored")


def test_prow() -> None:
    """robfig/cron has no importer: our dialect reads its expressions as they are, and fires alike."""
    dice, counts = Dice(random.Random("prow"), odd=0.06), Counter[str]()
    # It ignores empty terms and text after *-, and accepts ? in every field and before a step.
    looser = re.compile(r"(?: |^),|,[ ,]|,$|[?*]-|[?][/,]|,[?]|^[?]|^\S+ [?]|^\S+ \S+ \S+ [?]")
    for _ in range(EXPRESSIONS):
        expression = dice.expression()
        try:
            meaning = robfig_meaning(expression)
        except Refused:
            counts["refused"] += 1
            continue
        if looser.search(expression):
            continue
        # There */1 leaves a day field open.
        ours = cron.parse(re.sub(r"\*/1(?![0-9])", "*", expression))
        ticks: list[datetime] = []
        at = NOW
        limit = NOW.replace(hour=0, minute=0, second=0) + timedelta(days=DAYS)
        while len(ticks) < TICKS and (tick := next_moment(ours, at, UTC)) is not None and tick < limit:
            ticks.append(at := tick)
        assert ticks == meaning.ticks(), expression
        counts["same"] += 1
        counts["beyond the end"] += bool(re.search("/(?:24|30|60)", expression))
    enough(counts, "same", "refused", "beyond the end")


def test_kubernetes() -> None:
    """Each schedule that it takes fires here as there, and no other one is taken."""
    dice, counts = Dice(random.Random("kubernetes"), odd=0.06), Counter[str]()
    for _ in range(EXPRESSIONS):
        expression = dice.expression()
        try:
            old, ours, notes = kubernetes.reading_of(expression)
        except cron.BadSchedule as error:
            told = str(error)
        else:
            told = ""
        try:
            ticks = robfig_meaning(expression).ticks()
        except Refused:
            assert told, expression
            counts["refused"] += 1
            continue
        if "no expression" in told:
            counts["no expression"] += 1
            continue
        assert not told, (expression, told)
        found = ImportedSchedule("a", "line 1", expression).with_reading(old, ours, notes)
        limit = NOW.replace(hour=0, minute=0, second=0) + timedelta(days=DAYS)
        here, there = (
            [at for at in times(NOW, TICKS) if at < limit] for times in (found.our_times, found.old_times)
        )
        assert here == there == ticks, (expression, ours)
        counts["rewritten" if ours != " ".join(expression.split()) else "same"] += 1
        counts["with a warning"] += bool(notes)
    enough(counts, "same", "rewritten", "refused", "with a warning")
