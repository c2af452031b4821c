# Signoff's worker, gateway and codec server in one image: `signoff worker`, `signoff gateway`, `signoff codec`.
FROM python:3.13-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/signoff \
    && /opt/signoff/bin/pip install --no-cache-dir -c constraints.txt \
        '.[openai,anthropic,postgres,mail,slack,apprise,oidc,mcp,metrics,otel]' aiosqlite

FROM python:3.13-slim
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
