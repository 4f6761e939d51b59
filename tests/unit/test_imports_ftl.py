"""FTL's directives in Go and its annotation in Kotlin and Java, in the forms in which people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bedrockjobs.base.config import IMPORT_TOKENS_MAX, SCHEDULE_FILE_CHARS_MAX, SCHEDULES_PER_SYNC_MAX
from bedrockjobs.imports import ftl
from bedrockjobs.imports.imported import ImportedSchedule, Unreadable
from tests.effort import examples

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def only(text: str, file: str = "") -> ImportedSchedule:
    """Read a file with one directive."""
    (found,) = ftl.parse_ftl(text, file=file)
    return found


# --- Go ----------------------------------------------------------------------------------------------------

GO = """
package time

//ftl:cron 0 0 * * *
func ExampleJob(ctx context.Context) error {
	return nil
}

// Hourly is another.
//
//ftl:cron 5s
//ftl:export
func Hourly(ctx context.Context) (err error) {
"""


def test_directives() -> None:
    """With FTL's time-outs, in UTC; five, six and seven fields and the short forms."""
    first, second = ftl.parse_ftl(GO)
    assert (first.name, first.repeat, first.place) == ("time.exampleJob", "CRON 0 0 * * *", "line 4")
    assert first.options == {"run_timeout": "5m", "grace": "1m"}
    assert first.old_times(NOW, 1) == [datetime(2026, 11, 22, tzinfo=UTC)]
    assert (second.name, second.repeat) == ("time.hourly", "CRON 5s")


@pytest.mark.parametrize(
    "verb",
    [
        "func A(ctx context.Context) error {",
        "func A(ctx context.Context) error { return nil }",
        "func A(\n\tctx context.Context,\n) (\n\terror,\n) {",
        "func A(ctx context.Context) {",
        "func A(_ context.Context) (err error) {",
        "func A(ctx context.Context, c other.TimeClient) error {",
        "func A(ctx context.Context, t ftl.TopicHandle[Event, ftl.SinglePartitionMap[Event]]) error {",
        "func A(ctx context.Context, d ftl.DatabaseHandle[MyConfig], s ftl.Secret[string]) error {",
        "func A(ctx context.Context, c ftl.Config[string]) error {",
        "func A(ctx context.Context, db MyDB, key ApiSecret, a, b TimeClient) error {",
        "/* why */\nfunc A(ctx context.Context) error {",
        "//ftl:verb\n// More of it.\nfunc A(ctx context.Context) error {",
    ],
)
def test_verbs_in_go(verb: str) -> None:
    """A function on one line or several, with its injected clients and other directives."""
    found = only(f"package a\n\n//ftl:cron\t0 0 * * * \r\n{verb}\n")
    assert (found.name, found.repeat, found.place, found.refused) == ("a.a", "CRON 0 0 * * *", "line 3", "")


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("SQLBackup", "sqlBackup"),
        ("ExampleJob", "exampleJob"),
        ("HTML", "html"),
        ("RunSQLJob", "runSqlJob"),
        ("GL11Version", "gl11Version"),
        ("already", "already"),
        ("A_b", "a_B"),
    ],
)
def test_names_are_those_of_the_schema(name: str, verb: str) -> None:
    """More than the first letter may become lower case."""
    assert only(f"package m\n//ftl:cron 5s\nfunc {name}(ctx context.Context) error {{").name == f"m.{verb}"


