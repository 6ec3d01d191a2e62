# Made by Estrade for the platform flask. To change it, save it as Dockerfile and choose the platform docker.

FROM python:3.10-slim AS build
WORKDIR /app
RUN python3 -m venv --system-site-packages /opt/venv
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
ENV VIRTUAL_ENV=/opt/venv
ENV PATH=/opt/venv/bin:$PATH
ENV PIP_CACHE_DIR=/var/cache/estrade/pip
ENV PIPENV_CACHE_DIR=/var/cache/estrade/pipenv
RUN python3 -m venv /opt/tools
RUN /opt/tools/bin/pip install pipenv==2026.10.3
COPY Pipfile Pipfile.lock ./
RUN /opt/tools/bin/pipenv install --deploy
COPY . ./

FROM python:3.10-slim
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
WORKDIR /app
ENV PYTHONUNBUFFERED=1
ENV PATH=/opt/venv/bin:$PATH
COPY --from=build /opt/venv /opt/venv
COPY --from=build --chown=10001:10001 /app ./
ENV PORT=8000
EXPOSE 8000
USER 10001:10001
CMD ["python3","-m","gunicorn","--threads","4","shop:create_app()"]
