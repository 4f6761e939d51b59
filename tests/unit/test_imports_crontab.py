"""crontab(5): dates, variables, users and ``%``; dates against croniter, scripts against a real shell."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from croniter import croniter

from bedrockjobs.base.config import (
    CRONTAB_VARIABLES_CHARS_MAX,
    SCHEDULE_FILE_CHARS_MAX,
    SCHEDULES_PER_SYNC_MAX,
)
from bedrockjobs.imports import crontab
from bedrockjobs.imports.imported import ImportedSchedule, Unreadable

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def only(text: str, **given: object) -> ImportedSchedule:
    """Read a crontab with one entry."""
    (found,) = crontab.parse_crontab(text, **given)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    "said",
    [
        "0 9 * * 1-5",
        "*/5 * * * *",
        "0 0 1 * 1",
        "0 0 */2 * *",
        "30 4 1,15 * 5",
        "0 0 * * 5-7",
        "@weekly",
        "0 0 1-7,*/10 * 1",
        "15 10 * jan,jul sun",
    ],
)
def test_times_are_those_of_cron(said: str) -> None:
    """Old and new times, compared with croniter under cron's rule for day fields."""
    found = only(f"{said} command")
    oracle = croniter(said, NOW, implement_cron_bug=True)
    expected = [oracle.get_next(datetime) for _ in range(5)]
    assert found.old_times(NOW, 5) == found.our_times(NOW, 5) == expected
    assert not found.differs
    assert found.repeat == f"CRON {said}"


def test_both_day_fields_hold_where_one_begins_with_a_star() -> None:
    """It is rewritten if our dialect can express that."""
    found = only("0 0 */1 * 1 command")
    assert (found.repeat, found.differs) == ("CRON 0 0 * * MON", False)
    assert "both day fields" in found.warnings[0]
    oracle = croniter("0 0 */2 * 1", NOW, implement_cron_bug=True)
    refused = only("0 0 */2 * 1 command")
    assert "must both hold" in refused.refused
    assert refused.old_times(NOW, 4) == [oracle.get_next(datetime) for _ in range(4)]
    assert refused.our_times(NOW, 4) == []


def test_zones() -> None:
    """The machine's zone, then CRON_TZ for the lines below it; TZ affects only the commands."""
    found = crontab.parse_crontab(
        "TZ=Asia/Tokyo\n0 9 * * * a\nCRON_TZ=Europe/Berlin\n0 9 * * * b\n", zone="America/New_York"
    )
    assert [entry.repeat for entry in found] == [
        "CRON TZ=America/New_York 0 9 * * *",
        "CRON TZ=Europe/Berlin 0 9 * * *",
    ]
    assert found[1].old_times(NOW, 1) == [datetime(2026, 11, 22, 8, 0, tzinfo=UTC)]
    assert found[1].options == {"cmd": "export TZ=Asia/Tokyo\nb"}
    wrong = only("CRON_TZ=Nowhere\n")
    assert (wrong.name, wrong.place) == ("CRON_TZ", "line 1")
    assert "Nowhere" in wrong.refused


def test_variables_reach_the_command() -> None:
    """With both kinds of quotes, blanks around the sign, another SHELL; a delay becomes a jitter."""
    found = only(
        "SHELL=/bin/bash\nA = \"1 '2'\"\n'B'=x y\nMAILTO=ops@example.org\nRANDOM_DELAY=5\n"
        '* * * * * echo "$A/$B"\n'
    )
    assert found.options["jitter"] == "5m"
    assert found.options["argv"][:2] == ["/bin/bash", "-c"]
    done = subprocess.run(found.options["argv"], capture_output=True, text=True, check=True)
    assert done.stdout == "1 '2'/x y\n"
    assert found.warnings == ("cron mails output to ops@example.org; here it is kept with the run",)
    mailed = crontab.parse_crontab("MAILTO=a\n* * * * * x\n* * * * * y\nMAILTO=b\n* * * * * z\n")
    assert [len(entry.warnings) for entry in mailed] == [1, 0, 1], "once for each MAILTO"
    assert only("SHELL=/bin/sh\nMAILTO=\n* * * * * a").options == {"cmd": "a"}
    assert "RANDOM_DELAY" in only("RANDOM_DELAY=soon\n").refused


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("cat%one%two", "one\ntwo\n"),
        ("cat && echo end # done%one", "one\nend\n"),
        (r"printf '\%s' a", "a"),
        (r"cat%100\%%END_OF_INPUT", "100%\nEND_OF_INPUT\n"),
        ("cat%$HOME `id`", "$HOME `id`\n"),
        ("cat%", "\n"),
    ],
)
def test_percent_signs(command: str, printed: str) -> None:
    """The first begins the command's stdin, the others are line ends; a backslash escapes them."""
    script = only(f"* * * * * {command}").options["cmd"]
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == printed


