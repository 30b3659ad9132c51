"""Pages of the documentation site that are not files in docs.

They are README, the changelog, and two generated references. MkDocs loads this module as a hook
(mkdocs.yml). README.md and CHANGELOG.md are outside docs, so the folder is removed from their links
into docs; links to files without a page become plain text. The references are generated from the
package: the commands from the command line parser, the Python API from signatures and docstrings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import typer.main

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

# Typer contains a copy of Click, whose classes have no public name.
Command: TypeAlias = Any
ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
# Files outside docs that become pages, with the page names.
OUTSIDE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files in docs."""
    from mkdocs.structure.files import File  # Imported here: only a build of the site needs MkDocs.

    pages = {page: _from_root((ROOT / name).read_text(encoding="utf-8")) for name, page in OUTSIDE.items()}
    pages |= {"reference/commands.md": commands_page(), "reference/python.md": python_page()}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Redirect links of a page in docs to pages of the site."""
    del config, files
    return markdown if page.file.generated_by else _LINK.sub(_link_out_of_docs, markdown)


def _from_root(text: str) -> str:
    def link(match: re.Match[str]) -> str:
        title, target = match.groups()
        file, _, _ = target.partition("#")
        if "://" in target or not file:
            return match[0]
        if file == "docs/README.md":
            return title
        if file.startswith("docs/"):
            return f"[{title}]({target.removeprefix('docs/')})"
        return f"[{title}]({OUTSIDE[file]})" if file in OUTSIDE else title

    return _LINK.sub(link, text)


def _link_out_of_docs(match: re.Match[str]) -> str:
    title, target = match.groups()
    if not target.startswith("../") or (ROOT / "docs" / "tutorials" / target).is_file():
        return match[0]
    file = target.lstrip("./")
    return f"[{title}]({OUTSIDE[file]})" if file in OUTSIDE else title


# The commands
# --------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Describe every command with its arguments and options."""
    from lanner.cli.app import app  # Imported here: README and changelog do not need it.

    command = typer.main.get_command(app)
    parts = ["# Commands", "", "What `lanner COMMAND --help` says, for all commands.", ""]
    for names, one in _commands(["lanner"], command):
        parts += [f"## {' '.join(names)}", "", inspect.cleandoc(one.help or ""), ""]
        parts += _parameters(one)
    return "\n".join(parts)


def _commands(names: list[str], command: Command) -> Iterator[tuple[list[str], Command]]:
    if names != ["lanner"]:
        yield names, command
    for name in getattr(command, "commands", {}):
        # The root's entries are placeholders: a command is imported when it is looked up.
        one = command.get_command(None, name)
        if not one.hidden:
            yield from _commands([*names, name], one)


def _parameters(command: Command) -> list[str]:
    rows = []
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        # Flags that can be switched off have names for that too.
        names = [*parameter.opts, *parameter.secondary_opts] if parameter.opts[0].startswith("-") else [parameter.name]
        text = " ".join(str(getattr(parameter, "help", None) or "").split())
        rows.append(f"| {', '.join(f'`{name}`' for name in names)} | {text.replace('|', chr(92) + '|')} |")
    return ["| | |", "|---|---|", *rows, ""] if rows else []


# The Python API
# --------------------------------------------------------------------------------------------------


def python_page() -> str:
    """Describe every public class and function of the package with its signature and docstring."""
    import lanner

    parts = ["# Python", "", "`lanner.aio` has the same names with `async` methods.", ""]
    for name in sorted(lanner.__all__):
        one = getattr(lanner, name)
        if inspect.isclass(one):
            parts += [f"## lanner.{name}", "", *_text(one), ""]
            for member, function in _members(one):
                parts += [f"### {name}.{member}{_signature(function)}", "", *_text(function), ""]
        elif callable(one):
            parts += [f"## lanner.{name}{_signature(one)}", "", *_text(one), ""]
    return "\n".join(parts)


def _members(one: type) -> Iterator[tuple[str, object]]:
    for name, member in inspect.getmembers(one):
        if not name.startswith("_") and getattr(member, "__doc__", None) and _is_ours(member):
            yield name, member


def _is_ours(member: object) -> bool:
    function = member.fget if isinstance(member, property) else member
    return str(getattr(function, "__module__", "")).startswith("lanner")


def _signature(function: object) -> str:
    if isinstance(function, property) or not callable(function):
        return ""
    try:
        # Show types as a program writes them.
        text = str(inspect.signature(function)).replace("'", "")
    except ValueError:
        return ""
    return text.replace("(self, ", "(").replace("(self)", "()")


def _text(one: object) -> list[str]:
    return [inspect.getdoc(one) or ""]
