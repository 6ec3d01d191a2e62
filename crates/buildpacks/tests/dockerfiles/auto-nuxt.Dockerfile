# Made by Estrade for the platform auto. To change it, save it as Dockerfile and choose the platform docker.

FROM node:22-slim AS build
WORKDIR /app
ENV NUXT_TELEMETRY_DISABLED=1
ENV npm_config_cache=/var/cache/estrade/npm
COPY package.json package-lock.json ./
RUN npm pkg delete scripts.postinstall
RUN npm ci --no-audit --no-fund
COPY . ./
RUN npm run postinstall
RUN npm run build

FROM node:22-slim
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
WORKDIR /app
ENV NODE_ENV=production
ENV PATH=/app/node_modules/.bin:$PATH
ENV HOST=0.0.0.0
COPY --from=build --chown=10001:10001 /app/.output ./.output
ENV PORT=3000
EXPOSE 3000
USER 10001:10001
CMD ["node",".output/server/index.mjs"]