def test_the_column_of_users() -> None:
    """Only --system has it."""
    found = crontab.parse_crontab(
        "17 * * * * root cd / && run-parts x\n@daily www-data /opt/a.sh\n", system=True
    )
    assert [entry.options["cmd"] for entry in found] == ["cd / && run-parts x", "/opt/a.sh"]
    assert ["root" in found[0].warnings[0], "www-data" in found[1].warnings[0]] == [True, True]
    assert only("17 * * * * root", system=True).refused == "expected a time, a user and a command"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("@reboot /opt/a.sh", "@reboot has no time"),
        ("@every_minute x", "'@every_minute': expected one of @yearly"),
        ("61 * * * * x", "minute '61'"),
        ("0~59 * * * * x", "minute '0~59'"),
        ("0 0 31 2 * x", "would never fire"),
        ("17 * * *", "expected a time and a command"),
        ("@daily", "expected a time and a command"),
        ("* * * * * * x", "expected a command, not '* x', which cron refuses"),
        ("*/5 * * * * * * x", "--cron supercronic"),
        ("1/20 * * * * x", "minute '1/20': expected * or a range before the step"),
        ("0 0 L * * x", "day-of-month 'L': expected *, numbers in 1-31"),
        ("0 0 15W * * x", "day-of-month '15W'"),
        ("0 0 ? * * x", "day-of-month '?'"),
        ("0 0 * * monday x", "day-of-week 'monday': expected *, numbers in 0-7 or the first three letters"),
        ("0 0 * january * x", "month 'january'"),
        ("0 0 * * 5L x", "day-of-week '5L'"),
        ("0 0 * * 5#2 x", "Debian's cron runs it at 00:00, on Friday"),
        ("0 0 * * fri-sun x", "cronie runs it at 00:00, on Friday to Sunday"),
        ("5~9 0 * * * x", "minute '5~9'"),
        ("0 22-2 * * * x", "would never fire"),
        ("@Daily x", "'@Daily': expected one of @yearly"),
        ("*/5 * * * * -x y", "command '-x': cronie has no such option"),
        ("RANDOM_DELAY=1441", "at most 1440"),
        ("a.b=c", "variable 'a.b'"),
        ('A="x', "expected a time and a command"),
    ],
)
def test_lines_that_cannot_be_schedules(line: str, why: str) -> None:
    """They are refused, with their place, and the others are read."""
    bad, good = crontab.parse_crontab(f"# comment\n\n{line}\n* * * * * good\n")
    assert bad.place == "line 3"
    assert why in bad.refused
    assert bad.repeat == ""
    assert good.name == "good"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/local/bin/backup.sh --full", "backup"),
        ("A=1 B=2 /opt/report", "report"),
        ("[ -x /bin/x ] && /bin/x", "x"),
        ("cd /srv/app && bin/rails runner Report.daily", "rails-runner"),
        ("php artisan schedule:run >> /dev/null 2>&1", "artisan-schedule:run"),
        ("restic backup /srv", "restic-backup"),
        ("sudo -u www nice -n 10 /usr/bin/python3 -u /opt/mail/send.py --all", "send"),
        ("flock -n /tmp/l timeout 5m rsync -a a b", "rsync"),
        ("( cd / && run-parts /etc/cron.hourly )", "run-parts"),
        ("python -m app.cron", "app.cron"),
        ("***", "line-1"),
        ("x" * 100, "x" * 60),
        ("cat%input", "cat"),
        ("A=1", "line-1"),
    ],
)
def test_names_come_from_the_words_of_the_command(command: str, name: str) -> None:
    """Or, without usable words, from the line."""
    assert only(f"0 0 * * * {command}").name == name


