# Made by Estrade for the platform node. To change it, save it as Dockerfile and choose the platform docker.

FROM node:18-slim
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
RUN apt-get update && apt-get install -y --no-install-recommends ffmpeg && rm -rf /var/lib/apt/lists/*
ENV TZ=Asia/Tehran
WORKDIR /app
ENV NODE_ENV=production
ENV PATH=/app/node_modules/.bin:$PATH
COPY --chown=10001:10001 . ./
ENV PORT=3000
EXPOSE 3000
USER 10001:10001
CMD ["node","index.js"]
