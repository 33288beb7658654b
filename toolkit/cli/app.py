"""``fastcar``: the roof over all stages."""

from __future__ import annotations

import importlib
import os
import sys
import traceback

import click

from ..errors import FastCarError

__all__ = ["cli", "main"]

COMMANDS = {
    "export": "Quantize a checkpoint, lower it to ONNX and write a bundle.",
    "generate": "Generate a video from a bundle, with replay or dense.",
    "inspect": "Show what is in a bundle and verify it.",
    "demo": "Run the whole job on the model that comes with the project.",
    "train": "Train the car model from scratch.",
}


class _LazyGroup(click.Group):
    """Commands live in modules of their own name and are imported when used: ``--help`` needs no torch."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return importlib.import_module(f".{name}", __package__).command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fastcar-edge", prog_name="fastcar")
def cli() -> None:
    """Auto-regressive video models with cache-attentive replay on AMD/Xilinx edge boards.

    \b
    Start with:
      fastcar demo --out demo
      fastcar export car --recipe w8a8 --out car-w8a8
      fastcar generate car-w8a8 --prompt "left turn" --replay-ratio 0.5 --out clip
    """


def main() -> None:
    """Run the command line: 0 on success, 2 on bad usage or input with one line that says how to fix it."""
    try:
        cli.main(prog_name="fastcar", standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _fail(error.format_message() + _usage_hint(error), 2)
    except click.Abort:
        _fail("interrupted", 130)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except FastCarError as error:
        _fail(str(error), 2)
    except OSError as error:
        _fail(f"{error.filename or 'file system'}: {error.strerror or error}; nothing half-written was kept", 2)
    except Exception as error:  # the last resort: a fault of ours, named as such
        if os.environ.get("FASTCAR_DEBUG"):
            traceback.print_exc()
        _fail(f"internal error: {type(error).__name__}: {error} (FASTCAR_DEBUG=1 shows where)", 1)


def _usage_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f" (see: {context.command_path} --help)" if context else ""


def _fail(message: str, code: int) -> None:
    click.echo("fastcar: " + " ".join(message.split()), err=True)
    sys.exit(code)