@pytest.mark.parametrize(
    "text",
    [
        "/*\n//ftl:cron 5s\nfunc A(ctx context.Context) error {\n*/",
        "var s = `\n//ftl:cron 5s\nfunc A(ctx context.Context) error {\n`",
        "// ftl:cron 5s\nfunc A(ctx context.Context) error {}",
        "// //ftl:cron 5s\nfunc A(ctx context.Context) error {}",
        "var x = 1 //ftl:cron 5s\nfunc A(ctx context.Context) error {}",
        "//ftl:cronjob 5s\nfunc A(ctx context.Context) error {}",
        'var s = "//ftl:cron 5s"\nfunc A(ctx context.Context) error {}',
        "var r = '\"'\nfunc A(ctx context.Context) error {} // \"//ftl:cron",
    ],
)
def test_what_only_looks_like_a_directive(text: str) -> None:
    """Comments, raw texts, and comments that do not begin as directives do."""
    assert ftl.parse_ftl(f"package a\n{text}\n", file="a.go") == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("//ftl:cron 0 0 * * *\nfunc A(ctx context.Context, r Req) error {", "no request"),
        ("//ftl:cron 0 0 * * *\nfunc A(ctx context.Context) (Resp, error) {", "no response"),
        ("//ftl:cron 0 0 * * *\nfunc A(ctx context.Context) Resp {", "no response"),
        ("//ftl:cron 5s\nfunc A(ctx context.Context, name string) error {", "no request"),
        ("//ftl:cron 5s\nfunc A(ctx context.Context, m map[string]int) error {", "no request"),
        ("//ftl:cron 5s\nfunc A(ctx context.Context, u ftl.Unit) error {", "no request"),
        ("//ftl:cron 0 9 * * MON-FRI\nfunc A(ctx context.Context) error {", "a weekday such as Mon"),
        ("//ftl:cron @daily\nfunc A(ctx context.Context) error {", "a duration such as 30s"),
        ("//ftl:cron 0 09 * * *\nfunc A(ctx context.Context) error {", "without a zero before them, not 09"),
        ("//ftl:cron 0 0 * *\nfunc A(ctx context.Context) error {", "5 to 7 fields"),
        ("//ftl:cron 0 0 30 2 *\nfunc A(ctx context.Context) error {", "would never fire"),
        ("//ftl:cron 0 0 * * *\n", "a verb below"),
        ("//ftl:cron\nfunc A(ctx context.Context) error {", "expected an expression after //ftl:cron"),
        ("//ftl:cron  \nfunc A(ctx context.Context) error {", "expected an expression after //ftl:cron"),
        ("//ftl:cron:5s\nfunc A(ctx context.Context) error {", "expected an expression after //ftl:cron"),
        ("//ftl:cron 5s\n\nfunc A(ctx context.Context) error {", "without an empty line"),
        ("//ftl:cron 5s\nvar x = 1\nfunc A(ctx context.Context) error {", "a verb below"),
        ("//ftl:cron 5s\nfunc (s *S) A(ctx context.Context) error {", "not a method"),
        ("//ftl:cron 5s\nfunc A[T any](ctx context.Context) error {", "not a generic one"),
        ("//ftl:cron 5s\npackage a\nfunc A(ctx context.Context) error {", "a verb below"),
    ],
)
def test_directives_that_are_refused(text: str, why: str) -> None:
    """With their line; FTL also refuses them, or would not run them."""
    found = only(text)
    assert why in found.refused
    assert found.place == "line 1"


def test_a_directive_in_a_function_is_refused() -> None:
    """It is not above a function."""
    found = only("func A() {\n//ftl:cron 5s\nx := func(ctx context.Context) error {}\n}\n")
    assert (found.place, "a verb below" in found.refused) == ("line 2", True)


def test_a_directive_without_a_verb_takes_none_from_the_next() -> None:
    """The first directive is refused alone, and the second one is read."""
    lost, found = ftl.parse_ftl(f"//ftl:cron 0 5 * * *\n{GO}")[:2]
    assert "a verb below" in lost.refused
    assert found.repeat == "CRON 0 0 * * *"


def test_two_directives_of_one_verb_are_refused_with_both_lines() -> None:
    """It is unclear which one was meant."""
    found = ftl.parse_ftl("package a\n//ftl:cron 5s\n//ftl:cron 6s\nfunc A(ctx context.Context) error {\n")
    assert ["line 2 and line 3 are for one verb" in entry.refused for entry in found] == [True, True]


def test_types_that_the_file_declares() -> None:
    """An alias of an injected type is not a request; a struct is."""
    text = "package a\n//ftl:cron 5s\nfunc A(ctx context.Context, p Thing) error {}\ntype Thing "
    assert only(text + "= ftl.TopicHandle[Event, ftl.SinglePartitionMap[Event]]\n").warnings == ()
    assert only(text + "func(context.Context, Req) (Resp, error)\n").warnings == ()
    assert "no request" in only(text + "struct {\n}\n").refused
    guessed = only(text.removesuffix("type Thing "))
    assert (guessed.refused, guessed.repeat) == ("", "CRON 5s")
    assert guessed.warnings == ("Thing is taken for something that FTL injects, such as a topic or a client",)


def test_ftl_reads_ranges_to_seven_by_its_library() -> None:
    """They are rewritten, with a warning."""
    found = only("package a\n//ftl:cron 0 9 * * 1-7\nfunc A(ctx context.Context) error {}\n")
    assert found.repeat == "CRON 0 9 * * MON-SAT"
    assert "hashicorp/cronexpr reads 7 as 0" in found.warnings[0]


# --- Kotlin ------------------------------------------------------------------------------------------------


def test_kotlin() -> None:
    """An annotation, with others between it and the verb."""
    text = """package ftl.echo
@Export
@Cron("0 */3 * * * *")
@Verb
fun nightly() {
}
@Cron("Mon")
fun weekly(context: Context): Unit {
"""
    first, second = ftl.parse_ftl(text)
    assert (first.name, first.repeat, first.place) == ("echo.nightly", "CRON 0 */3 * * * *", "line 3")
    assert first.our_times(NOW, 1) == [datetime(2026, 11, 21, 12, 3, tzinfo=UTC)], "seconds come first"
    assert (second.name, second.repeat) == ("echo.weekly", "CRON Mon")


