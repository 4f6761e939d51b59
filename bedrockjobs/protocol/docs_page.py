"""``GET /docs``: the description of the commands as a page for people.

It is made from the same description as ``/openapi.json``, whole on the server, with its style and its script
inside: nothing is asked of any other address, and without the script it can be read all the same. Its script
lets people try a command: what they type is sent with the rights of their session, like any other request.
"""

from __future__ import annotations

import re
import shlex
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from typing import Any
from urllib.parse import urlencode

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import DEFAULT_PORT
from bedrockjobs.commands import COMMANDS

_HOST = re.compile(r"(?P<name>[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?")
_CODE = re.compile(r"`([^`]+)`")
_WHERE = "{where}"
_SHARED = {
    "Timestamp": "date",
    "Duration": "duration",
    "Repeat": "repeat",
    "Cron": "schedule",
    "RetryAfter": "modifiers",
    "Name": "name",
    "NamePattern": "name pattern",
    "NamePatterns": "list of name patterns",
}

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2430;--soft:#55606f;--paper:#fff;--line:#d5dae1;
--fill:#f3f5f8;--link:#0b57b0}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#a3adba;--paper:#14181e;--line:#343c47;
--fill:#1d232b;--link:#8ab8f5}}
*{box-sizing:border-box}body{margin:0;font:16px/1.5 system-ui,sans-serif;color:var(--ink);
background:var(--paper)}
a{color:var(--link)}code,pre{font:14px/1.45 ui-monospace,monospace}
pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;flex:1;min-width:0;padding:.5rem}
header,main{padding:1rem 2rem;max-width:64rem}nav{padding:1rem 2rem;border-block:1px solid var(--line);
position:sticky;top:0;background:var(--paper)}nav label{font-weight:600}
input{font:inherit;color:inherit;background:var(--fill);border:1px solid var(--soft);border-radius:.3rem;
padding:.3rem .6rem;width:min(24rem,100%)}ul.index{columns:12rem;padding:0;list-style:none}
section{padding:.5rem 0;border-bottom:1px solid var(--line);scroll-margin-top:6rem}h3 small{color:var(--soft);
font-weight:400}table{border-collapse:collapse;width:100%;font-size:.95rem}th,td{text-align:left;
vertical-align:top;padding:.3rem .8rem .3rem 0;border-top:1px solid var(--line);overflow-wrap:anywhere}
td:first-child{white-space:nowrap}td:nth-child(2){color:var(--soft);min-width:9rem}
textarea{display:block;width:100%;
font:14px/1.45 ui-monospace,monospace;color:inherit;
background:var(--fill);border:1px solid var(--soft);border-radius:.3rem;padding:.5rem}
.try pre{max-height:24rem;overflow-y:auto;background:var(--fill)}
.line{display:flex;align-items:start;background:var(--fill);border:1px solid var(--line);
border-radius:.3rem;margin:.4rem 0}
button{font:inherit;font-size:.85rem;color:inherit;background:var(--paper);border:1px solid var(--soft);
border-radius:.3rem;margin:.35rem;padding:.1rem .6rem;cursor:pointer}summary{cursor:pointer}
:focus-visible{outline:3px solid var(--link);outline-offset:1px}[hidden]{display:none!important}
"""

_SCRIPT = """
const box=document.getElementById("search"),parts=[...document.querySelectorAll("[data-words]")],
none=document.getElementById("none");
function search(){const words=box.value.toLowerCase().split(/\\s+/).filter(Boolean);let shown=0;
for(const part of parts){const fits=words.every(word=>part.dataset.words.includes(word));part.hidden=!fits;
if(fits&&part.tagName==="SECTION")shown++}none.hidden=shown>0}
box.addEventListener("input",search);search();
document.addEventListener("keydown",event=>{if(event.key==="/"&&document.activeElement!==box){event.preventDefault();
box.focus()}else if(event.key==="Escape"&&document.activeElement===box){box.value="";search()}});
for(const line of document.querySelectorAll(".line")){const button=document.createElement("button");
button.type="button";button.textContent="Copy";button.addEventListener("click",async()=>{
const text=line.querySelector("pre").textContent;try{await navigator.clipboard.writeText(text);
button.textContent="Copied"}catch{getSelection().selectAllChildren(line.querySelector("pre"));
button.textContent="Selected"}setTimeout(()=>button.textContent="Copy",1500)});line.append(button)}
const make=(tag,more)=>Object.assign(document.createElement(tag),more);
function trial(place){const {path,role,changes}=place.dataset;const form=make("form",{className:"try"});
const label=make("label",{textContent:`Parameters, a JSON object (needs the role ${role})`});
const field=make("textarea",{rows:5,spellcheck:false,value:place.dataset.example});label.append(field);
const send=make("button",{type:"submit",textContent:changes?"Send, which changes something":"Send"});
const answer=make("pre",{hidden:true,tabIndex:0});answer.setAttribute("role","status");
form.append(label,send,answer);place.append(form);
form.addEventListener("submit",async event=>{event.preventDefault();send.disabled=true;answer.hidden=false;
answer.textContent="…";try{const got=await fetch(path,{method:"POST",
headers:{"Content-Type":"application/json",Accept:"application/json"},body:field.value||"{}"});
const text=await got.text();
const cut=text.length>CUT?text.slice(0,CUT)+"\\n… "+(text.length-CUT)+" more characters":text;
answer.textContent=`${got.status} ${got.statusText}\\n${cut}`}
catch(error){answer.textContent=`The server was not reached: ${error.message}`}send.disabled=false})}
const CUT=20000;for(const place of document.querySelectorAll("details.trial")){place.hidden=false;
place.addEventListener("toggle",()=>{if(place.open&&!place.querySelector("form"))trial(place)})}
"""


def _source(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; style-src {_source(_STYLE)}; script-src {_source(_SCRIPT)}; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy of the page: its own style and script, and requests to this server alone."""


