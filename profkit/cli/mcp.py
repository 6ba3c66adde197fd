"""``profkit mcp``: a server for editors and agents."""

from __future__ import annotations

import click

__all__ = ["command"]


@click.command(name="mcp")
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...")
def command(folders: tuple[str, ...]) -> None:
    """Serve analyses to editors and agents, over standard input and output.

    The Model Context Protocol's tools are analyze, kernels, phases, what_if, fit and compare. They read recordings in
    the folders, never outside of them, and write nothing. It needs the package mcp: pip install mcp.

    \b
    Example:
      profkit mcp runs/
    """
    from profkit.api.serving import server

    server(folders).run("stdio")
