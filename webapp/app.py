"""``create_app``: the only place where the parts are joined."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware

from engine.inference.supervisor import EngineClient
from webapp.admission import AllowedHosts, BodyRules, SubPath
from webapp.api import (
    catalog,
    claims,
    csp_report,
    health,
    importing,
    openapi,
    probes,
    runs,
    search,
    serve,
    simulate,
    tokenizers,
    words,
)
from webapp.api import engine as engine_api
from webapp.claims.running import ClaimRunner
from webapp.computing import Computer
from webapp.errors import UnexpectedErrors, install_error_handlers
from webapp.jobs import Jobs
from webapp.live import routes as live_routes
from webapp.live.engine_port import EnginePort
from webapp.live.hub import LiveHub
from webapp.logging import AccessLog
from webapp.metrics import http as metrics_http
from webapp.metrics.collecting import Metrics
from webapp.metrics.observed_engine import ObservedEngine
from webapp.openai import routes as openai_routes
from webapp.openai.errors import OpenAIErrors
from webapp.origins import HostPolicy, OriginPolicy
from webapp.pages import (
    case_routes,
    kv_routes,
    layers_routes,
    lesson_fragments,
    lesson_routes,
    phases_routes,
    run_routes,
    search_routes,
    simulator_routes,
)
from webapp.pages import routes as page_routes
from webapp.prediction import StepPredictor
from webapp.problems import JsonResponse
from webapp.questions import Questions
from webapp.security_headers import SecurityHeaders
from webapp.settings import Settings
from webapp.simulations import SimulationRunner
from webapp.static_files import VersionedStaticFiles
from webapp.store.saved_runs import SavedRuns
from webapp.tokenizing import Tokenizing


def create_app(settings: Settings | None = None, engine: EnginePort | None = None) -> FastAPI:
    """The web service.

    ``engine`` defaults to a supervised worker process set up as ``settings`` say. It starts and
    stops with the app; pages are served while it loads.
    """
    settings = settings or Settings()
    metrics = Metrics()
    engine = ObservedEngine(engine or EngineClient(settings.engine_options), metrics)
    jobs = Jobs(settings)
    saved_runs = SavedRuns(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        await engine.start()
        try:
            yield
        finally:
            await jobs.close()
            await engine.stop()
            await saved_runs.close()

    app = FastAPI(
        title="First Token",
        version="1",
        lifespan=lifespan,
        default_response_class=JsonResponse,
        # The stock documentation pages load scripts from a CDN.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        generate_unique_id_function=_operation_id,
        middleware=_middleware(settings, metrics),
    )
    predictor = StepPredictor()
    app.state.settings = settings
    app.state.engine = engine
    app.state.metrics = metrics
    app.state.predictor = predictor
    app.state.live = LiveHub(engine, predictor, settings)
    app.state.simulations = SimulationRunner(settings)
    app.state.jobs = jobs
    app.state.runs = saved_runs
    app.state.computer = Computer(app.state.simulations)
    app.state.claims = ClaimRunner()
    app.state.questions = Questions(engine, settings)
    app.state.tokenizing = Tokenizing()
    app.state.csp_reports = csp_report.CspReports()
    install_error_handlers(app)
    app.include_router(health.router)
    app.include_router(_api(), prefix="/api/v1")
    app.include_router(metrics_http.router)
    app.include_router(openai_routes.router)
    app.include_router(csp_report.router)
    app.include_router(live_routes.router)
    app.include_router(page_routes.router)
    app.include_router(run_routes.router)
    app.include_router(simulator_routes.router)
    app.include_router(search_routes.router)
    app.include_router(lesson_routes.router)
    app.include_router(lesson_fragments.router)
    app.include_router(layers_routes.router)
    app.include_router(phases_routes.router)
    app.include_router(case_routes.router)
    app.include_router(kv_routes.router)
    app.mount("/static", VersionedStaticFiles(directory=settings.static_dir), name="static")
    return app


def _operation_id(route: APIRoute) -> str:
    return route.name


def _api() -> APIRouter:
    router = APIRouter()
    for module in (
        engine_api,
        probes,
        tokenizers,
        importing,
        catalog,
        simulate,
        search,
        runs,
        claims,
        words,
        openapi,
    ):
        router.include_router(module.router)
    router.include_router(serve.router)
    router.include_router(serve.jobs_router)
    return router


def _middleware(settings: Settings, metrics: Metrics) -> list[Middleware]:
    """Outermost first. Everything inside SecurityHeaders is answered with them."""
    return [
        Middleware(AccessLog),
        Middleware(SubPath, root_path=settings.root_path),
        Middleware(metrics_http.HttpDurations, metrics=metrics),
        Middleware(SecurityHeaders, root_path=settings.root_path),
        Middleware(GZipMiddleware, minimum_size=1024, compresslevel=5),
        Middleware(OpenAIErrors),
        Middleware(AllowedHosts, policy=HostPolicy(settings)),
        Middleware(UnexpectedErrors),
        Middleware(
            BodyRules,
            origins=OriginPolicy(settings),
            max_bytes=settings.max_body_bytes,
            timeout_s=settings.body_timeout_s,
            larger=dict.fromkeys(runs.BODY_PATHS, settings.run_max_bytes),
        ),
    ]
