# Made by Estrade for the platform next. To change it, save it as Dockerfile and choose the platform docker.

FROM node:22-slim AS build
WORKDIR /app
ENV NEXT_TELEMETRY_DISABLED=1
ENV npm_config_cache=/var/cache/estrade/npm
COPY package.json ./
RUN npm install --no-audit --no-fund
COPY . ./
RUN npm run build
RUN rm -rf .next/cache
RUN ["/bin/sh","-c","for folder do if [ -e \"$folder/index.html\" ]; then mv -- \"$folder\" /site && exit 0; fi; done; echo \"there is no index.html in: $*\"; for page in */index.html .[!.]*/index.html */*/index.html .[!.]*/*/index.html */*/*/index.html; do case \"$page\" in *\"*\"*|node_modules/*) ;; *) echo \"an index.html is in: ${page%/index.html}\" ;; esac; done; echo folders that are here: */; exit 66","sh","out"]

FROM scratch
COPY --from=build /site /site
