# Made by Estrade for the platform next. To change it, save it as Dockerfile and choose the platform docker.

FROM node:22-slim AS build
WORKDIR /app
ENV NEXT_TELEMETRY_DISABLED=1
ENV npm_config_cache=/var/cache/estrade/npm
ENV YARN_CACHE_FOLDER=/var/cache/estrade/yarn
RUN npm install --global --force yarn@1
COPY package.json yarn.lock ./
RUN yarn install --frozen-lockfile
COPY . ./
RUN yarn run build
RUN rm -rf .next/cache

FROM node:22-slim
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
WORKDIR /app
ENV NODE_ENV=production
ENV PATH=/app/node_modules/.bin:$PATH
ENV HOSTNAME=0.0.0.0
COPY --from=build --chown=10001:10001 /app/.next/standalone ./
COPY --from=build --chown=10001:10001 /app/.next/static ./.next/static
COPY --from=build --chown=10001:10001 /app/public ./public
ENV PORT=3000
EXPOSE 3000
USER 10001:10001
CMD ["node","server.js"]
