"""What a module or a run may do to its process, in each way of getting one.

A module's import has the same effect in all of them; a run has none on the next one.
"""

from __future__ import annotations

import pytest

from tests.effort import PROFILE, crossed, examples
from tests.worker.warm.conftest import HEAD, WAYS, outcomes

pytestmark = pytest.mark.usefixtures("own_watchdog")

SEEN = """
import atexit, ctypes, gc, io, locale, logging, resource, socket, tempfile

def seen():
    def shown(number):
        found = signal.getsignal(number)
        return getattr(found, "__name__", repr(found))
    return {
        "umask": os.umask(os.umask(0o22)), "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "cwd": os.getcwd(), "set": os.environ.get("MADE"), "kept": os.environ.get("HOME"),
        "below": subprocess.getoutput("echo $MADE.$HOME"), "temporary": tempfile.tempdir,
        "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "alarm": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "signals": [shown(n) for n in (signal.SIGUSR1, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)],
        "hook": sys.excepthook.__name__, "recursion": sys.getrecursionlimit(), "gc": gc.isenabled(),
        "threads": len(os.listdir("/proc/self/task")), "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "cpus": len(os.sched_getaffinity(0)), "zone": list(time.tzname),
        "timeout": socket.getdefaulttimeout(),
        "locale": locale.setlocale(locale.LC_ALL), "trace": sys.gettrace() is None,
        "blocking": [os.get_blocking(at) for at in (1, 2)], "wakeup": signal.set_wakeup_fd(-1),
        "timers": open("/proc/self/timers").read(), "level": logging.root.level,
    }
"""

ASYNC = "async"
"""The way of async functions, which share the process of one event loop."""

ALL_WAYS = {**WAYS, ASYNC: WAYS["reused"]}


def in_way(way, text):
    """Return the text of a module for a way."""
    return text.replace("\ndef f(job)", "\nasync def f(job)") if way == ASYNC else text


def without_loop(found):
    """Return outcomes without what differs in the process of a loop: its thread, SIGINT, and folder."""
    return [
        (verb, code, {name: shown(name, value) for name, value in data.items() if name != "threads"})
        for verb, code, data in found
    ]


def shown(name, value):
    if name == "signals":
        return value[:3]
    return None if name == "temporary" and "bedrock-loop-" in str(value) else value


WRAPPER = """
class Wrapper:
    def __init__(self, to): self.to = to
    def write(self, text): return self.to.write(text)
    def flush(self): self.to.flush()
"""

MODULES = {
    "wraps stdout": f"{WRAPPER}\nsys.stdout, sys.stderr = Wrapper(sys.stdout), Wrapper(sys.stderr)",
    "takes the buffer of stdout": "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')",
    "detaches stdout": "sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8')",
    "closes stdout": "sys.stdout.close()",
    "has no stdout": "sys.stdout = sys.stderr = None",
    "has a stdout that cannot be flushed": (
        f"{WRAPPER}\nWrapper.flush = lambda self: 1 / 0\nsys.stdout = Wrapper(sys.stdout)"
    ),
    "reaps every child": (
        "def reap(*_):\n"
        "    try:\n"
        "        while os.waitpid(-1, os.WNOHANG)[0]: pass\n"
        "    except ChildProcessError: pass\n"
        "signal.signal(signal.SIGCHLD, reap)"
    ),
    "ignores its children": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "does much to its process": """
signal.alarm(1000)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
def handler(*_): pass
for number in (signal.SIGUSR1, signal.SIGTERM): signal.signal(number, handler)
os.umask(0o27)
resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.chdir("/")
os.environ["MADE"] = "on import"
del os.environ["HOME"]
tempfile.tempdir = "/var/tmp"
def hook(*_): pass
sys.excepthook = hook
sys.setrecursionlimit(3000)
gc.disable()
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
thread = threading.Thread(target=len, args=("",)); thread.start(); thread.join()
""",
}
"""What a module does on import."""

SPAWNED = examples(1, night=2)
"""Runs with an interpreter each, with which the others are compared."""


