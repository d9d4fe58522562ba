# The demo and the explorer in a container:
#
#   docker build -t bagwise .
#   docker run --rm -p 127.0.0.1:8000:8000 bagwise
#
# Open the address that is printed; its token is all that protects the page, and the connection is not encrypted. Inside,
# the explorer listens on all addresses (--host 0.0.0.0), because that is how a container is reached. Keep the 127.0.0.1
# before the port: without it, everyone who can reach this machine can reach the explorer.
#
# A folder of yours:
#
#   docker run --rm -v "$PWD/photos:/data:ro" -v "$PWD/out:/home/user/out" bagwise \
#     .venv/bin/bagwise fit /data --out out/photos.bagwise
FROM python:3.12-slim

RUN apt-get update \
    && apt-get install -y --no-install-recommends make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home user

USER user
WORKDIR /home/user
COPY --chown=user:user pyproject.toml Makefile README.md LICENSE ./
COPY --chown=user:user src src
COPY --chown=user:user runtime runtime

# installs into .venv, compiles, and writes a model, an index and a report into bagwise-demo
RUN make demo

EXPOSE 8000
CMD [".venv/bin/bagwise", "explore", "bagwise-demo/digits.index", "--host", "0.0.0.0", "--port", "8000", "--no-open", "--read-only"]
