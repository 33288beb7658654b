"""The templates of the reports, and how they are filled: everything is escaped, what is missing is an error."""

from __future__ import annotations

from pathlib import Path

import jinja2

__all__ = ["TEMPLATES", "template"]

TEMPLATES = Path(__file__).parent / "templates"


def template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(name)
