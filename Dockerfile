# The program everonce, for the proxy beside a service: docs/how-to/run-in-containers.md.
FROM golang:1.26 AS build
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 go build -ldflags="-s -w" -o /everonce ./cmd/everonce

FROM gcr.io/distroless/static-debian13:nonroot
COPY --from=build /everonce /everonce
ENTRYPOINT ["/everonce"]
