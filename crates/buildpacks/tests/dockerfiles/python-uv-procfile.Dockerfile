# Made by Estrade for the platform python. To change it, save it as Dockerfile and choose the platform docker.

FROM python:3.12-slim AS build
WORKDIR /app
RUN python3 -m venv --system-site-packages /opt/venv
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
ENV VIRTUAL_ENV=/opt/venv
ENV PATH=/opt/venv/bin:$PATH
ENV PIP_CACHE_DIR=/var/cache/estrade/pip
ENV UV_CACHE_DIR=/var/cache/estrade/uv
RUN python3 -m venv /opt/tools
RUN /opt/tools/bin/pip install uv==0.13.8
COPY pyproject.toml uv.lock ./
RUN UV_PROJECT_ENVIRONMENT=/opt/venv UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never /opt/tools/bin/uv sync --locked --no-dev --no-install-project
COPY . ./

FROM python:3.12-slim
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
WORKDIR /app
ENV PYTHONUNBUFFERED=1
ENV PATH=/opt/venv/bin:$PATH
COPY --from=build /opt/venv /opt/venv
ENV PYTHONPATH=/app/src
COPY --from=build --chown=10001:10001 /app ./
ENV PORT=8000
EXPOSE 8000
USER 10001:10001
CMD ["/bin/sh","-c","exec gunicorn -b 0.0.0.0:$PORT shop.web:app"]
