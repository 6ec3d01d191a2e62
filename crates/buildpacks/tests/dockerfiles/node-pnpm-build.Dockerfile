# Made by Estrade for the platform node. To change it, save it as Dockerfile and choose the platform docker.

FROM node:22-slim AS build
ARG TOKEN
WORKDIR /app
ENV npm_config_cache=/var/cache/estrade/npm
ENV npm_config_store_dir=/var/cache/estrade/pnpm
RUN npm install --global --force pnpm@9
COPY package.json .npmrc pnpm-lock.yaml ./
RUN pnpm install --frozen-lockfile
COPY . ./
RUN pnpm run build
RUN env CI=true pnpm prune --prod
RUN mkdir -p node_modules /out && tar --exclude=./node_modules -cf - . | tar -C /out -xf -

FROM node:22-slim
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
WORKDIR /app
RUN npm install --global --force pnpm@9
ENV NODE_ENV=production
ENV PATH=/app/node_modules/.bin:$PATH
COPY --from=build --chown=10001:10001 /app/node_modules ./node_modules
COPY --from=build --chown=10001:10001 /out ./
ENV PORT=3000
EXPOSE 3000
USER 10001:10001
CMD ["pnpm","run","start"]
