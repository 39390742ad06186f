"""The server's JSON endpoints, described for other programs (OpenAPI 3.1)."""

from __future__ import annotations

from typing import Any

from caption.version import package_version
from caption.visualize.page_script import data_schemas


def description(models: list[str], largest_photo: int) -> dict[str, Any]:
    """The description.

    Args:
        models: names of the models.
        largest_photo: bytes of a photo's file.
    """
    errors = {
        "400": "It is not a photo, or the change makes no sense",
        "403": "Another website's page asks",
        "408": "The photo did not arrive in time",
        "413": "It is too large",
        "503": "The queue is full: try again",
    }
    photo = {"description": f"The file of a photo, at most {largest_photo:,} bytes", "required": True}
    name = {"name": "name", "in": "query", "schema": {"type": "string"}, "description": "of the file"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Show, Attend and Tell: explore",
            "version": package_version(),
            "description": f"Captions with attention that is moved by hand. Models: {', '.join(models)}.",
        },
        "paths": {
            "/api/photos": {
                "post": {
                    "summary": "Caption a photo",
                    "parameters": [name],
                    "requestBody": {**photo, "content": {"image/*": {}}},
                    "responses": _responses("Opened", errors),
                }
            },
            "/api/captions": {
                "post": {
                    "summary": "Caption a photo again, under changes of the attention",
                    "requestBody": {"required": True, "content": _content("Request")},
                    "responses": _responses(
                        "Photo", {**errors, "404": "The photo is not in memory any more: open it again"}
                    ),
                }
            },
        },
        "components": {"schemas": data_schemas()},
    }


def _responses(schema: str, errors: dict[str, str]) -> dict[str, Any]:
    refused = {code: {"description": text, "content": _content("Error")} for code, text in errors.items()}
    return {"200": {"description": "Captions with maps", "content": _content(schema)}, **refused}


def _content(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
