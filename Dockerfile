# The demo on a local Spark, as a user without privileges. It opens no port.
#   docker build -t penstock . && docker run --rm penstock
# Other commands: docker run --rm penstock penstock doctor
FROM python:3.12-slim

RUN useradd --create-home penstock
COPY pyproject.toml README.md LICENSE /src/
COPY penstock /src/penstock
RUN pip install --no-cache-dir '/src[spark,java]' && rm -r /src

USER penstock
WORKDIR /home/penstock
# Compiles the kernels once, into the user's cache folder.
RUN penstock demo --embedded
CMD ["penstock", "demo"]
