"""Rules: the contents of a file, and that a job's data is one argument, byte for byte, or refused."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bedrock_worker.policy.program import (
    FILE_BYTES_MAX,
    LAUNCHERS,
    LIMIT_MAX,
    MATCH_S,
    RELAYS,
    RULES_MAX,
    SHELLS,
    VALUE_BYTES_MAX,
    BadRules,
    JobRefused,
    Rule,
    Rules,
    read_rules,
)

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return what writes a rules file."""

    def file(text: str) -> Path:
        path = tmp_path / "rules.toml"
        path.write_text(text)
        return path

    return file


@pytest.fixture
def programs(tmp_path: Path) -> Callable[[str], str]:
    """Return what makes a program of any name that can be run."""

    def program(name: str) -> str:
        path = tmp_path / name
        path.write_text("#!/bin/true\n")
        path.chmod(0o755)
        return str(path)

    return program


WHOLE = """
[[rule]]
name = "thumbnail/*"
argv = ["/bin/echo", "-n", "--", "{source}", "{size.width}"]
timeout = "1m30s"
nice = 10
cwd = "/"

[rule.fields]
source.match = '[a-z0-9/]+\\.png'
"size.width".match = '[0-9]{1,4}'

[rule.env]
LANG = "C"

[rule.limits]
cpu = "60s"
as = "2G"
nofile = 64
nproc = 100
fsize = "10MiB"

[rule.secrets]
TOKEN = { env = "RULES_TEST_TOKEN" }

[[rule]]
name = "*"
argv = ["/bin/true"]
"""


