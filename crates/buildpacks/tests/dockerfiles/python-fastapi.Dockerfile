# Made by Estrade for the platform python. To change it, save it as Dockerfile and choose the platform docker.

FROM python:3.12.4-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev libpq-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /app
RUN python3 -m venv --system-site-packages /opt/venv
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
ENV VIRTUAL_ENV=/opt/venv
ENV PATH=/opt/venv/bin:$PATH
ENV PIP_CACHE_DIR=/var/cache/estrade/pip
COPY requirements.txt ./
COPY more/x.txt more/
RUN pip install -r requirements.txt
COPY . ./

FROM python:3.12.4-slim
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
RUN apt-get update && apt-get install -y --no-install-recommends libpq5 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
ENV PYTHONUNBUFFERED=1
ENV PATH=/opt/venv/bin:$PATH
COPY --from=build /opt/venv /opt/venv
COPY --from=build --chown=10001:10001 /app ./
ENV PORT=8000
EXPOSE 8000
USER 10001:10001
CMD ["/bin/sh","-c","exec python3 -m uvicorn main:app --host 0.0.0.0 --port \"$PORT\""]
