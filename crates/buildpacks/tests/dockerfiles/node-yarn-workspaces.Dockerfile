# Made by Estrade for the platform node. To change it, save it as Dockerfile and choose the platform docker.

FROM node:22-slim AS build
WORKDIR /app
ENV npm_config_cache=/var/cache/estrade/npm
ENV YARN_GLOBAL_FOLDER=/var/cache/estrade/yarn
ENV YARN_NODE_LINKER=node-modules
RUN npm install --global --force @yarnpkg/cli-dist@4
COPY . ./
RUN yarn install --immutable
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
CMD ["node","a/x.js"]
