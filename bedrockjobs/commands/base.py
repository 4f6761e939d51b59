"""What every command has, and how one is read from headers or from JSON.

A command is declared once, as a class whose name is its verb and whose attributes say all there is to say
about it. The raw parser, the HTTP route, the OpenAPI description, the clients, ``bedrockjobs call`` and the
reference page are derived from the class. What it *does* is a function marked ``@handles(TheCommand)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema

from bedrockjobs.base import json_schemas, jsontext
from bedrockjobs.base.config import JSON_VALUES_MAX, SLIPS_LOOKED_AT_MAX
from bedrockjobs.base.errors import BadArguments
from bedrockjobs.base.wire import (
    Escaped,
    RawJSON,
    Spliced,
    Whole,
    Wire,
    command_error,
    invalid_command,
    one_slip,
    wire_name,
)

ORDINARY_HEADERS = frozenset({"accept", "host"})
"""Headers that look like a misspelled parameter and are none."""

Where = Literal["writer", "reader", "presence", "at once"]
Role = Literal["read", "produce", "work", "operate", "admin"]
Group = Literal["jobs", "schedules", "runs", "server", "access", "messages"]


_PUT_FIELDS, _PUT_SET, _PUT_EXTRA, _PUT_PRIVATE = (
    BaseModel.__dict__[slot].__set__
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)
"""All that a model consists of: see ``BaseModel.__slots__``."""


class Refusal(NamedTuple):
    """A refusal that says something about a command's job: code and words of its status line, and when."""

    code: int
    reason: str
    when: str


class Example(NamedTuple):
    """Parameters of a typical request, and what it is answered, both as JSON by wire name."""

    request: dict[str, Any]
    reply: Any = {}


class Paging(NamedTuple):
    """How a list goes on: the member of its answer that holds the rows, and what the next page begins at."""

    rows: str
    key: str
    """Member of a row at which the next page begins."""
    cursor: str
    """Parameter that takes it."""


class Scoping(NamedTuple):
    """The fields of a command that name jobs, which limit it to the names that a token may see.

    ``jobs.name`` stands for the field of each object in a list. Reads and takes need no such fields: they are
    limited where they run.
    """

    names: tuple[str, ...] = ()
    """Names of jobs; refused if out of scope."""
    patterns: tuple[str, ...] = ()
    """Patterns; refused unless contained in the scope."""
    lookups: tuple[str, ...] = ()
    """Names that find jobs; treated as nonexistent if out of scope, as jobIDs and runIDs are."""
    jobs: tuple[str, ...] = ()
    """jobIDs."""
    runs: tuple[str, ...] = ()
    """runIDs."""


def _is_spliced(annotation: Any) -> bool:
    """Tell whether an annotation, or a part of a union, carries the mark ``Spliced``."""
    if isinstance(annotation, Spliced):
        return True
    parts = (
        annotation
        if isinstance(annotation, list)
        else [*get_args(annotation), *getattr(annotation, "__metadata__", ())]
    )
    return any(_is_spliced(part) for part in parts)


