# Made by Estrade for the platform next. To change it, save it as Dockerfile and choose the platform docker.

FROM node:22-slim AS build
WORKDIR /app
ENV NEXT_TELEMETRY_DISABLED=1
COPY package.json ./
RUN npm install --no-audit --no-fund
COPY . ./
RUN npm run build
RUN rm -rf .next/cache
RUN ["/bin/sh","-c","for folder do if [ -e \"$folder/index.html\" ]; then mv -- \"$folder\" /site && exit 0; fi; done; echo \"there is no index.html in: $*\" >&2; echo 'set platformConfig.outputDir to the folder that the build writes' >&2; exit 66","sh","out"]

FROM scratch
COPY --from=build /site /site
