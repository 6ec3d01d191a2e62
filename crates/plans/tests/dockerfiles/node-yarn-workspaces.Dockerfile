# Made by Estrade for the platform node. To change it, save it as Dockerfile and choose the platform docker.

FROM node:22-slim AS build
WORKDIR /app
RUN npm install --global --force @yarnpkg/cli-dist@4
COPY . ./
RUN yarn install --immutable

FROM node:22-slim
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
WORKDIR /app
RUN npm install --global --force @yarnpkg/cli-dist@4
ENV NODE_ENV=production
ENV PATH=/app/node_modules/.bin:$PATH
COPY --from=build --chown=10001:10001 /app ./
ENV PORT=3000
EXPOSE 3000
USER 10001:10001
CMD ["yarn","run","start"]