class Parameters(Wire):
    """A set of named parameters that can be read from headers or JSON, and written as JSON."""

    model_config = ConfigDict(extra="forbid")

    wire_names: ClassVar[dict[str, str]] = {}
    """Every parameter's name on the wire, by the same name in lower case."""
    spliced: ClassVar[frozenset[str]] = frozenset()
    """The parameters (wire names) whose JSON stays text."""
    emptied: ClassVar[frozenset[str]] = frozenset()
    """The fields that an empty text takes back: set, and None."""
    refusals: ClassVar[Sequence[Refusal]] = ()
    """How these parameters may be refused, beside what any command may be answered; those that a base class
    has are not said again, see ``all_refusals``."""

    if not TYPE_CHECKING:  # checkers derive it from the fields

        def __init__(self, **given: Any) -> None:
            """Take the arguments of Python's callers; raises InvalidCommand."""
            try:
                super().__init__(**given)
            except ValidationError as error:
                raise invalid_command(error, type(self)) from None

        __init__.__pydantic_base_init__ = True  # what is read from a request does not come by here

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Derive the look-ups from the fields."""
        names = {wire_name(name): field for name, field in cls.model_fields.items()}
        cls.wire_names = {name.lower(): name for name in names}
        cls.spliced = frozenset(
            name
            for name, field in names.items()
            if _is_spliced(field.metadata) or _is_spliced(field.annotation)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe what a request may say; what is not validated is described as pydantic does."""
        found = handler(core)
        if handler.mode == "validation":
            own = handler.resolve_ref_schema(found)
            json_schemas.of_parameters(own, {wire_name(field) for field in cls.emptied})
            own["description"] = (cls.__doc__ or "").strip().partition("\n")[0]
            own.pop("additionalProperties")  # other names are passed over, but by a command over HTTP
        return found

    @classmethod
    def all_refusals(cls) -> tuple[Refusal, ...]:
        """Return its refusals, then those of its base classes; of two with one line the first."""
        found: dict[tuple[int, str], Refusal] = {}
        for kind in cls.__mro__:
            for refusal in kind.__dict__.get("refusals", ()):
                found.setdefault(refusal[:2], refusal)
        return tuple(found.values())

    @classmethod
    def given(cls, text: str, *, strict: bool = False) -> dict[str, Any]:
        """Read the text of a JSON object into parameters by wire name; nulls count as left out.

        With ``strict`` an unknown name is refused (``402 Unknown attribute``), without it is ignored.
        Raises ValueError where the text is not a JSON object.
        """
        try:
            texts = _attributes(cls).of(text, strict=strict)
        except jsontext.UnknownAttribute as error:
            name = str(error)
            raise BadArguments(f"Unknown attribute {name[:100]}", cls._known(name)) from None
        return {
            name: RawJSON(value) if name in cls.spliced else jsontext.parse(value, values=JSON_VALUES_MAX)
            for name, value in texts.items()
        }

    @classmethod
    def _known(cls, name: str) -> str:
        near = cls.wire_names.get(name.lower())
        return f"expected {near}" if near else f"expected one of {', '.join(sorted(cls.wire_names.values()))}"

    def with_value(self, field: str, value: Any) -> Self:
        """Return the same with another value, already validated, of a field that was given."""
        found = object.__new__(type(self))
        fields = self.__dict__.copy()  # they are frozen; `model_copy` takes four times as long
        fields[field] = value
        _PUT_FIELDS(found, fields)
        _PUT_SET(found, self.__pydantic_fields_set__)
        _PUT_EXTRA(found, None)
        _PUT_PRIVATE(found, None)
        return found

    def wire(self) -> str:
        """Return what was set as the text of a JSON object, with wire names."""
        parts: dict[str, str] = {}
        for field in sorted(self.model_fields_set):
            value, name = getattr(self, field), wire_name(field)
            if value is None:
                if field in self.emptied:
                    parts[name] = '""'
                continue
            if isinstance(value, Parameters):
                parts[name] = value.wire()
            elif isinstance(value, list) and value and isinstance(value[0], Parameters):
                parts[name] = f"[{','.join(item.wire() for item in value)}]"
            else:
                parts[name] = value if name in self.spliced else jsontext.dump(value)
        return jsontext.join(parts)


@cache
def _attributes(kind: type[Parameters]) -> jsontext.Attributes:
    return jsontext.Attributes(kind.wire_names.values())


class Reply(Wire):
    """What a command answers."""


class Empty(Reply):
    """``200 OK`` without a body; ``{}`` over HTTP."""


R_co = TypeVar("R_co", bound=Reply, covariant=True)


_KINDS: list[type[Command[Any]]] = []


def defined() -> list[type[Command[Any]]]:
    """Return the command classes of all modules that are imported, in the order of their definition."""
    return list(_KINDS)


