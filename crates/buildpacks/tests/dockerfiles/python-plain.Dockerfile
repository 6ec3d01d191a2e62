# Made by Estrade for the platform python. To change it, save it as Dockerfile and choose the platform docker.

FROM python:3.13-slim
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
WORKDIR /app
ENV PYTHONUNBUFFERED=1
COPY --chown=10001:10001 . ./
ENV PORT=8000
EXPOSE 8000
USER 10001:10001
CMD ["python3","main.py"]