def test_names_are_distinct_and_a_dash_is_no_part_of_the_time() -> None:
    """In cronie, a dash means: do not log."""
    assert [entry.name for entry in crontab.parse_crontab("-0 1 * * * a\n0 2 * * * a\n")] == ["a", "a-2"]


def test_only_a_line_feed_ends_a_line() -> None:
    """As in cron: other line separators stay in the command."""
    assert only("* * * * * echo a\x0cb\u2028c\r\n").options == {"cmd": "echo a\x0cb\u2028c"}


@pytest.mark.parametrize(
    ("lines", "by", "repeat", "warned"),
    [
        ("0 0 10,* * 1 x", None, "CRON 0 0 * * *", "both day fields"),
        ("0 22-2,5 * * * x", None, "CRON 0 5 * * *", "hour 22-2: Debian's cron reads it as no value at all"),
        ("1,* 5 * * * x", None, "CRON 0-59 5 * * *", "change of the clock"),
        ("*/60 * * * * x", None, "CRON */60 * * * *", ""),
        ("0 3-23/24 * * * x", None, "CRON 0 3-23/24 * * *", ""),
        ("-0 1 * * * x", None, "CRON 0 1 * * *", "Debian's cron refuses the line"),
        ("-0 1 * * * x", "cronie", "CRON 0 1 * * *", ""),
        ("0 1 * * * -n x", None, "CRON 0 1 * * *", "only of a run that fails (-n)"),
        ("CRON_TZ=Asia/Tokyo\n0 1 * * * x", None, "CRON TZ=Asia/Tokyo 0 1 * * *", "Debian's cron ignores it"),
        ("CRON_TZ=Asia/Tokyo\n0 1 * * * x", "cronie", "CRON TZ=Asia/Tokyo 0 1 * * *", ""),
        ("CRON_TZ=Asia/Tokyo\n0 1 * * * x", "debian", "CRON 0 1 * * *", "ignores CRON_TZ=Asia/Tokyo"),
        ("CRON_TZ=Asia/Tokyo\n0 1 * * * x", "supercronic", "CRON TZ=Asia/Tokyo 0 1 * * *", ""),
        ("0 1 * * * x\nCRON_TZ=Asia/Tokyo", "supercronic", "CRON TZ=Asia/Tokyo 0 1 * * *", ""),
        ("MAILTO=\n0 1 * * * x", None, "CRON 0 1 * * *", 'Debian\'s cron requires MAILTO=""'),
        ("MAILTO=\n0 1 * * * x", "cronie", "CRON 0 1 * * *", ""),
        ("0 0 * * 5#2 x", "debian", "CRON 0 0 * * FRI", "Debian's cron ignores #2"),
        ("0 0 * * 5#2 x", "supercronic", "CRON 0 0 * * 5#2", ""),
        ("0 0 * * fri-sun x", "cronie", "CRON 0 0 * * fri-sun", ""),
        ("5-0 * * * * x", "cronie", "CRON 5-7 * * * *", "minute 5-0: cronie reads it as 5,6,7"),
        ("*/5 * * * * * * x y", "supercronic", "CRON */5 * * * * * *", ""),
        ("0 */3 * * * * x", "supercronic", "CRON 0 */3 * * *", ""),
        ("@hourly x", "supercronic", "CRON @hourly", ""),
        ("1/20 * * * * x", "supercronic", "CRON 1/20 * * * *", ""),
        ("0 0 * * 0-7 x", "supercronic", "CRON 0 0 * * SUN", "supercronic reads 7 as 0"),
    ],
)
def test_each_cron_by_its_own_rule(lines: str, by: crontab.Cron | None, repeat: str, warned: str) -> None:
    """A differing reading is rewritten or reported."""
    found = only(f"{lines}\n", by=by)
    assert (found.repeat, found.refused) == (repeat, "")
    assert found.warnings[:1] == () if not warned else warned in found.warnings[0], found.warnings
    assert not found.differs