@pytest.mark.parametrize(("does", "way"), crossed(MODULES, [name for name in ALL_WAYS if name != "spawn"]))
async def test_what_a_module_does_on_import_is_the_same_in_each_way(server, ran, write, does, way):
    """In spite of it each run ends as with a new interpreter, and finds the same."""
    say = "" if does in ("closes stdout", "has no stdout") else "print('said') or "
    text = HEAD.replace("@job", f"{SEEN}\n{MODULES[does]}\n\n@job")
    found, said = {}, {}
    for name in ("spawn", way):
        before = len(server.reports)
        runs = SPAWNED if name == "spawn" else 2
        await ran(
            ALL_WAYS[name], *[f"({say}seen())"] * runs, module=write(in_way(name, text)), first=before + 1
        )
        reports = server.reports[before:]
        found[name] = outcomes([(report.verb, report.given) for report in reports])
        lines = [server.output.get(report.given["runID"], []) for report in reports]
        said[name] = [[text for stream, text in each if stream == "out"] for each in lines]
    first = found["spawn"][0]
    assert first[0] == ("FailJob" if "cannot be flushed" in does else "FinishJob"), first
    shared = without_loop if way == ASYNC else list
    assert found["spawn"] == [first] * SPAWNED
    assert shared(found[way]) == shared([first] * 2)
    assert said == {"spawn": [said["spawn"][0]] * SPAWNED, way: [said["spawn"][0]] * 2}
    assert said["spawn"][0] == (["said"] if say else [])


async def test_an_alarm_of_a_module_rings_in_the_run_and_leaves_the_others_alone(ran, write):
    """Its time begins with each run, and it does not meet who forks them."""
    text = HEAD.replace("@job", "signal.setitimer(signal.ITIMER_REAL, 1.5)\n\n@job")
    for way in (WAYS["fork"], WAYS["reused"]):
        slow = [f"[wait_for(str({number})) for _ in range(1)]" for number in (1, 2)]
        found = await ran(way, *slow, "pass", module=write(text))
        assert [given.get("error", "").partition("\n")[0] for _, given in found[-3:]] == ["SIGALRM"] * 2 + [
            ""
        ]


DEEDS = {
    "an alarm": "signal.alarm(60)",
    "a timer": "signal.setitimer(signal.ITIMER_VIRTUAL, 60)",
    "a timer of C": "ctypes.CDLL(None).timer_create(1, None, ctypes.byref(ctypes.c_void_p()))",
    "a wrapped stdout": "sys.stdout = io.StringIO()",
    "a wrapped stderr": "sys.stderr = io.StringIO()",
    "a buffer that is closed": "io.TextIOWrapper(sys.stdout.buffer)",
    "a closed stdout": "sys.stdout.close()",
    "a closed stderr": "sys.stderr.close()",
    "a detached stdout": "sys.stdout = io.TextIOWrapper(sys.stdout.detach())",
    "no stdout": "sys.stdout = sys.stderr = None",
    "a thread": "__import__('_thread').start_new_thread(time.sleep, (60,))",
    "a thread of C": "__import__('faulthandler').dump_traceback_later(60)",
    "blocked signals": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})",
    "an ignored signal": "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "a caught signal": "signal.signal(signal.SIGUSR1, print)",
    "another handler": "signal.signal(signal.SIGINT, print)",
    "ignored children": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "a limit": "resource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))",
    "a umask": "os.umask(0o77)",
    "a low priority": "os.nice(1)",
    "handles that do not block": "os.set_blocking(1, False)",
    "a wakeup": "signal.set_wakeup_fd(os.pipe2(os.O_NONBLOCK)[1])",
    "a recursion limit": "sys.setrecursionlimit(5000)",
    "a trace": "sys.settrace(lambda *_: None)",
    "no garbage collection": "gc.disable()",
    "a time zone": "os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()",
    "a locale": "locale.setlocale(locale.LC_ALL, 'C')",
    "a timeout of sockets": "socket.setdefaulttimeout(1)",
    "another environ": "os.environ = {}",
    "a child": "subprocess.Popen(['sleep', '60'])",
}
"""What a run leaves, each of which ends its process."""

