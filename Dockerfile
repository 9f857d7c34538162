# syntax=docker/dockerfile:1
# A static binary on nothing but the certificate authorities that TLS needs:
#   docker build --target worker -t millrace-worker .
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags="-s -w" -o /out/ ./cmd/worker

FROM scratch AS worker
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/worker /worker
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/worker"]
