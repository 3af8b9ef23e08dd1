# Carryover, and its simulated engines, in one static binary that `make build` makes:
#
#   docker build --build-arg VERSION="$(git describe --tags --always --dirty)" -t carryover .
#
# It writes nothing, so that it runs with a read-only root (docker run --read-only --cap-drop ALL). Equal sources, version and Go
# give an equal binary, here and outside; scripts/compose checks that.
ARG GO_VERSION=1.26.8
FROM golang:${GO_VERSION}-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN make build VERSION="${VERSION}"

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/bin/carryover /carryover
USER 65532:65532
# Clients; operators, once --admin-listen=0.0.0.0:9480 with --admin-token-file lets them in: the default is on the container's loopback.
EXPOSE 8000 9480
# Only whether the process answers: what replaces unhealthy containers must not do so because engines are down.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 CMD ["/carryover", "probe", "http://127.0.0.1:8000/healthz"]
ENTRYPOINT ["/carryover"]
