"""What handlers ask for; ``create_app`` puts it there."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from webapp.claims.bench import Bench
from webapp.claims.running import ClaimRunner
from webapp.computing import Computer
from webapp.i18n import texts
from webapp.jobs import Jobs
from webapp.live.engine_port import EnginePort
from webapp.prediction import StepPredictor
from webapp.questions import Questions
from webapp.rendering import language_of
from webapp.settings import Settings
from webapp.simulations import SimulationRunner
from webapp.store.saved_runs import SavedRuns
from webapp.tokenizing import Tokenizing
from webapp.waiting import Gone


def get_settings(request: Request) -> Settings:
    """The settings of this app."""
    return cast(Settings, request.app.state.settings)


def get_engine(request: Request) -> EnginePort:
    """The engine client of this app."""
    return cast(EnginePort, request.app.state.engine)


def get_predictor(request: Request) -> StepPredictor:
    """What predicts the steps of the running engine."""
    return cast(StepPredictor, request.app.state.predictor)


def get_simulations(request: Request) -> SimulationRunner:
    """What runs simulations beside the event loop."""
    return cast(SimulationRunner, request.app.state.simulations)


def get_jobs(request: Request) -> Jobs:
    """The long simulations of this app."""
    return cast(Jobs, request.app.state.jobs)


def get_computer(request: Request) -> Computer:
    """What answers larger questions beside the event loop."""
    return cast(Computer, request.app.state.computer)


def get_runs(request: Request) -> SavedRuns:
    """The saved runs of this app."""
    return cast(SavedRuns, request.app.state.runs)


def get_claim_runner(request: Request) -> ClaimRunner:
    """What runs the checks of claims."""
    return cast(ClaimRunner, request.app.state.claims)


def get_bench(request: Request) -> Bench:
    """The tools of such a check, in the reader's language."""
    return Bench(
        engine=get_engine(request),
        predictor=get_predictor(request),
        simulations=get_simulations(request),
        computer=get_computer(request),
        said=texts(language_of(request)),
    )


def get_questions(request: Request) -> Questions:
    """What asks the engine's worker."""
    return cast(Questions, request.app.state.questions)


def get_tokenizing(request: Request) -> Tokenizing:
    """What asks the stored vocabularies."""
    return cast(Tokenizing, request.app.state.tokenizing)


async def get_gone(request: Request) -> Gone:
    """Tells whether the asker has gone."""
    await (
        request.body()
    )  # else the first look would find the body, and not the end of the connection
    return request.is_disconnected


SettingsDep = Annotated[Settings, Depends(get_settings)]
EngineDep = Annotated[EnginePort, Depends(get_engine)]
PredictorDep = Annotated[StepPredictor, Depends(get_predictor)]
SimulationsDep = Annotated[SimulationRunner, Depends(get_simulations)]
JobsDep = Annotated[Jobs, Depends(get_jobs)]
ComputerDep = Annotated[Computer, Depends(get_computer)]
RunsDep = Annotated[SavedRuns, Depends(get_runs)]
ClaimsDep = Annotated[ClaimRunner, Depends(get_claim_runner)]
BenchDep = Annotated[Bench, Depends(get_bench)]
QuestionsDep = Annotated[Questions, Depends(get_questions)]
TokenizingDep = Annotated[Tokenizing, Depends(get_tokenizing)]
GoneDep = Annotated[Gone, Depends(get_gone)]