@pytest.mark.parametrize(
    "text",
    [
        '@Cron("5m")\nfun a() {}',
        '@Cron("5m") fun a() {}',
        '@Cron ( "5m" ) fun a() = work()',
        '@Cron(value = "5m") fun a() {}',
        '@Cron(\n    "5m",\n)\nfun a() {}',
        '@Cron( // often\n  /* very */ "5m"\n) fun a() {}',
        '@Export @Cron("5m") @Verb fun a() {}',
        '@Cron("5m")\n@Retry<Any>(count = 3, why = "@Cron(\\"1m\\")")\nfun a() {}',
        '@[Export Cron("5m")] fun a() {}',
        '@xyz.block.ftl.Cron("5m") fun a() {}',
        'import xyz.block.ftl.Cron as Every\n@Every("5m") fun a() {}',
        '@Cron("""5m""") fun a() {}',
        '@Cron("5\\u006d") fun a() {}',
        '@Cron("5m") suspend fun a() {}',
        '@Cron("5m") internal suspend fun a(context: xyz.block.ftl.Context): Unit {}',
        '@Cron("5m")\nfun a(\n    context: Context,\n    times: TimeClient,\n): kotlin.Unit {}',
        '@Cron("5m") fun `a`() {}',
        '@Cron("5m") fun a(@Config("x") x: String, @Secret("y") y: Map<String, Int>, t: EchoTopic) {}',
        '@Cron("5m") fun a(db: UserDatabase, @xyz.block.ftl.Egress("z") url: String, l: LeaseClient?) {}',
        '/** KDoc */\n@Cron("5m")\n// why\nfun a() {}',
        'class C {\n  @Cron("5m") fun a() {}\n}',
        'val x = "${if (y) "}" else "@Cron"}"\n@Cron("5m") fun a() {}',
    ],
)
def test_the_forms_of_the_annotation(text: str) -> None:
    """All forms mean the same."""
    found = only(f"package ftl.echo\n{text}\n", "Echo.kt")
    assert (found.name, found.repeat, found.refused) == ("echo.a", "CRON 5m", "")


@pytest.mark.parametrize(
    "text",
    [
        '// @Cron("5m") fun a() {}',
        '/* @Cron("5m")\nfun a() {} */',
        '/* /* nested */ @Cron("5m") fun a() {} */',
        'val s = """\n@Cron("5m")\nfun a() {}\n"""',
        'val s = "@Cron(\\"5m\\") fun a() {}"',
        'val s = "${"@Cron(\\"5m\\") fun a() {}"}"',
        'import org.other.Cron\n@Cron("5m") fun a() {}',
        '@org.other.Cron("5m") fun a() {}',
        '@CronJob("5m") fun a() {}',
        "//ftl:cron 5m\nfun a() {}",
    ],
)
def test_what_only_looks_like_an_annotation(text: str) -> None:
    """Comments, texts, and annotations of others."""
    assert ftl.parse_ftl(f"package ftl.echo\n{text}\n", file="Echo.kt") == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('@Cron("0 0 " + "* * *") fun a() {}', "not texts joined by +"),
        ('@Cron("$X") fun a() {}', "not one with a value in it"),
        ('@Cron("""${X}""") fun a() {}', "not one with a value in it"),
        ("@Cron(DAILY) fun a() {}", "not 'DAILY'"),
        ('@Cron("5m".trim()) fun a() {}', "with one text"),
        ("@Cron fun a() {}", "not none"),
        ("@Cron() fun a() {}", "not none"),
        ('@Cron("") fun a() {}', "not an empty one"),
        ('@Cron("5m", "6m") fun a() {}', "not 2 arguments"),
        ('@Cron("5m") val x = 3', "a verb below"),
        ('@Cron("5m")', "a verb below"),
        ('@get:Cron("5m") fun a() {}', "a verb below"),
        ('@Cron("5m") fun a(): String = ""', "no response"),
        ('@Cron("5m") fun a(): Map<String, Int> {}', "no response"),
        ('@Cron("5m") fun a(request: Req) {}', "no request"),
        ('@Cron("5m") fun a(name: String) {}', "no request"),
        ('@Cron("5m") fun a(names: List<String>) {}', "no request"),
        ('@Cron("5m") fun <T> a() {}', "not a generic one"),
        ('@Cron("5m") fun String.a() {}', "not of a class"),
        ('@Cron("0 0 31 2 *") fun a() {}', "would never fire"),
    ],
)
def test_annotations_that_are_refused(text: str, why: str) -> None:
    """With their line."""
    found = only(f"package ftl.echo\n\n{text}\n", "Echo.kt")
    assert why in found.refused
    assert (found.place, found.repeat) == ("line 3", "")


