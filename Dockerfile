# The image solojob: the binary, and nothing else. Build it for each architecture,
#
#   docker build -t solojob .
#
# and take the binary into your own image:
#
#   COPY --from=solojob /solojob /solojob
#   ENTRYPOINT ["/solojob", "run", "--"]
#   CMD ["python", "report.py"]
#
# Certificates and time zones are in the binary, so the image may have neither.
# By itself the image runs the commands without a job: init, doctor, status, demo.

ARG GO_IMAGE=docker.io/library/golang:1.26

# The compiler runs on the machine that builds, whatever it builds for.
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
ARG TARGETOS=linux
ARG TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The binary is stamped with the commit. For a tree whose history git can't read,
# such as a worktree: --build-arg BUILDVCS=false. No endpoint of solojob speaks HTTP/2.
ARG BUILDVCS=auto
ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH GOFLAGS=-buildvcs=$BUILDVCS
RUN go build -trimpath -tags=nethttpomithttp2 -gcflags='github.com/...=-l' -ldflags='-s -w' -o /out/solojob .

FROM scratch
COPY --from=build /out/solojob /solojob
# Nobody in particular: the job's image says who the job is.
USER 65532:65532
ENTRYPOINT ["/solojob"]
