"""``fastcar``: the roof over all stages."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from typing import NoReturn

import click

from ... import __version__
from ..errors import FastCarError

__all__ = ["cli", "main"]

COMMANDS = {
    "export": "Quantize a checkpoint, lower it to ONNX and write a bundle.",
    "generate": "Generate a video from a bundle, with replay or dense.",
    "sweep": "Measure many replay settings over prompts and seeds, in parallel.",
    "csim": "Generate through the overlay's C++, compare with onnxruntime, count beats and cycles.",
    "plan": "Estimate a model on a board: does it fit, how fast, what limits it.",
    "tune": "Find thresholds for a replay ratio or a quality, and store them in the bundle.",
    "evaluate": "Measure replay with the model that comes with the project: the README's table and figure.",
    "boards": "List the boards, and which of them a bundle runs on.",
    "doctor": "Look for what is missing or wrong on this computer or board, and how to mend it.",
    "expand": "Multiply 4-bit weights out to 8 bits, for large models on this computer.",
    "profile": "Time a step under onnxruntime, node by node, dense and all replayed.",
    "inspect": "Show what is in a bundle and verify it.",
    "overlay": "Build an overlay with AMD's tools, or show what was built.",
    "deploy": "Copy a bundle, an overlay and this project to a board, and install them there.",
    "selftest": "Compare an engine with the reference node by node and name the first that differs.",
    "demo": "Run the whole job on the model that comes with the project.",
    "train": "Train the car model from scratch.",
}


EXTRA_OF = {
    "pynq": "board",
    "onnxruntime": "emulate",
    **dict.fromkeys(("torch", "brevitas", "onnx", "onnx_ir", "ml_dtypes"), "export"),
    "polars": "evaluate",
    "ray": "ray",
    **dict.fromkeys(("gymnasium", "Box2D"), "train"),
}
"""Which extra of the installation brings a package that a command needs."""


class _LazyGroup(click.Group):
    """Commands live in modules of their own name and are imported when used: ``--help`` needs no torch."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return importlib.import_module(f".{name}", __package__).command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            context.fail(f"No such command {args[0]!r}; one of {', '.join(COMMANDS)}.")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fastcar")
@click.pass_context
def cli(context: click.Context) -> None:
    """Auto-regressive video models with cache-attentive replay on AMD/Xilinx edge boards.

    \b
    Start with:
      fastcar demo --out demo
      fastcar export car --recipe w8a8 --out car-w8a8
      fastcar generate car-w8a8 --prompt "left turn" --replay-ratio 0.5 --out clip

    \b
    Exit codes: 0 done; 1 a check failed; 2 bad usage or input, told in one line on
    stderr; 3 the device failed; 130 interrupted, finished frames kept.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """Run the command line: 0 on success, 2 on bad usage or input with one line that says how to fix it.

    130 when interrupted (Ctrl-C, or the TERM signal), after writing what ``generate`` had finished.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) == "strict":  # a path may hold what the terminal's encoding does not
            stream.reconfigure(errors="backslashreplace")
    try:
        code = cli.main(prog_name="fastcar", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        _fail(error.format_message() + _usage_hint(error), 2)
    except click.Abort as error:
        _fail(_interrupted(error.__cause__), 130)
    except KeyboardInterrupt as error:
        _fail(_interrupted(error), 130)
    except FastCarError as error:
        if error.dump:
            click.echo(error.dump, err=True)
        _fail(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        extra = EXTRA_OF.get((error.name or "").split(".")[0])
        if extra is None:
            _fail_internally(error)
        _fail(f"the package {error.name} is not installed; this command needs: pip install 'fastcar-edge[{extra}]'", 2)
    except OSError as error:
        _fail(f"{error.filename or 'file system'}: {error.strerror or error}; nothing half-written was kept", 2)
    except Exception as error:  # the last resort: a fault of ours, named as such
        _fail_internally(error)


def _interrupted(error: BaseException | None) -> str:
    """With what is kept, where the work that was interrupted says so."""
    return f"interrupted: {error}" if error and str(error) else "interrupted"


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _usage_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f" (see: {context.command_path} --help)" if context else ""


def _fail_internally(error: Exception) -> NoReturn:
    if os.environ.get("FASTCAR_DEBUG"):
        traceback.print_exc()
    _fail(f"internal error: {type(error).__name__}: {error} (FASTCAR_DEBUG=1 shows where)", 1)


def _fail(message: str, code: int) -> NoReturn:
    click.echo("fastcar: " + " ".join(message.split()), err=True)
    sys.exit(code)
