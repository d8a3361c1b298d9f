# Both programs and the bundled model in one image; compose.yaml runs it as services. It computes on the CPU: it holds no Vulkan driver.
FROM debian:bookworm-slim AS build
WORKDIR /src
COPY scripts/setup.sh scripts/build.sh scripts/shared.sh scripts/
RUN scripts/setup.sh && rm -rf /var/lib/apt/lists/*
COPY CMakeLists.txt ./
COPY common common
COPY cloud_server cloud_server
COPY edge_client edge_client
COPY scripts/link scripts/link
# The source's revision, for split_build_info: docker build --build-arg REVISION=$(git rev-parse --short HEAD)
ARG REVISION=unknown
RUN SPLIT_REVISION=$REVISION scripts/build.sh programs edge_train

FROM debian:bookworm-slim
ARG REVISION=unknown
LABEL org.opencontainers.image.title="SplitCompute" \
      org.opencontainers.image.description="One language model run by a server and an edge together; CPU only" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="$REVISION"
# ca-certificates: an edge in a container trusts public servers.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libvulkan1 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 splitcompute \
    && useradd --uid 10001 --gid 10001 --home-dir /var/cache/splitcompute --create-home splitcompute
COPY --from=build /src/build/bin/cloud_server /src/build/bin/edge_client /src/build/bin/edge_train /opt/splitcompute/bin/
COPY weights/demo /opt/splitcompute/weights/demo
# Inside a container 127.0.0.1 is reachable by nobody else; who reaches the port is the network's to say. A stop ends within the ten
# seconds that an engine gives it. As variables, so that the health check knows them too.
ENV PATH=/opt/splitcompute/bin:$PATH XDG_CACHE_HOME=/var/cache/splitcompute SPLIT_HOST=0.0.0.0 SPLIT_INSECURE=1 SPLIT_SHUTDOWN_TIMEOUT=7
# A number, so that runAsNonRoot can tell.
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s CMD ["cloud_server", "--healthcheck"]
CMD ["cloud_server"]
