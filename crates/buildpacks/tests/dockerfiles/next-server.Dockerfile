# Made by Estrade for the platform next. To change it, save it as Dockerfile and choose the platform docker.

FROM node:22-slim AS build
WORKDIR /app
ENV NEXT_TELEMETRY_DISABLED=1
ENV npm_config_cache=/var/cache/estrade/npm
COPY package.json package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY . ./
RUN npm run build
RUN rm -rf .next/cache
RUN npm prune --omit=dev --no-audit --no-fund
RUN mkdir -p node_modules /out && tar --exclude=./node_modules -cf - . | tar -C /out -xf -

FROM node:22-slim
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
WORKDIR /app
ENV NODE_ENV=production
ENV PATH=/app/node_modules/.bin:$PATH
COPY --from=build --chown=10001:10001 /app/node_modules ./node_modules
COPY --from=build --chown=10001:10001 /out ./
ENV PORT=3000
EXPOSE 3000
USER 10001:10001
CMD ["next","start"]
