# One image for the controller, the brokers and the commands; a second target, `pipeline`, adds Java and Spark.
#   docker build --target barnabas -t barnabas .            docker build --target pipeline -t barnabas-pipeline .
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

# --- build: installs everything into one directory; pip is not part of the image -----------------------------------
FROM ${PYTHON_IMAGE} AS build
# pip's own settings, for builds behind a mirror or from a directory of wheels. Empty ones count as unset.
ARG PIP_INDEX_URL
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
ARG PIP_TRUSTED_HOST
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv --without-pip /opt/barnabas
# The compiler for setup.py.
RUN command -v gcc || { apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev; }
WORKDIR /source
# The dependencies first, in a separate layer: a change of the source does not download them again.
COPY setup.cfg pyproject.toml setup.py README.md LICENSE ./
COPY barnabas/__init__.py barnabas/
RUN BARNABAS_PURE=1 pip --python /opt/barnabas/bin/python install . && pip --python /opt/barnabas/bin/python uninstall --yes barnabas
COPY barnabas barnabas
COPY broker broker
COPY controller controller
COPY metrics metrics
# The build fails if the installed packages are not compiled.
RUN pip --python /opt/barnabas/bin/python install --no-deps . && /opt/barnabas/bin/barnabas --version | grep ', compiled$'

# --- base: user, directories, configuration and entry point ---------------------------------------------------------
FROM ${PYTHON_IMAGE} AS base
RUN useradd --uid 1000 --user-group --create-home barnabas \
    && install -d -o barnabas -g barnabas /var/lib/barnabas /etc/barnabas \
    # The owner of a new volume is that of the directory on which it is mounted (docker-compose.secure.yml).
    && install -d -o barnabas -g barnabas /secrets/authority /secrets/nodes /secrets/users/pipeline /secrets/pages \
       /secrets /secrets/users \
    && printf '%s\n' '# KAFKA_... variables set Kafka keys and override this file. Mount your own file over it.' \
        'log.dirs=/var/lib/barnabas' 'barnabas.metrics.host=0.0.0.0' 'barnabas.metrics.port=9404' \
        > /etc/barnabas/server.properties
ENV PATH=/opt/barnabas/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /var/lib/barnabas
VOLUME /var/lib/barnabas
USER barnabas
# The command execs the server, so the server is process 1 and gets the signal. SIGTERM is a controlled shutdown.
ENTRYPOINT ["barnabas"]
STOPSIGNAL SIGTERM

# --- barnabas: controller, broker or command ------------------------------------------------------------------------
FROM base AS barnabas
COPY --from=build /opt/barnabas /opt/barnabas
# 9092 clients, 19092 brokers and clients in the network, 9093 controller, 9404 /metrics, /healthz, /readyz
EXPOSE 9092 9093 9404 19092
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-I", "-m", "barnabas.common.pages.probe", "9404"]
CMD ["broker", "/etc/barnabas/server.properties"]

# --- pipeline-build: adds Spark -------------------------------------------------------------------------------------
FROM build AS pipeline-build
RUN pip --python /opt/barnabas/bin/python install '.[pipeline]' && /opt/barnabas/bin/barnabas --version | grep ', compiled$'

# --- pipeline: the Spark jobs, for an existing cluster --------------------------------------------------------------
FROM base AS pipeline
USER root
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o barnabas -g barnabas /opt/pipeline
COPY --from=pipeline-build /opt/barnabas /opt/barnabas
COPY pipeline /opt/pipeline/pipeline
USER barnabas
# Spark keeps artifacts in the working directory, so the user owns it.
WORKDIR /opt/pipeline
# Resolves Spark's Kafka connector, so that a run needs no repository.
RUN python -m pipeline.spark
ENTRYPOINT ["python", "-m", "pipeline.run", "--work-dir", "/var/lib/barnabas/run"]

