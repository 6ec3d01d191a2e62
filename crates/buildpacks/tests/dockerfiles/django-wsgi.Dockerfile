# Made by Estrade for the platform django. To change it, save it as Dockerfile and choose the platform docker.

FROM python:3.11.9-slim AS build
WORKDIR /app
RUN python3 -m venv --system-site-packages /opt/venv
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
ENV VIRTUAL_ENV=/opt/venv
ENV PATH=/opt/venv/bin:$PATH
ENV PIP_CACHE_DIR=/var/cache/estrade/pip
COPY requirements.txt ./
RUN pip install -r requirements.txt
RUN pip install gunicorn
COPY . ./
RUN SECRET_KEY="${SECRET_KEY:-only-for-the-build}" DJANGO_SECRET_KEY="${DJANGO_SECRET_KEY:-only-for-the-build}" python3 manage.py collectstatic --noinput || { echo 'collectstatic failed. Variables of the project are not there during a build: give what the settings need in build.args, or set collectStatic to false.' >&2; exit 1; }

FROM python:3.11.9-slim
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
WORKDIR /app
ENV PYTHONUNBUFFERED=1
ENV PATH=/opt/venv/bin:$PATH
COPY --from=build /opt/venv /opt/venv
COPY --from=build --chown=10001:10001 /app ./
ENV PORT=8000
EXPOSE 8000
USER 10001:10001
CMD ["python3","-m","gunicorn","--threads","4","shop.wsgi:application"]
