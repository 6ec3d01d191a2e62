# Made by Estrade for the platform node. To change it, save it as Dockerfile and choose the platform docker.

FROM node:20-slim AS build
WORKDIR /app
ENV npm_config_cache=/var/cache/estrade/npm
COPY package.json package-lock.json ./
RUN npm ci --no-audit --no-fund --omit=dev
RUN mkdir -p node_modules

FROM node:20-slim
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
WORKDIR /app
ENV NODE_ENV=production
ENV PATH=/app/node_modules/.bin:$PATH
COPY --from=build --chown=10001:10001 /app/node_modules ./node_modules
COPY --chown=10001:10001 . ./
ENV PORT=3000
EXPOSE 3000
USER 10001:10001
CMD ["node","server.js"]
