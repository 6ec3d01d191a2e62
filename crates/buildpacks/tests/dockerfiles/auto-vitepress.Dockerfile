# Made by Estrade for the platform auto. To change it, save it as Dockerfile and choose the platform docker.

FROM node:22-slim AS build
WORKDIR /app
ENV npm_config_cache=/var/cache/estrade/npm
COPY package.json package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY . ./
RUN npm run docs:build
RUN ["/bin/sh","-c","for folder do if [ -e \"$folder/index.html\" ]; then mv -- \"$folder\" /site && exit 0; fi; done; echo \"there is no index.html in: $*\"; for page in */index.html .[!.]*/index.html */*/index.html .[!.]*/*/index.html */*/*/index.html; do case \"$page\" in *\"*\"*|node_modules/*) ;; *) echo \"an index.html is in: ${page%/index.html}\" ;; esac; done; echo folders that are here: */; exit 66","sh","docs/.vitepress/dist","dist","build","out","_site",".output/public","www","public/build"]

FROM scratch
COPY --from=build /site /site
