"""Makes a command out of a stage: its configuration model's fields become flags, the rest is the same for every stage.

Common to all: ``--config``, ``--set``, ``--dry-run``, ``--json``, ``--debug``; where there is an output also ``-o``,
``--overwrite``, ``--resume``. Help, defaults and bounds are read from the model, so they stand in one place. Not here:
how a summary looks (``summary_view``), how progress is drawn (``progress_view``), what a stage does.
"""

import copy
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dialrl.config import StageConfig, resolve_config
from dialrl.errors import FailureThresholdError, UsageError
from dialrl.progress import Progress
from dialrl.summary import StageSummary

COMMON, PLACES = "Every command", "Files"


@dataclass(frozen=True)
class Call:
    """What the user asked for: resolved configuration, files, and a Progress to report to."""

    config: Any
    config_file: Path | None
    inputs: tuple[Path, ...]
    output: Path | None
    overwrite: bool
    resume: bool
    as_json: bool
    quiet: bool
    progress: Progress
    extras: Mapping[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> Path:
        """The output of a command that must have one."""
        if self.output is None:
            raise typer.BadParameter("an output is needed: -o FILE")
        return self.output


Run = Callable[[Call], StageSummary | None]
View = Callable[[StageSummary], None]


def option(
    name: str, kind: Any, help: str, *, default: Any = None, flags: Sequence[str] = (), panel: str | None = None
) -> inspect.Parameter:
    """A further option of one command, passed on in ``Call.extras``; ``default=...`` makes it required."""
    annotation = Annotated[kind, typer.Option(*flags, help=help, show_default=False, rich_help_panel=panel)]
    given = inspect.Parameter.empty if default is ... else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=given, annotation=annotation)


def switch(name: str, help: str, *, panel: str | None = None) -> inspect.Parameter:
    """A further yes-or-no option of one command, off by default."""
    return option(name, bool, help, default=False, flags=(f"--{name.replace('_', '-')}",), panel=panel)


SLIM = switch("slim", "Write only the keys and the new columns; the file then completes its input.", panel=PLACES)


def add_command(
    app: typer.Typer,
    name: str,
    run: Run,
    *,
    help: str,
    config: type[StageConfig] | None = None,
    section: str | None = None,
    inputs: str | None = None,
    inputs_optional: bool = False,
    output: Literal["required", "optional", "none"] = "none",
    resumable: bool = False,
    extras: Sequence[inspect.Parameter] = (),
    view: View | None = None,
    panel: str | None = None,
    read_section: Callable[[Path], Mapping[str, Any]] | None = None,
    preview: Callable[[Any, Mapping[str, Any]], Sequence[str]] | None = None,
) -> None:
    """Register ``run`` as the command ``name``; ``preview`` gives further lines for ``--dry-run``.

    ``inputs`` is the help of the positional paths (None: there are none); ``section`` the section of a pipeline YAML,
    which ``read_section`` may read in its own way.
    """
    parameters = [
        *_input_parameters(inputs, optional=inputs_optional),
        *extras,
        *_output_parameters(output, resumable=resumable),
        *([] if config is None else _config_parameters(config)),
        *_common_parameters(configurable=config is not None),
    ]
    extra_names = [parameter.name for parameter in extras]
    needed = [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]
    if config is not None:  # --dry-run prints the configuration of a command that names no files
        parameters = [_optional(parameter) if parameter.name in needed else parameter for parameter in parameters]

    def handler(**values: Any) -> None:
        resolved = None if config is None else _resolve(config, section or name, values, read_section)
        if config is not None and values["dry_run"]:
            typer.echo(resolved_text(resolved, as_json=values["as_json"]))
            if preview is not None and not values["as_json"]:
                show_preview(preview(resolved, values))
            return
        _require(needed, values)
        with _progress(quiet=values["quiet"]) as progress:
            call = Call(
                config=resolved,
                config_file=None if config is None else values["config"],
                inputs=tuple(values.get("inputs") or ()),
                output=values.get("output"),
                overwrite=bool(values.get("overwrite")),
                resume=bool(values.get("resume")),
                as_json=values["as_json"],
                quiet=values["quiet"],
                progress=progress,
                extras={key: values[key] for key in extra_names},
            )
            summary = run(call)
        if summary is not None:
            _emit(summary, as_json=values["as_json"], view=view)
            if summary.failure is not None:
                raise FailureThresholdError(summary.failure)

    handler.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    handler.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    handler.__name__ = name.replace("-", "_")
    app.command(name, help=help, rich_help_panel=panel)(handler)


