"""``fastcar deploy``."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from ..bundle.bundle import Bundle
from ..deploy.remote import Remote
from ..deploy.run import Sources, deploy
from ..deploy.target import Target
from ..errors import UsageError
from .console import emit, examples, json_option, progress, say, table

__all__ = ["command"]


@click.command(
    "deploy",
    epilog=examples(
        "fastcar deploy car-kv260 ubuntu@kria --overlay build/fastcar.bit",
        "fastcar deploy car-kv260 'root@[fe80::5%eth0]:/opt/fastcar' --port 2222 --identity ~/.ssh/board",
        "fastcar deploy car-kv260 ubuntu@kria --overlay build/fastcar.bit --wheelhouse wheels",
    ),
)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("target", metavar="USER@HOST[:DIR]")
@click.option("--overlay", type=click.Path(path_type=Path), help="Bitstream (.bit); the .hwh beside it goes along.")
@click.option(
    "--wheel", type=click.Path(path_type=Path), help="Wheel of fastcar-edge  [default: built from the checkout]"
)
@click.option("--wheelhouse", type=click.Path(path_type=Path), help="Folder of wheels, for a board without a network.")
@click.option("--port", type=click.IntRange(1, 65535), help="Of ssh  [default: ssh's own]")
@click.option("--identity", type=click.Path(path_type=Path), help="Private key for ssh  [default: ssh's own choice]")
@click.option("--ssh-option", "ssh_options", multiple=True, metavar="K=V", help="As in ssh -o; may be repeated.")
@click.option("--bwlimit", type=click.IntRange(min=1), metavar="KIB", help="Send at most this many KiB a second.")
@click.option("--no-install", is_flag=True, help="Only send and verify; what is in use stays so.")
@json_option
def command(bundle: Path, target: str, as_json: bool, ssh_options: tuple[str, ...], **options: Any) -> None:
    """Copy BUNDLE, an overlay and this project to a board, install them there, and switch to them.

    DIR (default: fastcar in the home folder) holds releases/ID, and the link current to the one in use, which stays
    as it is until the new release is complete, verified and installed. Run the same command again after any
    interruption: it continues. The release before is kept as previous.
    """
    place = Target.parse(target)
    for option in ssh_options:
        if not option.partition("=")[0].isalnum() or "=" not in option:
            raise UsageError("--ssh-option", repr(option), "KEY=VALUE", "See: man ssh_config")
    if options["identity"] is not None and not options["identity"].is_file():
        raise UsageError("--identity", f"{options['identity']} is no file", "a private key", "Correct the path.")
    sources = Sources(Bundle.open(bundle), options["overlay"], options["wheel"], options["wheelhouse"])
    remote = Remote(place, options["port"], options["identity"], ssh_options)
    with progress() as advance:
        result = deploy(sources, remote, advance, not options["no_install"], options["bwlimit"])
    phrase = sources.bundle.prompts.known[0] if sources.bundle.prompts.known else "PROMPT"
    result["command"] += f" {quote(phrase)}"
    emit(result, as_json, _show)


def _show(result: dict[str, Any]) -> None:
    rows = [
        ("folder", f"{result['target']}:{result['folder']}"),
        ("Python there", result["python"]),
        ("sent", f"{result['sent_bytes']:,} bytes"),
        ("there already", f"{result['present_bytes']:,} bytes in {result['files']} files"),
        ("installed", result["installed"] or "no (--no-install)"),
        ("in use", "yes" if result["current"] else "no: what was in use still is"),
        ("before it", result["previous"] or "none"),
    ]
    table(f"Release {result['release']}", rows)
    for name in result["sent_again"]:
        say(f"differed on the board and was sent again: {name}")
    for name in result["removed"]:
        say(f"removed {name}")
    if result["current"]:
        click.echo(f"On the board, as root: {result['command']}")
    else:
        click.echo(f"On the board: {result['install_command']}")
