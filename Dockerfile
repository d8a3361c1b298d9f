# Both programs and the bundled model in one image; compose.yaml runs it as two services.
FROM debian:bookworm-slim AS build
WORKDIR /src
COPY scripts/setup.sh scripts/build.sh scripts/shared.sh scripts/
RUN scripts/setup.sh && rm -rf /var/lib/apt/lists/*
COPY CMakeLists.txt ./
COPY common common
COPY cloud_server cloud_server
COPY edge_client edge_client
COPY scripts/link scripts/link
RUN scripts/build.sh

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends libvulkan1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --home-dir /var/cache/splitcompute --create-home splitcompute
COPY --from=build /src/build/bin/cloud_server /src/build/bin/edge_client /opt/splitcompute/bin/
COPY weights/demo /opt/splitcompute/weights/demo
ENV PATH=/opt/splitcompute/bin:$PATH XDG_CACHE_HOME=/var/cache/splitcompute
USER splitcompute
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s CMD \
    ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8080; printf 'GET /readyz HTTP/1.1\\r\\nHost: health\\r\\nConnection: close\\r\\n\\r\\n' >&3; read -r _ status _ <&3; [ \"$status\" = 200 ]"]
# Inside a container 127.0.0.1 is reachable by nobody else; who reaches the port is the network's to say.
CMD ["cloud_server", "--host", "0.0.0.0", "--insecure"]
