# Made by Estrade for the platform react. To change it, save it as Dockerfile and choose the platform docker.

FROM node:22-slim AS build
ARG VITE_API
WORKDIR /app
ENV npm_config_cache=/var/cache/estrade/npm
ENV BUN_INSTALL_CACHE_DIR=/var/cache/estrade/bun
RUN npm install --global --force bun@1
COPY package.json bun.lock ./
RUN bun install --frozen-lockfile
COPY . ./
RUN bun run build
RUN ["/bin/sh","-c","for folder do if [ -e \"$folder/index.html\" ]; then mv -- \"$folder\" /site && exit 0; fi; done; echo \"there is no index.html in: $*\"; for page in */index.html .[!.]*/index.html */*/index.html .[!.]*/*/index.html */*/*/index.html; do case \"$page\" in *\"*\"*|node_modules/*) ;; *) echo \"an index.html is in: ${page%/index.html}\" ;; esac; done; echo folders that are here: */; exit 66","sh","web"]

FROM scratch
COPY --from=build /site /site