class Command(Parameters, Generic[R_co]):
    """One command of the protocol. Its class name is its verb, its first sentence says what it does."""

    reply: ClassVar[type[Reply]] = Empty
    """The shape of its answer: what stands in the brackets of ``Command[...]``."""
    example: ClassVar[Example] = Example({})
    """A request as people make it, with its answer: shown in the OpenAPI description, /docs and reference."""
    group: ClassVar[Group] = "jobs"
    """The heading below which it is shown."""
    order: ClassVar[int] = 0
    """Its place below the heading: lower ones first, equal ones in the order of their definition."""
    where: ClassVar[Where] = "writer"
    """Who does it: the writer in a commit, a read-only connection, the registry of workers, or the server at
    once. Its handler is given the Context, the Views, or (both others) the Service."""
    reads: ClassVar[bool] = False
    """Whether it changes nothing, so that it is answered to GET too. True by itself where a reader does it,
    or the server at once."""
    role: ClassVar[Role] = "admin"
    """What a caller must be allowed: to look, to make jobs, to do them, to run the whole, or everything.
    ``read`` by itself where it only reads."""
    scoping: ClassVar[Scoping | None] = None
    """How it is limited for tokens that see some names only; None refuses it to them."""
    open: ClassVar[bool] = False
    """Whether nobody needs a token for it."""
    signed: ClassVar[bool] = False
    """Whether it is noted who did it, and where from. True by itself for what needs ``operate`` or ``admin``
    and changes something."""
    repeatable: ClassVar[bool] = False
    """Whether a client that lost the answer may send it again without asking. True by itself where it only
    reads."""
    waits: ClassVar[bool] = False
    """Whether `Connection: wait` lets it wait for something."""
    paging: ClassVar[Paging | None] = None
    """How the list that it answers goes on, if it answers one in pages."""
    all_or_nothing: ClassVar[bool] = False
    """Whether its handler may write before it refuses, so that it runs inside a savepoint."""
    asked_again: ClassVar[bool] = False
    """Whether clients send it in the same words again and again, so that it pays to remember it as read."""
    asks: ClassVar[bool] = False
    """Whether it asks for jobs by names, of which ``names_asked`` tells how many."""
    tagged: ClassVar[bool] = False
    """Whether its HTTP answer has an ETag."""
    headers: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """HTTP headers that are another place for a parameter (by wire name)."""
    abstract: ClassVar[bool] = False
    """Whether the class is only there for others to inherit from; not inherited itself."""

    connection: str | None = Field(
        default=None,
        max_length=20,
        description="`wait` waits for a job, `forget` is answered 202 before it is done.",
    )
    timeout: Whole | None = Field(default=None, description="How long this request may wait, in ms.")

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Derive what the class leaves unsaid, and remember it as a command."""
        super().__pydantic_init_subclass__(**kwargs)
        generic = cls.__pydantic_generic_metadata__
        if generic["args"]:
            (cls.reply,) = generic["args"]
        if generic["origin"] or generic["parameters"]:
            return
        cls.reads = cls.reads or cls.where in ("reader", "at once")
        cls.repeatable = cls.repeatable or cls.reads
        if cls.reads and "role" not in cls.__dict__:
            cls.role = "read"
        cls.signed = cls.signed or (cls.role in ("operate", "admin") and not cls.reads)
        if not cls.__dict__.get("abstract"):
            _KINDS.append(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe what a request may say, with the example."""
        found = super().__get_pydantic_json_schema__(core, handler)
        if handler.mode == "validation":
            own = handler.resolve_ref_schema(found)
            own |= {"additionalProperties": False, "examples": [cls.example.request]}
        return found

    @classmethod
    def sentence(cls) -> str:
        """Return the sentence that says what it does."""
        return (cls.__doc__ or "").strip().splitlines()[0]

    def values_at(self, path: str) -> list[Any]:
        """Return the values of a field, or of a field of the objects in a list: ``jobs.name``."""
        field, _, member = path.partition(".")
        value = getattr(self, field)
        if member:
            return [getattr(one, member) for one in value]
        return value if isinstance(value, list) else [value]

    @property
    def waiting(self) -> bool:
        """Tell whether the client asked to wait."""
        return self.connection is not None and self.connection.lower() == "wait"

    @property
    def names_asked(self) -> int:
        """Return how many names and patterns of jobs it asks for."""
        return 0

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Validate parameters given by wire name; raises CommandError in Bedrock's words."""
        try:
            found: Self = cls.__pydantic_validator__.validate_python(given)  # half a µs below model_validate
        except ValidationError as error:
            raise command_error(error) from None
        return found

    @classmethod
    def read_json(cls, text: str, defaults: Mapping[str, Any] | None = None) -> Self:
        """Validate parameters given as a JSON object of an HTTP request, where unknown names are refused.

        ``defaults`` are parameters by wire name that count where the object does not have them.
        """
        try:
            given = cls.given(text or "{}", strict=True)
        except ValueError as error:
            raise BadArguments("Malformed body", f"body: expected a JSON object: {error}") from None
        return cls.read({**(defaults or {}), **given})

    @classmethod
    def read_form(cls, fields: Mapping[str, str], defaults: Mapping[str, Any] | None = None) -> Self:
        """Validate parameters given as fields of an HTTP form, where unknown names are refused."""
        for name in fields:
            if cls.wire_names.get(name.lower()) != name:
                raise BadArguments(f"Unknown attribute {name[:100]}", cls._known(name))
        return cls.read({**(defaults or {}), **fields})

    @classmethod
    def read_raw(cls, headers: Mapping[str, str], body: str) -> Self:
        """Validate parameters given by headers (names in lower case); a JSON object in the body adds some.

        Unknown headers are ignored, and so is a body that is no JSON object. An empty header counts as
        left out, but for ``data`` of CreateJob and the options of UpdateJob.
        """
        names = cls.wire_names
        given: dict[str, Any] = {}
        for key, value in headers.items():
            name = names.get(key)
            if name is not None and (value or key in cls._empty_counts):
                if isinstance(value, Escaped):
                    value = value.json_text() if name in cls.spliced else str(value)
                given[name] = value
        if body and body.lstrip()[:1] == "{":
            with suppress(ValueError):
                given = {**cls.given(body), **given}
        return cls.read(given)

    @classmethod
    def slips(cls, headers: Iterable[str]) -> str:
        """Return a warning about unknown headers that look like misspelled parameters, or nothing.

        ``headers`` are in lower case. The raw protocol ignores unknown headers, as Bedrock does, so that a
        misspelled parameter would otherwise go unnoticed.
        """
        unknown = [name for name in headers if name not in cls.wire_names and name not in ORDINARY_HEADERS]
        found = []
        for name in unknown[:SLIPS_LOOKED_AT_MAX]:
            plain = name.replace("_", "").replace("-", "")
            meant = next((each for known, each in cls.wire_names.items() if one_slip(plain, known)), None)
            if meant is not None:
                found.append(f"{name}: unknown and ignored, did you mean {meant}?")
        return " ".join(found)

    _empty_counts: ClassVar[frozenset[str]] = frozenset()


