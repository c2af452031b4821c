# Signoff's worker, gateway and codec server in one image: `signoff worker`, `signoff gateway`, `signoff codec`.
# A digest can be given: --build-arg PYTHON_IMAGE=python:3.13-slim@sha256:...
ARG PYTHON_IMAGE=python:3.13-slim
FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY . .
# Every file is checked against its hash. Signoff and what comes as source alone are built apart, so that the image holds
# no builders.
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --require-hashes -r tools/locks/build.txt \
    && /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /opt/wheels . \
    && /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --require-hashes --wheel-dir /opt/wheels \
        -r tools/locks/image.txt \
    && python -m venv /opt/signoff \
    && /opt/signoff/bin/pip install --no-cache-dir --no-deps --no-index /opt/wheels/*.whl

FROM ${PYTHON_IMAGE}
RUN useradd --system --create-home --home-dir /var/lib/signoff --uid 10001 signoff \
    # Where docker-compose.yml hands out keys: a new volume has the owner of the folder it is laid over.
    && install -d -o signoff -g signoff -m 700 /var/lib/signoff /var/lib/signoff-worker /var/lib/signoff-codec
COPY --from=build /opt/signoff /opt/signoff
COPY examples /app/examples
WORKDIR /app
ENV PATH=/opt/signoff/bin:$PATH PYTHONUNBUFFERED=1
USER signoff
VOLUME /var/lib/signoff
EXPOSE 8300 8301
ENTRYPOINT ["signoff"]
CMD ["gateway"]
