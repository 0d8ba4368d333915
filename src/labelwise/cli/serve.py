"""The verbs serve, export and demo: an HTTP service, an export, a tour."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from labelwise.cli.inputs import open_model
from labelwise.cli.options import Model, Workers, shared_options
from labelwise.cli.output import note, show, styled
from labelwise.support.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Access:
    """The address and the access rules of the service."""

    host: Annotated[str, Option(help="Address to listen on; 0.0.0.0 for all networks.")] = "127.0.0.1"
    port: Annotated[int, Option(help="The port; 0 chooses a free one.")] = 8000
    token: Annotated[str | None, Option(envvar="LABELWISE_TOKEN", help="Token that every request must carry.")] = None
    allow_host: Annotated[list[str] | None, Option(help="Host name to accept; repeatable.")] = None
    allow_origin: Annotated[list[str] | None, Option(help="Web origin to accept: https://name.")] = None


@dataclass(frozen=True, kw_only=True)
class ServiceFiles:
    """Files that the service reads and writes."""

    read_only: Annotated[bool, Option("--read-only", help="Refuse requests to teach and forget.")] = False
    state: Annotated[
        str | None, Option(envvar="LABELWISE_STATE", help="Store of taught labels: a folder or postgresql://...")
    ] = None
    gallery: Annotated[Path | None, Option(help="Images for retrieve: a folder or a stored index.")] = None
    examples: Annotated[Path | None, Option(help="Images that the page offers to try.")] = None
    log: Annotated[Literal["plain", "json"], Option(help="Format of the log on standard error.")] = "plain"


@dataclass(frozen=True, kw_only=True)
class ServiceLimits:
    """Limits of the service."""

    rate: Annotated[float, Option(help="Requests per second and address; 0 for no limit.")] = 0.0
    batch: Annotated[int, Option(help="Most images encoded together.")] = 16
    batch_delay: Annotated[float, Option(help="Most milliseconds that an image waits for others.")] = 1.0
    queue: Annotated[int, Option(help="Most requests in progress.")] = 256
    timeout: Annotated[float, Option(help="Seconds in which a request body must arrive.")] = 20.0
    connections: Annotated[int, Option(help="Most open connections per worker.")] = 1000
    max_body: Annotated[float, Option(help="Largest request, in megabytes.")] = 16.0
    pixels: Annotated[float, Option(help="Largest image, in millions of pixels.")] = 25.0


def serve(
    model: Model,
    *,
    access: Access,
    contents: ServiceFiles,
    limits: ServiceLimits,
    bake: Annotated[Path | None, Option(help="Write the classifier with its taught labels, and exit.")] = None,
) -> None:
    """Answer questions over HTTP, with a web page."""
    from labelwise.server.settings import MEGABYTE, Service

    options: dict[str, Any] = vars(access) | vars(contents) | vars(limits)
    options |= {f"{name}s": tuple(options.pop(name) or ()) for name in ("allow_host", "allow_origin")}
    options |= {name: int(options[name] * MEGABYTE) for name in ("max_body", "pixels")}
    options |= {
        "model": model,
        "workers": (shared_options().workers or Workers()).count or 1,
        "device": shared_options().device,
    }
    service = Service(**options)
    try:
        from labelwise.server.live import bake as write
        from labelwise.server.running import serve as run
    except ModuleNotFoundError as error:
        raise UsageError(f'The service needs {error.name}: pip install "labelwise[serve]".') from None
    if bake is not None:
        note(write(model, bake, contents.state))
        return
    if not service.loopback and service.token is None:
        note(
            f"Warning: everyone who can reach {service.host} can use and teach this service. Set --token, or --host 127.0.0.1."
        )
    run(service)


def export(
    model: Model, onnx: Annotated[Path, Option("--out", help="A folder with programs that run it, or one .onnx file.")]
) -> None:
    """Export an ONNX file, alone or with programs to run it."""
    from labelwise.core.export_folder import export_to

    result = export_to(open_model(model), onnx, overwrite=shared_options().overwrite)
    size = f"{result.labels} labels, {result.megabytes:.1f} MB; scores differ by {result.difference:.1e} at most"
    document = {"model": str(model), **asdict(result), "file": str(result.file)}
    show(document, styled((str(result.file), "bold"), f": {size}"))


def demo(
    out_folder: Annotated[Path, Option("--out", help="The folder for classifiers and images.")] = Path("demo"),
    epochs: Annotated[int | None, Option(min=1, help="Fewer epochs for a quicker look.")] = None,
) -> None:
    """Take a tour on included data: train, teach, ask, explain."""
    from labelwise.demo import run

    run(out_folder, epochs)