def test_a_whole_file(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RULES_TEST_TOKEN", "correct horse")
    rules = read_rules(write(WHOLE))
    assert rules.names == ("thumbnail/*", "*")
    rule = rules.rule_for("thumbnail/cat")
    assert rule is rules.rules[0]
    assert rules.rule_for("other") is rules.rules[1]
    assert (rule.timeout_s, rule.cwd, rule.env) == (90, Path("/"), {"LANG": "C"})
    assert rule.limits.nice == 10
    assert rule.limits.values == {"cpu": 60, "as": 2 << 30, "nofile": 64, "nproc": 100, "fsize": 10 << 20}
    assert rule.read_secrets() == {"TOKEN": "correct horse"}
    data = '{"source":"a/b.png","size":{"width":640}}'
    assert rule.fill(data) == ["/bin/echo", "-n", "--", "a/b.png", "640"]


def test_no_rule() -> None:
    assert Rules([Rule("a*", ("/bin/true",))]).rule_for("b") is None


RULE = '[[rule]]\nname = "a"\nargv = ["/bin/true"]\n'
FIELD = 'fields.x.match = ".*"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = ", "expected TOML"),
        ("", f"expected 1 to {RULES_MAX} tables"),
        ("rule = 1", f"expected 1 to {RULES_MAX} tables"),
        ("rule = [1]", "rule 1: "),
        ("other = 1\n" + RULE, "unknown key other"),
        (RULE + "timeuot = 1", "rule 1 (a): unknown key timeuot"),
        (RULE + FIELD + "fields.x.mach = 1", "unknown key fields.x.mach"),
        ('[[rule]]\nargv = ["/bin/true"]', "rule 1: name: is required"),
        ('[[rule]]\nname = "a"', "rule 1 (a): argv: is required"),
        ('[[rule]]\nname = "a"\nargv = []', "argv: "),
        ('[[rule]]\nname = "a"\nargv = "/bin/true"', "argv: expected a valid list"),
        ('[[rule]]\nname = "a"\nargv = ["/bin/true", 1]', "argv.1: expected a valid string"),
        ('[[rule]]\nname = "a"\nargv = ["/bin/true", "\\u0000"]', "argv.1: expected no NUL"),
        ('[[rule]]\nname = ""\nargv = ["/bin/true"]', "name: "),
        (RULE + RULE, "rule 2 (a): name: expected one that the earlier rule a does not cover"),
        (RULE.replace('"a"', '"*"') + RULE, "the earlier rule * does not cover"),
        (RULE + 'timeout = "soon"', "timeout: expected a duration"),
        (RULE + "timeout = 0", "more than 0"),
        (RULE + "timeout = true", "timeout: expected a duration"),
        (RULE + "nice = -1", "nice: "),
        (RULE + "nice = 20", "nice: "),
        (RULE + 'cwd = "."', "cwd: expected a folder that exists"),
        (RULE + 'cwd = "/no/such/folder"', "cwd: expected a folder that exists"),
        (RULE + 'limits.as = "lots"', "limits.as: expected a size"),
        (RULE + "limits.as = 0", "limits.as: expected a size"),
        (RULE + "limits.nofile = 0", "limits.nofile: "),
        (RULE + f"limits.nproc = {LIMIT_MAX + 1}", f"limits.nproc: expected at most {LIMIT_MAX}"),
        (RULE + "limits.cpu = 1e300", f"limits.cpu: expected at most {LIMIT_MAX}"),
        (RULE + "limits.stack = 1", "unknown key limits.stack"),
        (RULE + 'env.BEDROCK_X = "1"', "begin with BEDROCK_ are reserved"),
        (RULE + 'env."A-B" = "1"', "letters, digits and _"),
        (RULE + "env.A = 1", "env.A: expected a valid string"),
        (RULE + "secrets.A = {}", "secrets.A: expected either env or file"),
        (RULE + 'secrets.A = { env = "B", file = "/b" }', "secrets.A: expected either env or file"),
        (RULE + 'secrets.A = { env = "RULES_TEST_NOT_SET" }', "secrets.A: expected RULES_TEST_NOT_SET in"),
        (RULE + 'secrets.A = { file = "b" }', "secrets.A.file: expected a file, from / on"),
        (RULE + 'secrets.A = { file = "/no/such" }', "secrets.A: expected a file of UTF-8 text"),
        (RULE + 'env.A = "1"\nsecrets.A = { env = "PATH" }', "a variable that env does not set"),
        (RULE + 'fields.x.match = "("', "fields.x.match: expected a regular expression"),
        (RULE + "fields.x.match = 1", "fields.x.match: expected a regular expression"),
        (RULE + "fields.x = {}", "fields.x.match: is required"),
        (RULE + FIELD, "fields.x: expected {x} in argv"),
        # unsafe by construction
        ('[[rule]]\nname = "a"\nargv = ["true"]', "the program's path from / on, got 'true'"),
        ('[[rule]]\nname = "a"\nargv = ["./true"]', "the program's path from / on"),
        ('[[rule]]\nname = "a"\nargv = ["/no/such"]', "a program that can be run"),
        ('[[rule]]\nname = "a"\nargv = ["/bin"]', "a program that can be run"),
        ('[[rule]]\nname = "a"\nargv = ["{x}"]\n' + FIELD, "the same for every job"),
        ('[[rule]]\nname = "a"\nargv = ["/bin/{x}"]\n' + FIELD, "the same for every job"),
        (
            '[[rule]]\nname = "a"\nargv = ["/bin/true", "{x}"]',
            '{x} has no pattern, expected fields."x".match',
        ),
        ('[[rule]]\nname = "a"\nargv = ["/bin/true", "--x={x}"]\n' + FIELD, "{x} as a whole argument"),
        ('[[rule]]\nname = "a"\nargv = ["/bin/true", "{x}.png"]\n' + FIELD, "{x} as a whole argument"),
        ('[[rule]]\nname = "a"\nargv = ["/bin/true", "{x}{x}"]\n' + FIELD, "{x} as a whole argument"),
        ('[[rule]]\nname = "a"\nargv = ["/bin/true", "{{x}}"]\n' + FIELD, "{x} as a whole argument"),
    ],
)
def test_what_is_refused(write: Write, text: str, words: str) -> None:
    path = write(text)
    with pytest.raises(BadRules) as refused:
        read_rules(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert words in str(refused.value)


def test_files_that_cannot_be_trusted_or_read(write: Write, tmp_path: Path) -> None:
    path = write(RULE)
    path.chmod(0o666)
    with pytest.raises(BadRules, match="not everybody can write"):
        read_rules(path)
    path.chmod(0o644)
    with pytest.raises(BadRules, match="No such file"):
        read_rules(tmp_path / "none.toml")
    with pytest.raises(BadRules, match=f"at most {FILE_BYTES_MAX} bytes"):
        read_rules(write("#" * (FILE_BYTES_MAX + 1)))
    rules = "".join(RULE.replace('"a"', f'"a{number}"') for number in range(RULES_MAX + 1))
    with pytest.raises(BadRules, match=f"1 to {RULES_MAX} tables"):
        read_rules(write(rules))


def with_argv(write: Write, *argv: str) -> Rules:
    return read_rules(write(f'[[rule]]\nname = "a"\nargv = {json.dumps(argv)}\nfields.x.match = ".*"\n'))


@pytest.mark.parametrize("shell", sorted(SHELLS))
@pytest.mark.parametrize("option", ["-c", "-ec", "-lc"])
def test_shells_get_no_fields(write: Write, programs: Callable[[str], str], shell: str, option: str) -> None:
    program = programs(shell)
    for argv in ([option, "{x}"], [option, 'echo "$1"', "--", "{x}"], ["-o", "pipefail", option, "{x}"]):
        with pytest.raises(BadRules, match="a shell interprets its arguments"):
            with_argv(write, program, *argv)
        with pytest.raises(BadRules, match="argv: expected"):
            with_argv(write, "/usr/bin/env", program, *argv)
    assert with_argv(write, program, "/opt/script", "{x}")


@pytest.mark.parametrize("relay", sorted(RELAYS))
def test_relays_get_no_fields(write: Write, programs: Callable[[str], str], relay: str) -> None:
    with pytest.raises(BadRules, match="a shell interprets its arguments"):
        with_argv(write, programs(relay), "host", "ls", "{x}")


@pytest.mark.parametrize("launcher", [*sorted(LAUNCHERS), "python3.11", "bash"])
@pytest.mark.parametrize("argv", [["{x}"], ["-u", "{x}"], ["--", "{x}"], ["a", "-e", "{x}"]])
def test_no_job_chooses_the_program(
    write: Write, programs: Callable[[str], str], launcher: str, argv: list[str]
) -> None:
    program = programs(launcher)
    with pytest.raises(BadRules, match=f"a fixed program after {launcher}"):
        with_argv(write, program, *argv)
    assert with_argv(write, program, "-u", "script", "--", "{x}")


# --- data ----------------------------------------------------------------------------------------------

SHELL_WORDS = [
    "; rm -rf /",
    "$(id)",
    "`id`",
    "&& id",
    "|| id",
    "| sh",
    "> /etc/passwd",
    "< /etc/passwd",
    "a & b",
    "$IFS",
    "${HOME}",
    "$((1+1))",
    "*",
    "?",
    "[a-z]",
    "~",
    "~root",
    "!!",
    "#",
    "\\",
    "'",
    '"',
    "'; id; '",
    '"; id; "',
    "a\nb",
    "\n",
    "\r\n",
    "\t",
    " ",
    "  a  ",
    "",
    "{x}",
    "{y}",
    "{{x}}",
    "%s",
    "%n%n",
    "$0",
    "$@",
    "a=b",
    "=cmd|' /C calc'!A0",
    "@file",
    "+x",
    ":",
    "://",
    "\\\\host\\share",
    "C:\\",
    "CON",
    "NUL",
]
PATHS = [
    "../../etc/passwd",
    "/etc/passwd",
    "..",
    ".",
    "./-rf",
    "/dev/stdin",
    "/proc/self/environ",
    "file:///etc/passwd",
    "a/../b",
    "a//b",
    "....//",
    "%2e%2e%2f",
    "http://169.254.169.254/",
    "ext::sh -c id",
    "/" * 300,
    "a" * 255,
]
UNICODE = [
    "\xe9",
    "e\u0301",
    "\u65e5\u672c",
    "\U0001f600",
    "\U0001f469\u200d\U0001f467",
    "\u202etxt.exe",
    "\u200b",
    "\ufeff",
    "\u2028",
    "\u2029",
    "\x1b[31m",
    "\x07",
    "\x08\x08",
    "\x7f",
    "\x85",
    "\xa0",
    "\uff0e\uff0e\uff0f",
    "\uff1b",
    "\u2010x",
    "\u2013x",
    "\u2212x",
    "\ud7ff",
    "\ue000",
    "\ufffd",
    "\uffff",
    "\U0010ffff",
    "\x01",
    "\x04",
    "\x1a",
    "\u0131",
    "\u017f",
    "\u212a",
]
CODE = [
    "__import__('os').system('id')",
    "{{7*7}}",
    "${jndi:ldap://x}",
    "<script>",
    "' OR 1=1 --",
    "() { :; }; id",
    "LD_PRELOAD=/tmp/x",
    "BASH_FUNC_x%%=() { id; }",
    "\\x00",
    "\\u0000",
    "%00",
    "true",
    "null",
    "1e999",
    "0x10",
    "NaN",
    "a" * VALUE_BYTES_MAX,
]
OPTIONS = [
    "-",
    "--",
    "-rf",
    "--help",
    "--output=/etc/passwd",
    "-o/etc/passwd",
    "-\n",
    "-é",
    "--exec=id",
    "-1",
]
TOO_MUCH = ["\0", "a\0b", "\0-rf", "a" * (VALUE_BYTES_MAX + 1), "é" * (VALUE_BYTES_MAX // 2 + 1)]
CORPUS = [*SHELL_WORDS, *PATHS, *UNICODE, *CODE]
ANYTHING = re.compile(r"(?s).*")
SHOW = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"


def test_the_corpus_is_large() -> None:
    assert len(set(CORPUS) | set(OPTIONS) | set(TOO_MUCH)) >= 120


def arguments_seen(argv: list[str]) -> list[bytes]:
    env = {"PYTHONUTF8": "1"}
    done = subprocess.run([sys.executable, "-SIc", SHOW, *argv[1:]], env=env, capture_output=True, check=True)
    return done.stdout.split(b"\0")


@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_hostile_value_is_one_argument(ascii_only: bool) -> None:
    """However the JSON spells it."""
    rule = Rule("*", ("/p", "before", "{x}", "behind"), {"x": ANYTHING})
    for value in CORPUS:
        argv = rule.fill(json.dumps({"x": value, "y": "other"}, ensure_ascii=ascii_only))
        assert argv == ["/p", "before", value, "behind"]


def test_the_command_gets_them_byte_for_byte() -> None:
    values = CORPUS + OPTIONS
    fields = {f"x{number}": ANYTHING for number in range(len(values))}
    rule = Rule("*", ("/p", "--", *(f"{{{name}}}" for name in fields)), fields)
    argv = rule.fill(json.dumps(dict(zip(fields, values, strict=True))))
    assert arguments_seen(argv) == [b"--", *(value.encode() for value in values)]


@pytest.mark.parametrize("value", [*OPTIONS, *TOO_MUCH])
def test_a_value_that_would_be_more_than_a_value_is_refused(value: str) -> None:
    with pytest.raises(JobRefused, match="field x: expected"):
        Rule("*", ("/p", "{x}"), {"x": ANYTHING}).fill(json.dumps({"x": value}))


@pytest.mark.parametrize("value", OPTIONS)
def test_behind_two_hyphens_anything_may_begin_with_one(value: str) -> None:
    rule = Rule("*", ("/p", "--", "{x}"), {"x": ANYTHING})
    assert rule.fill(json.dumps({"x": value})) == ["/p", "--", value]


@pytest.mark.parametrize("value", TOO_MUCH)
def test_two_hyphens_help_against_nothing_else(value: str) -> None:
    with pytest.raises(JobRefused):
        Rule("*", ("/p", "--", "{x}"), {"x": ANYTHING}).fill(json.dumps({"x": value}))


def test_a_pattern_must_match_the_whole_value() -> None:
    """Also where it is written as if it were searched for."""
    rule = Rule("*", ("/p", "{x}"), {"x": re.compile(r"^[a-z]{1,8}$")})
    for value in CORPUS:
        asked = json.dumps({"x": value})
        if re.fullmatch("[a-z]{1,8}", value):
            assert rule.fill(asked) == ["/p", value]
        else:
            with pytest.raises(JobRefused, match=r"matches \^\[a-z\]"):
                pytest.fail(f"taken: {rule.fill(asked)}")


def test_classes_of_a_pattern_are_ascii(write: Write) -> None:
    path = write('[[rule]]\nname = "a"\nargv = ["/bin/true", "{x}"]\nfields.x.match = \'\\d+\'\n')
    rule = read_rules(path).rules[0]
    assert rule.fill('{"x":"12"}') == ["/bin/true", "12"]
    with pytest.raises(JobRefused):
        rule.fill('{"x":"\u0661\u0662"}')


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ('{"x":{"y":2.50}}', "2.50"),
        ('{"x":{"y":12345678901234567890}}', "12345678901234567890"),
        ('{"x":{"y":true}}', "true"),
        ('{ "x" : { "y" : "a" , "y" : "b" } }', "b"),
        ('{"x":{"y":"\\u00e9\\n"}}', "é\n"),
    ],
)
def test_numbers_and_truth_are_spelled_as_in_the_job(data: str, value: str) -> None:
    assert Rule("*", ("/p", "{x.y}"), {"x.y": ANYTHING}).fill(data) == ["/p", value]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("{}", "the job has none"),
        ('{"x":"y"}', "the job has none"),
        ('{"x":{}}', "the job has none"),
        ('{"x.y":"a"}', "the job has none"),
        ('{"x":{"y":null}}', "a string, a number, true or false"),
        ('{"x":{"y":["a"]}}', "a string, a number, true or false"),
        ('{"x":{"y":{"z":1}}}', "a string, a number, true or false"),
        ('{"x":{"y":"\\ud800"}}', "field x.y: "),
        ('{"x":{"y":-1}}', "does not begin with a hyphen"),
    ],
)
def test_data_without_a_value_is_refused(data: str, words: str) -> None:
    with pytest.raises(JobRefused, match=re.escape(words)):
        Rule("*", ("/p", "{x.y}"), {"x.y": ANYTHING}).fill(data)


def test_a_pattern_without_an_end_is_given_up() -> None:
    """And nothing of the clock that did it is left."""
    before = signal.getsignal(signal.SIGVTALRM)
    rule = Rule("*", ("/p", "{x}"), {"x": re.compile("(a+)+b")})
    with pytest.raises(JobRefused, match=f"more than {MATCH_S} s"):
        rule.fill(json.dumps({"x": "a" * 100}))
    assert signal.getsignal(signal.SIGVTALRM) is before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
    assert rule.fill('{"x":"aab"}') == ["/p", "aab"]
