# Carryover, and its simulated engines, in one static binary: docker build -t carryover .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /carryover ./cmd/carryover

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /carryover /carryover
USER 65532:65532
EXPOSE 8000
ENTRYPOINT ["/carryover"]