def _optional(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter with default None; its help says that it is required, ``_require`` sees to it."""
    kind, information = typing.get_args(parameter.annotation)
    information = copy.copy(information)
    information.help = f"{information.help} \\[required]"
    return parameter.replace(default=None, annotation=Annotated[kind | None, information])


def _require(names: Sequence[str], values: Mapping[str, Any]) -> None:
    spelled = {"inputs": "INPUT...", "output": "-o / --output"}
    absent = [spelled.get(name, "--" + name.replace("_", "-")) for name in names if not values[name]]
    if absent:
        raise UsageError(f"Missing: {', '.join(absent)}. See --help.")


def _resolve(
    config: type[StageConfig],
    section: str,
    values: Mapping[str, Any],
    read_section: Callable[[Path], Mapping[str, Any]] | None,
) -> StageConfig:
    flags = {name: values[f"config_{name}"] for name in config.model_fields if values.get(f"config_{name}") is not None}
    file, assignments = values["config"], values["set"] or ()
    return resolve_config(
        config, section=section, file=file, assignments=assignments, flags=flags, read_section=read_section
    )


def _emit(summary: StageSummary, *, as_json: bool, view: View | None) -> None:
    if as_json:
        typer.echo(json.dumps(summary.to_json(), ensure_ascii=False, allow_nan=False, default=str))
        return
    if view is not None:
        view(summary)
        return
    from dialrl.cli.summary_view import show_summary

    show_summary(summary)


@contextmanager
def _progress(*, quiet: bool) -> typing.Iterator[Progress]:
    from dialrl.cli.progress_view import drawn

    with drawn(quiet=quiet) as progress:
        yield progress


def resolved_text(config: StageConfig | None, *, as_json: bool) -> str:
    """What ``--dry-run`` prints: the configuration as YAML, or as one JSON object."""
    values = {} if config is None else config.model_dump(mode="json")
    if as_json:
        return json.dumps(values)
    import yaml

    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True)).rstrip()


def show_preview(lines: Sequence[str]) -> None:
    """Further lines of ``--dry-run``, as comments, so that the whole stays a pipeline section."""
    for line in lines:
        typer.echo(f"# {line}")


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _input_parameters(help: str | None, *, optional: bool) -> list[inspect.Parameter]:
    if help is None:
        return []
    argument = typer.Argument(help=help, metavar="INPUT...", show_default=False)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    default = None if optional else inspect.Parameter.empty
    wanted: Any = list[Path] | None if optional else list[Path]
    return [inspect.Parameter("inputs", kind, default=default, annotation=Annotated[wanted, argument])]


def _output_parameters(output: str, *, resumable: bool) -> list[inspect.Parameter]:
    if output == "none":
        return []
    place = typer.Option("-o", "--output", help="Where the result goes.", show_default=False, rich_help_panel=PLACES)
    parameters = [
        _keyword("output", Annotated[Path, place], inspect.Parameter.empty)
        if output == "required"
        else _keyword("output", Annotated[Path | None, place], None),
        _switch("overwrite", "--overwrite", "Replace an existing output.", PLACES),
    ]
    if resumable:
        parameters.append(
            _switch(
                "resume",
                "--resume",
                "Continue an unfinished output; with --overwrite: or replace one that was made otherwise.",
                PLACES,
            )
        )
    return parameters


def _switch(name: str, flag: str, help: str, panel: str) -> inspect.Parameter:
    return _keyword(name, Annotated[bool, typer.Option(flag, help=help, rich_help_panel=panel)], False)


def _common_parameters(*, configurable: bool) -> list[inspect.Parameter]:
    parameters = []
    if configurable:
        file = typer.Option(
            "--config", help="Pipeline YAML; this stage's section is read.", show_default=False, rich_help_panel=COMMON
        )
        assign = typer.Option(
            "--set", help="key=value for any configuration key; repeatable.", show_default=False, rich_help_panel=COMMON
        )
        parameters += [
            _keyword("config", Annotated[Path | None, file], None),
            _keyword("set", Annotated[list[str] | None, assign], None),
            _switch("dry_run", "--dry-run", "Print the resolved configuration and stop.", COMMON),
        ]
    parameters += [
        _switch("as_json", "--json", "Print the summary as one JSON object.", COMMON),
        _switch("quiet", "--quiet", "Show no progress.", COMMON),
        _switch("debug", "--debug", "Show a traceback when something fails.", COMMON),
    ]
    return parameters


def _config_parameters(config: type[StageConfig]) -> list[inspect.Parameter]:
    """A flag for each field with a plain type; nested settings are reached with --set or the file."""
    parameters = []
    for name, info in config.model_fields.items():
        kind = _flag_type(info.annotation)
        if kind is None:
            continue
        default = (
            "" if info.is_required() else f" [default: {_default_text(info.get_default(call_default_factory=True))}]"
        )
        flag = config.flag_of(name)
        spelled = f"{flag}/--no-{flag.removeprefix('--')}" if kind is bool else flag
        panel = "Operation" if config.is_operational(name) else "Settings"
        described = typer.Option(
            spelled, help=f"{info.description}{default}".replace("[", r"\["), show_default=False, rich_help_panel=panel
        )
        parameters.append(_keyword(f"config_{name}", Annotated[kind | None, described], None))
    return parameters


def _default_text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    if value is None:
        return "none"
    if isinstance(value, bool):  # before numbers: 0 == False
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _flag_type(annotation: Any) -> Any:
    """The type of the flag for a field's annotation, or None where a flag cannot say it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        inner = [_flag_type(argument) for argument in arguments if argument is not type(None)]
        return inner[0] if len(inner) == 1 else (str if all(kind in (str, int, float) for kind in inner) else None)
    if origin is Literal:
        return annotation
    if origin in (list, tuple):
        inner_kind = _flag_type(arguments[0]) if arguments else None
        return list[inner_kind] if inner_kind in (str, int, float, Path) else None  # type: ignore[valid-type]
    return annotation if annotation in (bool, int, float, str, Path) else None
