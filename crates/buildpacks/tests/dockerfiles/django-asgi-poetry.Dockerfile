# Made by Estrade for the platform django. To change it, save it as Dockerfile and choose the platform docker.

FROM python:3.13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gettext && rm -rf /var/lib/apt/lists/*
WORKDIR /app
RUN python3 -m venv --system-site-packages /opt/venv
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
ENV VIRTUAL_ENV=/opt/venv
ENV PATH=/opt/venv/bin:$PATH
ENV PIP_CACHE_DIR=/var/cache/estrade/pip
ENV POETRY_CACHE_DIR=/var/cache/estrade/poetry
RUN python3 -m venv /opt/tools
RUN /opt/tools/bin/pip install poetry==2.5.1
COPY pyproject.toml poetry.lock ./
RUN /opt/tools/bin/poetry install --only main --no-root --no-interaction
COPY . ./
WORKDIR /app/backend
ENV DJANGO_SETTINGS_MODULE=shop.settings.live
RUN python3 manage.py compilemessages
RUN SECRET_KEY="${SECRET_KEY:-only-for-the-build}" DJANGO_SECRET_KEY="${DJANGO_SECRET_KEY:-only-for-the-build}" python3 manage.py collectstatic --noinput || { echo 'collectstatic failed. Variables of the project are not there during a build: give what the settings need in build.args, or set collectStatic to false.' >&2; exit 1; }

FROM python:3.13-slim
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
WORKDIR /app
ENV PYTHONUNBUFFERED=1
ENV PATH=/opt/venv/bin:$PATH
COPY --from=build /opt/venv /opt/venv
ENV DJANGO_SETTINGS_MODULE=shop.settings.live
COPY --from=build --chown=10001:10001 /app ./
WORKDIR /app/backend
ENV PORT=8000
EXPOSE 8000
USER 10001:10001
CMD ["python3","-m","gunicorn","--worker-class","uvicorn.workers.UvicornWorker","shop.asgi:application"]
