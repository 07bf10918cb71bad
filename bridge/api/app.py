"""The application: routes, errors as problems, and the three paths that are open to everybody."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.api import metrics, problems, routes
from bridge.api.identity import Authenticator
from bridge.api.source import Source
from bridge.clock import Clock, SystemClock
from bridge.errors import UnknownStateError

MAX_BODY_BYTES = 16 * 1024
"""The largest body that any route takes is a reference to a workload."""

_open = APIRouter()
"""Probes and metrics: no names in them, so no token is asked."""


def create_app(source: Source, authenticator: Authenticator, *, clock: Clock | None = None) -> FastAPI:
    """Make the API over a source. The OpenAPI document needs a token like all of /v1."""
    app = FastAPI(
        title="slurm-kube-bridge",
        version="1",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.parts = routes.Parts(source, authenticator, (clock or SystemClock()).now_ms)
    app.include_router(routes.router)
    problems.install(app)
    app.add_middleware(BodyLimit)
    app.middleware("http")(_no_store)
    app.include_router(_open)

    @app.get("/v1/openapi.json", include_in_schema=False, dependencies=[Depends(routes.caller)])
    def openapi() -> JSONResponse:
        return JSONResponse(app.openapi())

    return app


@_open.get("/healthz", include_in_schema=False)
def healthz() -> PlainTextResponse:
    """Answer while the process does."""
    return PlainTextResponse("ok\n")


@_open.get("/readyz", include_in_schema=False)
def readyz(here: routes.Here) -> PlainTextResponse:
    """Answer 200 once a cycle has seen Kubernetes: Slurm may be what this process still has to set up."""
    if here.source.ready():
        return PlainTextResponse("ok\n")
    return PlainTextResponse("no cycle has seen Kubernetes yet\n", status_code=503)


@_open.get("/metrics", include_in_schema=False)
def metrics_text(here: routes.Here) -> PlainTextResponse:
    """Show sums, for Prometheus."""
    source = here.source
    try:
        nodes, quota, queue = source.nodes(), source.quota(), source.queue()
    except UnknownStateError:  # the status families are what an alert on this outage needs
        nodes, quota, queue = (), (), ()
    return PlainTextResponse(metrics.render(source.status(), nodes, quota, queue), media_type=metrics.CONTENT_TYPE)


async def _no_store(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Keep what one caller may see out of shared caches."""
    response = await call_next(request)
    response.headers["Cache-Control"] = "no-store"
    return response


class BodyLimit:
    """Refuses a body before it is read: without a length, or longer than any route needs."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests with a small body or none."""
        refusal = _refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)


def _refusal(scope: Scope) -> JSONResponse | None:
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        kind = problems.Kind("http-411", 411, "Length Required")
        return problems.document(kind, "send the body with a Content-Length; chunked bodies are not read")
    length = int(headers.get(b"content-length", b"0"))
    if length > MAX_BODY_BYTES:
        kind = problems.Kind("http-413", 413, "Content Too Large")
        return problems.document(kind, f"the body has {length} bytes; at most {MAX_BODY_BYTES} are read")
    return None