class DocsPage:
    """The page of one server; only its address differs from one reader to another."""

    def __init__(self, description: dict[str, Any], root_path: str = "") -> None:
        """Make the page of an OpenAPI description, for a server below ``root_path``."""
        self._root_path = root_path
        self._schemas = description["components"]["schemas"]
        self._gettable = {
            methods["get"]["operationId"]
            for methods in description["paths"].values()
            if methods.keys() >= {"get", "post"}
        }
        self._page = "".join(self._parts(description))

    def html(self, host: str) -> str:
        """Return the page for a reader who reached the server as ``host``, a name and perhaps a port."""
        found = _HOST.fullmatch(host)
        name, port = (found["name"], found["port"]) if found else ("localhost", str(DEFAULT_PORT))
        address = f"http://{name}{f':{port}' if port else ''}{self._root_path}"
        page = self._page.replace("{address}", escape(address))
        return page.replace(_WHERE, escape(f"{name.strip('[]')} {port or DEFAULT_PORT}"))

    def _parts(self, description: dict[str, Any]) -> Iterator[str]:
        info = description["info"]
        operations = [
            (path, method, operation)
            for path, methods in description["paths"].items()
            for method, operation in methods.items()
            if not operation["operationId"].startswith("get")
        ]
        yield (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>Commands of {escape(info['title'])}</title><style>{_STYLE}</style></head><body>"
            f"<header><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
            f"<p>{_prose(info['description'])}</p>"
            f'<p><a href="{escape(self._root_path)}/ui/">Back to the pages</a>.'
            f' For programs: <a href="{escape(self._root_path)}/openapi.json">openapi.json</a>.'
            ' What may go wrong: <a href="#refusals">refusals</a>.</p></header>'
            '<nav aria-label="Commands"><label for="search">Search</label> '
            '<input id="search" type="search" autocomplete="off" placeholder="name, parameter or word">'
            "</nav><main>"
        )
        for tag in description["tags"]:
            chosen = [one for one in operations if tag["name"] in one[2]["tags"]]
            yield f"<h2>{escape(tag['name'].capitalize())}</h2><p>{_prose(tag['description'])}</p>"
            yield '<ul class="index">'
            for path, method, operation in chosen:
                words = self._words(path, operation)
                name = operation["operationId"]
                yield f'<li data-words="{words}"><a href="#{name}">{escape(_title(path, method))}</a></li>'
            yield "</ul>"
            for path, method, operation in chosen:
                yield from self._section(path, method, operation)
        yield '<p id="none" role="status" hidden>Nothing has all of these words.</p>'
        yield from _refusals(description["components"]["responses"])
        yield f"</main><script>{_SCRIPT}</script></body></html>"

    def _words(self, path: str, operation: dict[str, Any]) -> str:
        taken = " ".join(name for name, _, _ in self._parameters(operation))
        return escape(f"{path} {operation['summary']} {taken} {' '.join(operation['tags'])}".lower())

    def _section(self, path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
        name = operation["operationId"]
        yield f'<section id="{name}" data-words="{self._words(path, operation)}">'
        yield f"<h3><code>{escape(_title(path, method))}</code></h3><p>{_prose(operation['summary'])}</p>"
        if "Link" in operation["responses"]["200"].get("headers", {}):
            yield "<p>A full page has a header <code>Link</code>: the address of the next one, for GET.</p>"
        for line in _lines(path, method, name, gettable=f"get{name}" in self._gettable):
            yield f'<div class="line"><pre>{escape(line)}</pre></div>'
        rows = [
            f"<tr><td><code>{escape(given)}</code></td><td>{escape(self._kind(schema))}"
            f"{', required' if required else ''}</td><td>{_prose(schema.get('description', ''))}</td></tr>"
            for given, schema, required in self._parameters(operation)
        ]
        if rows:
            yield "<details><summary>Parameters</summary><table><tr><th>Name<th>Value<th>Meaning</tr>"
            yield f"{''.join(rows)}</table></details>"
        yield from self._answer(operation)
        if path == f"/{name}" and name in COMMANDS:
            yield self._trial(name)
        yield "</section>"

    def _trial(self, name: str) -> str:
        """Return where a person may send a command; without the script it stays hidden."""
        kind = COMMANDS[name]
        changes = "" if kind.reads else ' data-changes="1"'
        example = escape(jsontext.dump(kind.example.request))
        return (
            f'<details class="trial" data-path="{escape(self._root_path)}/{name}" data-role="{kind.role}"'
            f'{changes} data-example="{example}" hidden><summary>Try it</summary></details>'
        )

    def _parameters(self, operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], bool]]:
        for one in operation.get("parameters", ()):
            notes = {"description": one.get("description", "")}
            yield one["name"], {**one["schema"], **notes}, one.get("required", False)
        body = (
            operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        )
        schema = self._resolved(body)
        for name, part in schema.get("properties", {}).items():
            yield name, part, name in schema.get("required", ())

    def _answer(self, operation: dict[str, Any]) -> Iterator[str]:
        content = operation["responses"]["200"].get("content", {})
        schema = self._resolved(content.get("application/json", {}).get("schema", {}))
        rows = [
            f"<tr><td><code>{escape(name)}</code></td><td>{escape(self._kind(part))}</td>"
            f"<td>{_prose(part.get('description', ''))}</td></tr>"
            for name, part in schema.get("properties", {}).items()
        ]
        if rows:
            yield "<details><summary>Answer</summary><table><tr><th>Name<th>Value<th>Meaning</tr>"
            yield f"{''.join(rows)}</table></details>"

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        name = schema.get("$ref", "").rpartition("/")[2]
        return self._schemas[name] if name else schema

    def _kind(self, schema: dict[str, Any]) -> str:
        """Return in a word or two what a value is; of several spellings the first."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return _SHARED.get(name, f"object {name}")
        if "anyOf" in schema:
            return self._kind(schema["anyOf"][0])
        if "enum" in schema:
            return "one of " + ", ".join(str(value) or '""' for value in schema["enum"])
        kind = schema.get("type", "anything")
        if kind == "array":
            return f"list of: {self._kind(schema.get('items', {}))}"
        if kind == "integer":
            return "whole number" + _limits(schema.get("minimum"), schema.get("maximum"), "")
        if kind == "string":
            return "text" + _limits(schema.get("minLength"), schema.get("maxLength"), " characters")
        return str(kind)


def _limits(low: int | None, high: int | None, unit: str) -> str:
    if high is None or high > 10**12:
        return f" from {low}{unit}" if low else ""
    return f", {low} to {high}{unit}" if low is not None else f" up to {high}{unit}"


def _title(path: str, method: str) -> str:
    return path[1:] if method == "post" and path.count("/") == 1 else f"{method.upper()} {path}"


def _prose(text: str) -> str:
    """Return words with their `code` marked as such."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _lines(path: str, method: str, name: str, *, gettable: bool) -> Iterator[str]:
    """Yield what to type for a request."""
    if method == "get":
        follow = "-N -H 'Accept: text/event-stream' " if name in ("events", "output") else ""
        yield f"curl {follow}{{address}}{path.replace('{runID}', '1')}"
        return
    if name == "cronken":
        yield f"curl {{address}}{path} -d {shlex.quote(jsontext.dump({'action': 'pause', 'args': 'backup'}))}"
        return
    given = COMMANDS[name].example.request
    yield f"curl {{address}}{path} -d {shlex.quote(jsontext.dump(given))}"
    if gettable:
        query = f"?{urlencode(given)}" if given else ""
        yield f"curl {shlex.quote('{address}' + path + query) if query else '{address}' + path}"
    heads = "".join(
        f"{key}: {value if isinstance(value, str) else jsontext.dump(value)}\\n"
        for key, value in given.items()
    )
    typed = shlex.quote(f"{name}\\n{heads}\\n".replace("%", "%%"))
    yield f"printf {typed} | nc -N {_WHERE}"


def _refusals(responses: dict[str, Any]) -> Iterator[str]:
    yield '<h2 id="refusals">Refusals</h2><p>Each is an <code>application/problem+json</code> object with '
    yield "title, status, detail, and Bedrock's code and reason.</p><table><tr><th>Status<th>Meaning</tr>"
    for name, response in responses.items():
        status = name.removeprefix("Problem")
        yield f"<tr><td>{status}</td><td>{_prose(response['description'])}</td></tr>"
    yield "</table>"