# Refusals that several commands give, as they stand in ``refusals`` of their classes.
#
# The words are the server's; a test compares them with the code, so that none of them can rot.


NO_JOB = Refusal(404, "No job with this jobID", "There is no such job.")
NO_RUN = Refusal(404, "No run with this runID", "There is no such run, or it is no longer kept.")
NO_JOB_FOUND = Refusal(404, "No job found", "No due job matches, or none came within the wait.")
NO_NAME = Refusal(402, "Missing name", "Neither `name` nor `names` is given.")
RUN_OVER = Refusal(405, "Run is over", "`runID` is given and is not the job's current run.")
BAD_REPEAT = Refusal(
    402, "Malformed repeat", "The expression cannot be read, or gives no date before the year 10000."
)
BOTH = (
    Refusal(
        402,
        "Cannot use retryAfter with repeat",
        "Both are asked for (`document`; with `CRON` in `current` too).",
    ),
    Refusal(402, "Child jobs cannot repeat", "`repeat` together with a parent."),
)
BAD_DATA = Refusal(402, "Data is not a valid JSON Object", "`data` is no JSON object, too large or too deep.")
BAD_PRIORITY = Refusal(402, "Invalid priority value", "`jobPriority` is none of the six.")
BAD_OPTION = Refusal(
    402, "Malformed {…}", "The option named is malformed; or it is the second of `cmd`, `argv` and `url`."
)
BAD_LIST = Refusal(401, "Invalid JSON", "`jobs` is no JSON array of objects, or an empty one.")
BUSY = Refusal(429, "Too many queries", "Very many reads wait.")
SLOW = Refusal(555, "Timeout", "Filters found too little within `query_s`.")
