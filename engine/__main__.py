"""``python -m engine``: generate, probe, quality, simulate, sweep, search, diagnose …"""

from __future__ import annotations

import typer

from engine.commands.calibrate import calibrate
from engine.commands.diagnose import diagnosis
from engine.commands.generate import generate
from engine.commands.import_model import import_model
from engine.commands.inspect import inspect
from engine.commands.measure import measure
from engine.commands.probe import probe
from engine.commands.quality import quality
from engine.commands.search import search
from engine.commands.serve import serve
from engine.commands.simulate import simulate
from engine.commands.sweep import sweep

app = typer.Typer(
    name="engine",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Help is plain text: rich would take the colons of uniform:100:900 for an emoji.
    rich_markup_mode=None,
    help="The engine of First Token: a real small model, and a roofline simulator of any model.",
)
app.command("generate")(generate)
app.command("probe")(probe)
app.command("quality")(quality)
app.command("simulate")(simulate)
app.command("serve")(serve)
app.command("sweep")(sweep)
app.command("search")(search)
app.command("diagnose")(diagnosis)
app.command("measure")(measure)
app.command("calibrate")(calibrate)
app.command("inspect")(inspect)
app.command("import")(import_model)

if __name__ == "__main__":
    app(prog_name="python -m engine")