HARMLESS = {
    "closed handles": "os.close(1); os.close(2)",
    "another handle 1": "os.dup2(os.open(os.devnull, os.O_WRONLY), 1)",
    "another handle 2": "os.dup2(os.open(os.devnull, os.O_WRONLY), 2)",
    "a folder": "os.chdir('/')",
    "variables": "os.environ['MADE'] = '1'; del os.environ['HOME']",
    "variables of C": "os.putenv('MADE', '1'); os.unsetenv('HOME')",
    "a closed stdin": "os.close(0)",
    "a thread that has ended": "t = threading.Thread(target=len, args=('',)); t.start(); t.join()",
    "a child that has ended": "os.system('true')",
    "half of a line": "print('half', end='')",
    "the folder of temporary files": "tempfile.tempdir = '/'",
}
"""What is made good before the next run, in the same process."""

BY_DAY = {"spawn": slice(0, None, 12), "fork": slice(0, None, 4), ASYNC: slice(1, None, 5)}
"""The deeds by day in each way, all in the one that is left out. An interpreter for each run has no next run
that they could meet."""

INNOCENT = "(print('said') or print('said', file=sys.stderr) or {**seen(), 'pid': os.getpid()})"


@pytest.mark.parametrize("way", ALL_WAYS)
async def test_what_a_run_does_to_its_process_meets_no_other(server, ran, write, way):
    """Each deed counts as done, and the run after it finds what the first one of all found."""
    text = in_way(way, HEAD.replace("@job", f"{SEEN}\n@job"))
    names = [*DEEDS, *HARMLESS]
    if PROFILE != "random":
        names = names[BY_DAY.get(way, slice(None))]
    if way == ASYNC:  # nothing shows the variables of C, and only children see them
        names = [name for name in names if name != "variables of C"]
    deeds = [do for name in names for do in ({**DEEDS, **HARMLESS}[name], INNOCENT)]
    if way == "spawn":  # they share nothing; it is to be seen that the deed itself is no failure
        deeds = [{**DEEDS, **HARMLESS}[name] for name in names]
    found = await ran(ALL_WAYS[way], INNOCENT, *deeds, module=write(text))
    guilty = found[1:] if way == "spawn" else found[1::2]
    assert {
        name: (verb, given.get("exitCode"))
        for name, (verb, given) in zip(names, guilty, strict=True)
        if (verb, given.get("exitCode")) != ("FinishJob", 0)
    } == {}
    if way == "spawn":
        return
    first, pids = found[0][1]["data"], {}
    before = first.pop("pid")
    for number, name in enumerate(names):
        verb, given = found[2 + 2 * number]
        assert verb == "FinishJob", name
        pids[name] = given["data"].pop("pid")
        if way == ASYNC:
            assert without_loop([(verb, 0, given["data"])]) == without_loop([(verb, 0, first)]), name
        else:
            assert given["data"] == first, name
        assert sorted(server.output[given["runID"]]) == [("err", "said"), ("out", "said")], name
    if way == "reused":
        for name in names:
            assert (pids[name] == before) == (name in HARMLESS), name
            before = pids[name]


async def test_progress_is_told_beside_what_is_printed(server, ran, write, way):
    """Whatever was printed before, and where stdout leads; a long message is cut."""
    progress = "__import__('bedrock_worker').current_run().progress"
    long = "x" * 1_200
    await ran(
        way,
        f"print('.', end=''); {progress}(0.4, 'half\\nway'); print('!')",
        f"sys.stdout.close(); {progress}(0.5)",
        f"{progress}(1, '{long}')",
        f"{progress}(0.125, '100 ::')",
    )
    assert [request.given["progress"] for request in server.of("UpdateJob")] == [
        {"percent": 40, "message": "half way"},
        {"percent": 50, "message": ""},
        {"percent": 100, "message": "x" * 1_000},
        {"percent": 12.5, "message": "100 ::"},
    ]
    assert server.output[101] == [("out", ".!")]
    assert [server.output.get(run, []) for run in (102, 103, 104)] == [[]] * 3


async def test_progress_of_a_function_that_closed_its_handles_meets_no_file_of_its(server, ran, way):
    closes = "os.closerange(3, 99); files = [os.open(f'f{n}', os.O_CREAT | os.O_RDWR) for n in range(60)]"
    await ran(
        way,
        f"{closes}; __import__('bedrock_worker').current_run().progress(0.4); print(sum(map(len,"
        " (os.read(file, 9) for file in files))))",
    )
    assert ("out", "0") in server.output[101]
    assert [request.given["progress"]["percent"] for request in server.of("UpdateJob")] == [40]
