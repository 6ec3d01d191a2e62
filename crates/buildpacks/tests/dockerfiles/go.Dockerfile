# Made by Estrade for the platform go. To change it, save it as Dockerfile and choose the platform docker.

FROM golang:1.22 AS build
WORKDIR /app
ENV GOMODCACHE=/var/cache/estrade/go/modules
ENV GOCACHE=/var/cache/estrade/go/build
ENV CGO_ENABLED=0
COPY go.mod go.sum ./
RUN go mod download
COPY . ./
RUN go build -trimpath -ldflags=-s -tags=timetzdata -o /out/app ./cmd/server
RUN mkdir -p /out/etc/ssl/certs && if [ -f /etc/ssl/certs/ca-certificates.crt ]; then cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/; fi

FROM debian:trixie-slim
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
WORKDIR /app
COPY --from=build /out/etc/ /etc/
COPY --from=build /out/app /usr/local/bin/app
COPY --chown=10001:10001 . ./
ENV PORT=8080
EXPOSE 8080
USER 10001:10001
CMD ["/usr/local/bin/app"]
