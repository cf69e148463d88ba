"""The description of all routes for programs (OpenAPI 3.1) and, made from it, a page for people without scripts."""

from collections.abc import Mapping
from html import escape
from typing import Any

import msgspec

from litebert.serving import messages
from litebert.version import __version__

ROUTES: Mapping[str, tuple[str, type[messages.Request], type[msgspec.Struct], dict[str, Any]]] = {
    "/v1/embeddings": (
        "A vector for each text, in OpenAI's shape.",
        messages.EmbeddingsRequest,
        messages.EmbeddingsAnswer,
        {"input": ["Where is my parcel?", "A refund, please."], "encoding_format": "float"},
    ),
    "/predict": (
        "Labels with probabilities, numbers, options or answers, by a fine-tuned model.",
        messages.PredictRequest,
        messages.Answer[messages.PredictResult],
        {"inputs": ["Where is my parcel?", "A refund, please."]},
    ),
    "/fill": (
        "The likeliest words for each mask.",
        messages.FillRequest,
        messages.Answer[messages.FillResult],
        {"inputs": "The cat [MASK] on the mat.", "top": 5},
    ),
    "/order": (
        "The probability that two texts are in the right order.",
        messages.OrderRequest,
        messages.Answer[messages.OrderResult],
        {"inputs": [["First it rained.", "Then the sun came out."]]},
    ),
    "/rerank": (
        "Documents in the order of how well they fit a query, by a model that was fine-tuned on pairs.",
        messages.RerankRequest,
        messages.Answer[messages.RerankResult],
        {"query": "Where is my parcel?", "documents": ["Parcels take two days.", "We sell shoes."], "top_n": 1},
    ),
    "/tokenize": (
        "The tokens of texts and pairs.",
        messages.TokenizeRequest,
        messages.Answer[messages.TokenizeResult],
        {"inputs": ["Where is my parcel?", ["A premise.", "A hypothesis."]]},
    ),
}
PLAIN: Mapping[str, tuple[str, type[msgspec.Struct] | None]] = {
    "/info": ("The models, what each can do, and the limits.", messages.InfoAnswer),
    "/v1/models": ("The names of the models, in OpenAI's shape.", messages.ModelsAnswer),
    "/health": ("200 while the process lives.", None),
    "/ready": ("200 while requests are accepted, else 503.", None),
    "/metrics": ("Figures for Prometheus.", None),
}
ERRORS = {
    "400": "The body is not JSON in UTF-8.",
    "401": "The bearer key is missing or wrong.",
    "404": "There is no such model.",
    "413": "The payload is too large.",
    "422": "A field is wrong; index is the number of the text.",
    "429": "Too much is waiting; Retry-After says for how many seconds.",
    "503": "The server is shutting down.",
    "504": "The deadline passed.",
}
STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
pre { overflow-x: auto; padding: .7rem; border: 1px solid #8886; border-radius: 6px; font-size: .85rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .2rem .6rem .2rem 0; }
td { border-top: 1px solid #8884; vertical-align: top; } code { font-size: .9em; }
"""


def openapi(with_key: bool) -> dict[str, Any]:
    """The description of all routes."""
    types: list[type[msgspec.Struct]] = [messages.ErrorAnswer]
    types += [kind for _, request, answer, _ in ROUTES.values() for kind in (request, answer)]
    types += [answer for _, answer in PLAIN.values() if answer is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    of = dict(zip(types, schemas, strict=True))
    refused = {
        status: {"description": text, "content": _json(of[messages.ErrorAnswer])} for status, text in ERRORS.items()
    }
    paths: dict[str, Any] = {}
    for route, (text, request, answer, example) in ROUTES.items():
        paths[route] = {
            "post": {
                "summary": text,
                "requestBody": {"required": True, "content": _json(of[request], example)},
                "responses": {"200": {"description": "The answer.", "content": _json(of[answer])}, **refused},
            }
        }
    for route, (text, plain) in PLAIN.items():
        content = {"text/plain": {}} if route == "/metrics" else _json(of[plain] if plain else {"type": "object"})
        paths[route] = {"get": {"summary": text, "responses": {"200": {"description": text, "content": content}}}}
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "litebert", "version": __version__, "description": "Text encoders, served."},
        "paths": paths,
        "components": {"schemas": components},
    }
    if with_key:
        found["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"key": []}]
    return found


def docs_page(described: Mapping[str, Any]) -> str:
    """The same for people: one page without scripts and without anything from elsewhere."""
    schemas, parts = described["components"]["schemas"], []
    for route, methods in described["paths"].items():
        for method, about in methods.items():
            parts.append(
                f"<h2><code>{method.upper()} {escape(route)}</code></h2><p>{escape(about.get('summary', ''))}</p>"
            )
            if "requestBody" in about:
                content = about["requestBody"]["content"]["application/json"]
                example = msgspec.json.encode(content["example"]).decode()
                shell = f"curl -H 'Content-Type: application/json' -d '{example}' http://localhost:8000{route}"
                parts.append(_fields(schemas, content["schema"]) + f"<pre>{escape(shell)}</pre>")
            answer = about["responses"]["200"]["content"].get("application/json", {}).get("schema", {})
            if "$ref" in answer:
                parts.append(f"<p>Answer:</p>{_fields(schemas, answer)}")
    rows = "".join(f"<tr><td>{status}</td><td>{escape(text)}</td></tr>" for status, text in ERRORS.items())
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>litebert</title><style>{STYLE}</style><h1>litebert {escape(described['info']['version'])}</h1>"
        "<p>For programs: <a href='openapi.json'>openapi.json</a></p>"
        f"{''.join(parts)}<h2>Errors</h2><table>{rows}</table></html>"
    )


def _json(schema: Any, example: Any = None) -> dict[str, Any]:
    content = {"schema": schema}
    return {"application/json": content | ({"example": example} if example is not None else {})}


def _fields(schemas: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """A table of the fields of a type."""
    found = schemas.get(schema.get("$ref", "").rpartition("/")[2], {})
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(_type(field))}</td>"
        f"<td>{'required' if name in found.get('required', ()) else escape(_default(field))}</td></tr>"
        for name, field in found.get("properties", {}).items()
    )
    return f"<table><tr><th>field</th><th>type</th><th>default</th></tr>{rows}</table>"


def _default(field: Mapping[str, Any]) -> str:
    return msgspec.json.encode(field["default"]).decode() if "default" in field else ""


def _type(field: Mapping[str, Any]) -> str:
    """A type in words."""
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    if "anyOf" in field:
        return " or ".join(_type(one) for one in field["anyOf"])
    if "enum" in field:
        return " or ".join(str(one) for one in field["enum"])
    kind = field.get("type", "anything")
    return f"list of ({_type(field.get('items', {}))})" if kind == "array" else str(kind)