def test_what_debian_refuses() -> None:
    """It refuses a dash before a time, and a variable without a value."""
    assert "Debian's cron accepts no -" in only("-0 1 * * * x\n", by="debian").refused
    assert 'MAILTO=""' in only("MAILTO=\n", by="debian").refused


def test_supercronic_takes_the_whole_file_and_no_percent_signs() -> None:
    """Its variables also apply to the lines above; variables in a command are left to the shell."""
    first, second = crontab.parse_crontab(
        "0 1 * * * printf %s a\nSHELL=/bin/bash\nHOME=/tmp\n@daily b\n", by="supercronic"
    )
    assert first.options == {
        "argv": ["/bin/bash", "-c", "export SHELL=/bin/bash\nexport HOME=/tmp\nprintf %s a"]
    }
    assert second.options["argv"][2].endswith("\nexport HOME=/tmp\nb")
    assert "expected what supercronic reads" in only("61 1 * * * x\n", by="supercronic").refused
    assert "expected a time and a command" in only("nonsense\n", by="supercronic").refused
    assert "Nowhere" in only("CRON_TZ=Nowhere\n", by="supercronic").refused


def test_cron_starts_a_command_in_its_home(tmp_path: Path) -> None:
    """HOME= becomes the working folder, since cron changes to it."""
    found = only(f"HOME={tmp_path}\n* * * * * pwd\n")
    done = subprocess.run(["sh", "-c", found.options["cmd"]], capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).resolve() == tmp_path.resolve()


@pytest.mark.parametrize(
    ("text", "file", "users"),
    [
        ("17 * * * * root cd / && x\n", "", True),
        ("SHELL=/bin/sh\n# root\n@daily root x\n0 1 * * * deploy y z\n", "tab", True),
        ("17 * * * * deploy /opt/x y\n", "/etc/cron.d/deploy", True),
        ("17 * * * * deploy /opt/x y\n", "debian/app.cron.d", True),
        ("17 * * * * deploy /opt/x y\n", "/etc/crontab", True),
        ("17 * * * * deploy /opt/x y\n", "crontab", False),
        ("17 * * * * git pull\n17 * * * * root x\n18 * * * * /opt/x y\n", "", False),
        ("17 * * * * root\n", "", False),
        ("@daily root\n", "", False),
        ("", "", False),
    ],
)
def test_a_column_of_users_is_recognized(text: str, file: str, users: bool) -> None:
    """By the file's path, or by user names that are not commands."""
    assert crontab.has_users(text, file) == users


def test_a_crontab_has_limits() -> None:
    """On characters, entries, and the size of its variables in all commands."""
    with pytest.raises(Unreadable, match=f"at most {SCHEDULE_FILE_CHARS_MAX} characters"):
        crontab.parse_crontab("#" * (SCHEDULE_FILE_CHARS_MAX + 1))
    with pytest.raises(Unreadable, match=f"line 10001: expected at most {SCHEDULES_PER_SYNC_MAX} schedules"):
        crontab.parse_crontab("* * * * * x\n" * (SCHEDULES_PER_SYNC_MAX + 1))
    found = crontab.parse_crontab(f"A=1\nB={'x' * CRONTAB_VARIABLES_CHARS_MAX}\n* * * * * x\n")
    assert [entry.name for entry in found] == ["B", "x"]
    assert f"at most {CRONTAB_VARIABLES_CHARS_MAX} characters" in found[0].refused
    assert found[1].options == {"cmd": "export A=1\nx"}


def test_a_variable_is_set_again() -> None:
    """The last value counts, at the position of the first."""
    assert only("A=1\nB=2\nA=3\n* * * * * x\n").options == {"cmd": "export A=3\nexport B=2\nx"}
