# First Token in a container, set up by the same script as everywhere else.
#
#   docker build -t firsttoken .                          CPU
#   docker build -t firsttoken --build-arg TORCH=cuda .   CUDA; run with --gpus all
#   docker run -p 8000:8000 -v firsttoken-state:/state firsttoken

FROM python:3.11.14-slim-bookworm AS build
ARG TORCH=cpu
ARG FIRSTTOKEN_TORCH_INDEX=
WORKDIR /app
# Packages first, sources later: a change of source does not install everything again. The empty
# packages only tell the installer their names.
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY .ci/install .ci/install
RUN mkdir engine webapp && touch engine/__init__.py webapp/__init__.py \
    && TORCH=$TORCH FIRSTTOKEN_TORCH_INDEX=$FIRSTTOKEN_TORCH_INDEX PIP_NO_CACHE_DIR=1 .ci/install
# Now the decode step, for the processor that builds the image. On another one it is not used, and
# the engine runs in torch alone.
COPY engine engine
RUN TORCH=$TORCH FIRSTTOKEN_TORCH_INDEX=$FIRSTTOKEN_TORCH_INDEX .ci/install

FROM python:3.11.14-slim-bookworm
RUN groupadd --gid 10001 firsttoken \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /state firsttoken \
    && install --directory --owner 10001 --group 10001 /state
WORKDIR /app
COPY --from=build /app/.venv .venv
COPY pyproject.toml README.md LICENSE ./
COPY engine engine
COPY webapp webapp
COPY templates templates
COPY static static
ENV PATH=/app/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    FIRSTTOKEN_STATE=/state
VOLUME /state
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
CMD ["python", "-m", "webapp", "--host", "0.0.0.0", "--port", "8000"]
