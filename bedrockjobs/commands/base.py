"""The base of every command: its declaration, and parsing from headers, forms and JSON.

A command is declared once, as a class: its name is the verb, its attributes are the complete description. The
raw parser, the HTTP route, the OpenAPI description, the clients, ``bedrockjobs call`` and the reference page
are derived from it. Its implementation is a function marked ``@handles(TheCommand)``.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from types import GenericAlias, MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema

from bedrockjobs.base import json_schemas, jsontext
from bedrockjobs.base.config import JSON_VALUES_MAX, TYPOS_COMPARED_MAX
from bedrockjobs.base.errors import BadArguments
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.base.vocabulary import differ_by_typo
from bedrockjobs.base.wire import Escaped, Spliced, Whole, Wire, command_error, invalid_command, wire_name

ORDINARY_HEADERS = frozenset({"accept", "host"})
"""HTTP headers that resemble a misspelled parameter of the raw protocol but are not one."""

Where = Literal["writer", "reader", "presence", "at once"]
Role = Literal["read", "produce", "work", "operate", "admin"]
Group = Literal["jobs", "workflows", "schedules", "runs", "server", "access", "messages"]


_PUT_FIELDS, _PUT_SET, _PUT_EXTRA, _PUT_PRIVATE = (
    BaseModel.__dict__[slot].__set__
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)
"""Setters for the complete state of a pydantic model, one for each slot of ``BaseModel.__slots__``."""


class Refusal(NamedTuple):
    """A possible refusal: code and reason of its status line, and when it occurs."""

    code: int
    reason: str
    when: str


class Example(NamedTuple):
    """A typical request and its reply, both as JSON by wire name."""

    request: dict[str, Any]
    reply: Any = {}


class Paging(NamedTuple):
    """Paging of a list: the member of the reply that holds the rows, and how the next page is requested."""

    rows: str
    key: str
    """Member of a row whose value in the last row tells where the next page begins."""
    cursor: str
    """Parameter of the request for the next page that takes the value of ``key`` in the last row."""


class Scoping(NamedTuple):
    """The fields of a command that name jobs, to which a token's scope applies.

    ``jobs.name`` means the field ``name`` of each object in the list ``jobs``. A command that reads or takes
    jobs needs no such fields, since its queries are filtered by scope.
    """

    names: tuple[str, ...] = ()
    """Fields with names of jobs; the command is refused if one of the names is out of scope."""
    patterns: tuple[str, ...] = ()
    """Fields with patterns; the command is refused unless all names that match them are in scope."""
    lookups: tuple[str, ...] = ()
    """Fields with names by which jobs are found. A job out of scope is treated as nonexistent, as it is if
    found by jobID or runID."""
    jobs: tuple[str, ...] = ()
    """Fields with jobIDs; a job out of scope is treated as nonexistent."""
    runs: tuple[str, ...] = ()
    """Fields with runIDs; the run of a job out of scope is treated as nonexistent."""


def _is_spliced(annotation: Any) -> bool:
    """Return whether an annotation, or a part of a union, carries the mark ``Spliced``."""
    if isinstance(annotation, Spliced):
        return True
    parts = (
        annotation
        if isinstance(annotation, list)
        else [*get_args(annotation), *getattr(annotation, "__metadata__", ())]
    )
    return any(_is_spliced(part) for part in parts)


class Parameters(Wire):
    """A set of named parameters that can be parsed from headers or JSON, and written as JSON."""

    model_config = ConfigDict(extra="forbid")

    wire_names: ClassVar[dict[str, str]] = {}
    """The wire name of each parameter, with its lower-case form as the key."""
    spliced: ClassVar[frozenset[str]] = frozenset()
    """The parameters (wire names) whose JSON is kept as text."""
    emptied: ClassVar[frozenset[str]] = frozenset()
    """The fields that an empty text clears: such a field counts as given, with the value None."""
    refusals: ClassVar[Sequence[Refusal]] = ()
    """Refusals specific to these parameters; ``all_refusals`` adds those of base classes."""

    if not TYPE_CHECKING:  # type checkers derive it from the fields

        def __init__(self, **values: Any) -> None:
            """Take arguments from Python callers; raises InvalidCommand."""
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise invalid_command(error, type(self)) from None

        __init__.__pydantic_base_init__ = True  # parsing a request bypasses this constructor

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Derive the look-up tables from the fields."""
        names = {wire_name(name): field for name, field in cls.model_fields.items()}
        cls.wire_names = {name.lower(): name for name in names}
        cls.spliced = frozenset(
            name
            for name, field in names.items()
            if _is_spliced(field.metadata) or _is_spliced(field.annotation)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of a request without rules on unknown names; for replies, pydantic's own."""
        schema = handler(core)
        if handler.mode == "validation":
            own = handler.resolve_ref_schema(schema)
            json_schemas.of_parameters(own, {wire_name(field) for field in cls.emptied})
            own["description"] = (cls.__doc__ or "").strip().partition("\n")[0]
            own.pop("additionalProperties")  # unknown names are ignored, except in a command over HTTP
        return schema

    @classmethod
    def all_refusals(cls) -> tuple[Refusal, ...]:
        """Return the refusals of this class, then those of its bases, each code and reason only once."""
        refusals: dict[tuple[int, str], Refusal] = {}
        for kind in cls.__mro__:
            for refusal in kind.__dict__.get("refusals", ()):
                refusals.setdefault(refusal[:2], refusal)
        return tuple(refusals.values())

    @classmethod
    def parameters_in(cls, text: str, *, strict: bool = False) -> dict[str, Any]:
        """Parse a JSON object into parameters by wire name; nulls count as left out.

        Unknown names are ignored, or with ``strict`` refused (``402 Unknown attribute``). Raises ValueError
        if the text is not a JSON object.
        """
        try:
            texts = _attributes(cls).texts_of(text, strict=strict)
        except jsontext.UnknownAttribute as error:
            name = str(error)
            raise BadArguments(f"Unknown attribute {name[:100]}", cls._known(name)) from None
        return {name: cls.parsed(name, value) for name, value in texts.items()}

    @classmethod
    def parsed(cls, name: str, text: str) -> Any:
        """Parse the JSON text of a parameter (wire name) for its validator; raises ValueError."""
        return RawJSON(text) if name in cls.spliced else jsontext.parse(text, values=JSON_VALUES_MAX)

    @classmethod
    def _known(cls, name: str) -> str:
        near = cls.wire_names.get(name.lower())
        return f"expected {near}" if near else f"expected one of {', '.join(sorted(cls.wire_names.values()))}"

    def with_value(self, field: str, value: Any) -> Self:
        """Return a copy in which the given field has another value, which is already validated."""
        copied = object.__new__(type(self))
        fields = self.__dict__.copy()  # models are frozen, and `model_copy` takes four times as long
        fields[field] = value
        _PUT_FIELDS(copied, fields)
        _PUT_SET(copied, self.__pydantic_fields_set__)
        _PUT_EXTRA(copied, None)
        _PUT_PRIVATE(copied, None)
        return copied

    def wire(self) -> str:
        """Return the parameters that were given as the text of a JSON object, by wire name."""
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
def _attributes(parameters_class: type[Parameters]) -> jsontext.Attributes:
    return jsontext.Attributes(parameters_class.wire_names.values())


class Reply(Wire):
    """The reply of a command."""


class Empty(Reply):
    """``200 OK`` without a body; ``{}`` over HTTP."""


R_co = TypeVar("R_co", bound=Reply, covariant=True)


_KINDS: list["type[Command[Any]]"] = []


def defined() -> list["type[Command[Any]]"]:
    """Return the command classes of all modules that are imported, in the order of their definition."""
    return list(_KINDS)


class Command(Parameters, Generic[R_co]):
    """One command of the protocol. The class name is the verb, the first sentence says what it does."""

    reply: ClassVar[type[Reply]] = Empty
    """The type of the command's reply: the argument of ``Command[...]``."""
    example: ClassVar[Example] = Example({})
    """A typical request with its reply, shown in the OpenAPI description, /docs and the reference."""
    group: ClassVar[Group] = "jobs"
    """The heading under which the command is listed."""
    order: ClassVar[int] = 0
    """The command's place under the heading: lower numbers come first, equal numbers in the order of
    definition."""
    where: ClassVar[Where] = "writer"
    """Where the command runs: ``writer``, in the writer's transaction; ``reader``, on a read-only connection;
    ``presence``, in the worker registry; ``at once``, in the server itself. Its handler gets the Context, the
    Views, or for the last two the Service."""
    reads: ClassVar[bool] = False
    """Whether the command changes nothing, so that HTTP also allows GET. Implied by ``where`` being
    ``reader`` or ``at once``."""
    by_id: ClassVar[bool] = False
    """Whether the command only reads rows whose IDs it gives, so that it need not wait for the writer."""
    role: ClassVar[Role] = "admin"
    """The role that a token needs for the command: to read, to create jobs, to run them, to operate the
    server, or to do everything. For a command that only reads, the default is ``read``."""
    scoping: ClassVar[Scoping | None] = None
    """How a token's scope limits the command; if None, a token with a scope may not send the command."""
    open: ClassVar[bool] = False
    """Whether the command needs no token."""
    signed: ClassVar[bool] = False
    """Whether the sender and its address are recorded. Implied if the command changes something and its role
    is ``operate`` or ``admin``."""
    repeatable: ClassVar[bool] = False
    """Whether a client that lost the reply may safely send the command again. Implied by ``reads``."""
    waits: ClassVar[bool] = False
    """Whether the command waits if it is sent with `Connection: wait`."""
    paging: ClassVar[Paging | None] = None
    """The paging of the reply, if the reply is a list in pages."""
    all_or_nothing: ClassVar[bool] = False
    """Whether the handler may write before it refuses, so that it runs inside a savepoint."""
    is_cached: ClassVar[bool] = False
    """Whether clients send the same request repeatedly, so that it pays off to cache the parsed command."""
    asks: ClassVar[bool] = False
    """Whether the command requests jobs by names; ``names_asked`` returns the number of names."""
    tagged: ClassVar[bool] = False
    """Whether the HTTP reply has an ETag."""
    headers: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """HTTP headers that may carry a parameter, each with the wire name of the parameter."""
    abstract: ClassVar[bool] = False
    """Whether the class is only a base class and no command; subclasses do not inherit this."""

    connection: str | None = Field(
        default=None,
        max_length=20,
        description="`wait` waits for a job; `forget` is acknowledged with 202 before execution.",
    )
    timeout: Whole | None = Field(
        default=None, description="How long this request may wait, in milliseconds."
    )

    if not TYPE_CHECKING:  # pydantic would build a class for each type of reply

        @classmethod
        def __class_getitem__(cls, reply: type[Reply]) -> GenericAlias:
            """Return a base class for commands with this reply."""
            return GenericAlias(cls, (reply,))

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Derive implied attributes and register the command."""
        super().__pydantic_init_subclass__(**kwargs)
        for base in cls.__dict__.get("__orig_bases__", ()):
            if isinstance(base, GenericAlias):
                (cls.reply,) = base.__args__
        cls.reads = cls.reads or cls.where in ("reader", "at once")
        cls.repeatable = cls.repeatable or cls.reads
        if cls.reads and "role" not in cls.__dict__:
            cls.role = "read"
        cls.signed = cls.signed or (cls.role in ("operate", "admin") and not cls.reads)
        if not cls.__dict__.get("abstract"):
            _KINDS.append(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of a request, with the example."""
        schema = super().__get_pydantic_json_schema__(core, handler)
        if handler.mode == "validation":
            own = handler.resolve_ref_schema(schema)
            own |= {"additionalProperties": False, "examples": [cls.example.request]}
        return schema

    @classmethod
    def sentence(cls) -> str:
        """Return the first sentence of the class."""
        return (cls.__doc__ or "").strip().splitlines()[0]

    def values_at(self, path: str) -> list[Any]:
        """Return the values of a field, or of a member of the objects in a list: ``jobs.name``."""
        field, _, member = path.partition(".")
        value = getattr(self, field)
        if member:
            return [getattr(one, member) for one in value]
        return value if isinstance(value, list) else [value]

    @property
    def waiting(self) -> bool:
        """Return whether the client asked to wait."""
        return self.connection is not None and self.connection.lower() == "wait"

    @property
    def names_asked(self) -> int:
        """Return how many names and patterns of jobs the command requests."""
        return 0

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Validate parameters by wire name; raises CommandError in Bedrock's words."""
        try:
            # half a µs faster than model_validate
            command: Self = cls.__pydantic_validator__.validate_python(values)
        except ValidationError as error:
            raise command_error(error) from None
        return command

    @classmethod
    def read_json(cls, text: str, defaults: Mapping[str, Any] | None = None) -> Self:
        """Validate the JSON object of an HTTP request; unknown names are refused.

        ``defaults`` are parameters by wire name that apply if the object lacks them.
        """
        try:
            values = cls.parameters_in(text or "{}", strict=True)
        except ValueError as error:
            raise BadArguments("Malformed body", f"body: expected a JSON object: {error}") from None
        return cls.read({**(defaults or {}), **values})

    @classmethod
    def read_form(cls, fields: Mapping[str, str], defaults: Mapping[str, Any] | None = None) -> Self:
        """Validate the fields of an HTTP form; unknown names are refused."""
        for name in fields:
            if cls.wire_names.get(name.lower()) != name:
                raise BadArguments(f"Unknown attribute {name[:100]}", cls._known(name))
        return cls.read({**(defaults or {}), **fields})

    @classmethod
    def read_raw(cls, headers: Mapping[str, str], body: str) -> Self:
        """Validate a raw request's headers (lower-case names) and the members of a JSON object in its body.

        Unknown headers are ignored, as is a body that is not a JSON object. An empty header counts as left
        out, except for ``data`` of CreateJob and the options of UpdateJob.
        """
        names = cls.wire_names
        values: dict[str, Any] = {}
        for key, value in headers.items():
            name = names.get(key)
            if name is not None and (value or key in cls._empty_counts):
                if isinstance(value, Escaped):
                    value = value.json_text() if name in cls.spliced else str(value)
                values[name] = value
        if body and body.lstrip()[:1] == "{":
            with suppress(ValueError):
                values = {**cls.parameters_in(body), **values}
        return cls.read(values)

    @classmethod
    def spelling_warning(cls, headers: Iterable[str]) -> str:
        """Return a warning about unknown headers that look like misspelled parameters, or an empty text.

        ``headers`` are in lower case. The raw protocol ignores unknown headers, as Bedrock does, so that a
        misspelled parameter would otherwise go unnoticed.
        """
        unknown = [name for name in headers if name not in cls.wire_names and name not in ORDINARY_HEADERS]
        warnings = []
        for name in unknown[:TYPOS_COMPARED_MAX]:
            plain = name.replace("_", "").replace("-", "")
            meant = next(
                (each for known, each in cls.wire_names.items() if differ_by_typo(plain, known)), None
            )
            if meant is not None:
                warnings.append(f"{name}: unknown and ignored, did you mean {meant}?")
        return " ".join(warnings)

    _empty_counts: ClassVar[frozenset[str]] = frozenset()


# Refusals that several commands share.
#
# A test compares the reasons with those in the server's code, so that they stay in step.


NO_JOB = Refusal(404, "No job with this jobID", "There is no job with this jobID.")
NO_RUN = Refusal(404, "No run with this runID", "The run does not exist, or is no longer stored.")
NO_JOB_FOUND = Refusal(404, "No job found", "No due job matches, or none became due during the wait.")
NO_NAME = Refusal(402, "Missing name", "Neither `name` nor `names` is given.")
RUN_OVER = Refusal(405, "Run is over", "`runID` is given, but it is not the job's current run.")
BAD_REPEAT = Refusal(
    402, "Malformed repeat", "The expression cannot be read, or gives no date before the year 10000."
)
BOTH = (
    Refusal(
        402,
        "Cannot use retryAfter with repeat",
        "Both are given (compatibility `document`; in `current` only with `CRON`).",
    ),
    Refusal(402, "Child jobs cannot repeat", "`repeat` is given together with a parent."),
)
BAD_DATA = Refusal(
    402,
    "Data is not a valid JSON Object",
    "`data` is not a JSON object, or is too large or nested too deeply.",
)
BAD_PRIORITY = Refusal(402, "Invalid priority value", "`jobPriority` is not one of the six.")
BAD_OPTION = Refusal(
    402, "Malformed {…}", "The named option is malformed, or it is the second of `cmd`, `argv` and `url`."
)
BAD_LIST = Refusal(401, "Invalid JSON", "`jobs` is not a JSON array of objects, or it is empty.")
BUSY = Refusal(429, "Too many queries", "Too many reads are waiting.")
SLOW = Refusal(555, "Timeout", "The filters found too few rows within `query_s`.")