def test_one_name_twice_is_refused_with_both_lines() -> None:
    """In one file there is one verb of a name."""
    found = ftl.parse_ftl('package a\n@Cron("5m") fun a() {}\n@Cron("6m") fun a() {}\n')
    assert ["line 2 and line 3 have one name" in entry.refused for entry in found] == [True, True]


# --- Java --------------------------------------------------------------------------------------------------

JAVA = """package com.example;

import io.quarkus.logging.Log;
import xyz.block.ftl.Cron;

public class Pulse {

    @Cron("10s")
    public void tenSeconds(GetNonceClient client, AppendLogClient log) throws Exception {
        Log.infof("Cron job triggered, nonce %s", client.getNonce());
    }

    @Export
    @Cron("0 * * * * ")
    void hourly() {
    }
}
"""


@pytest.mark.parametrize("file", ["Pulse.java", "-"])
def test_java(file: str) -> None:
    """A method of a class, with injected parameters; without a file name the text shows the language."""
    first, second = ftl.parse_ftl(JAVA, file=file)
    assert (first.name, first.repeat, first.place) == ("example.tenSeconds", "CRON 10s", "line 8")
    assert (second.name, second.repeat, second.warnings) == ("example.hourly", "CRON 0 * * * *", ())


@pytest.mark.parametrize(
    "text",
    [
        '@Cron("5m") void a() {}',
        '@Cron(value = "5m")\n@Verb public static final synchronized void a() {}',
        '@xyz.block.ftl.Cron("5m") /* why */ void a(final EchoClient client) {}',
        '@Cron("5m") void a(@Config("x") String x, @Secret("y") Map<String, Integer> y, TestTopic t) {}',
        '@Cron("\\u0035m") void a() {}',
        '@Cron("""\n  5m""") void a() {}',
        '// @Cron("6m") void b() {}\n@Cron("5m") void a() { char c = \'"\'; }',
    ],
)
def test_methods_in_java(text: str) -> None:
    """In the forms in which people write them."""
    found = only(f"package com.example;\nclass C {{\n{text}\n}}\n", "C.java")
    assert (found.name, found.repeat, found.refused, found.warnings) == ("example.a", "CRON 5m", "", ())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('@Cron("5m") String a() {}', "no response"),
        ('@Cron("5m") List<String> a() {}', "no response"),
        ('@Cron("5m") void[] a() {}', "no response"),
        ('@Cron("5m") void a(EchoRequest request) {}', "no request"),
        ('@Cron("5m") void a(String name) {}', "no request"),
        ('@Cron("5m") <T> void a() {}', "not a generic one"),
        ('@Cron("5m") String a = "b";', "a verb below"),
        ('@Cron("5m") class D {}', "a verb below"),
        ('@Cron("5" + "m") void a() {}', "not texts joined by +"),
        ("@Cron(DAILY) void a() {}", "not 'DAILY'"),
    ],
)
def test_methods_in_java_that_are_refused(text: str, why: str) -> None:
    """With their line."""
    found = only(f"package com.example;\nclass C {{\n{text}\n}}\n", "C.java")
    assert why in found.refused
    assert found.place == "line 3"


# --- both --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        ("a.kt", '\n\nval x = "a\n', 3),
        ("a.kt", '\n"""a\n', 2),
        ("a.kt", '\n"${ "a" \n\n', 2),
        ("a.kt", "\n/* /* */\n", 2),
        ("a.go", "\n\nvar x = `a\n", 3),
        ("a.go", '\nvar x = "a\n', 2),
        ("a.go", "\n/* a\n", 2),
        ("a.java", '\n\nString x = "a\n', 3),
        ("a.java", "\n/* a\n", 2),
    ],
)
def test_files_that_cannot_be_read_say_the_line(file: str, text: str, line: int) -> None:
    """At the place where an unclosed part begins."""
    with pytest.raises(Unreadable, match=f"line {line}: expected"):
        ftl.parse_ftl(text, file=file)


def test_files_that_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """In characters, in words (by day a fifth of them), in schedules."""
    words = examples(IMPORT_TOKENS_MAX // 5, night=IMPORT_TOKENS_MAX)
    monkeypatch.setattr(f"{ftl.__name__}.IMPORT_TOKENS_MAX", words)
    with pytest.raises(Unreadable, match=f"at most {SCHEDULE_FILE_CHARS_MAX} characters"):
        ftl.parse_ftl(" " * (SCHEDULE_FILE_CHARS_MAX + 1))
    with pytest.raises(Unreadable, match=f"line 1: expected at most {words} words"):
        ftl.parse_ftl(";" * (words + 1), file="a.go")
    many = "@Cron fun a(){}\n" * (SCHEDULES_PER_SYNC_MAX + 1)
    with pytest.raises(Unreadable, match=f"at most {SCHEDULES_PER_SYNC_MAX} schedules"):
        ftl.parse_ftl(many)
