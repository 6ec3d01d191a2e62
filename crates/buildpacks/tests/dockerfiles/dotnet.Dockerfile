# Made by Estrade for the platform dotnet. To change it, save it as Dockerfile and choose the platform docker.

FROM mcr.microsoft.com/dotnet/sdk:8.0 AS build
WORKDIR /app
COPY Directory.Build.props ./
COPY Lib/Lib.csproj Lib/
COPY ["Shop/My Shop.csproj","Shop/"]
RUN ["dotnet","restore","Shop/My Shop.csproj"]
COPY . ./
RUN ["dotnet","publish","Shop/My Shop.csproj","--configuration","Release","--output","/out","--no-restore"]

FROM mcr.microsoft.com/dotnet/aspnet:8.0
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
WORKDIR /app
COPY --from=build --chown=10001:10001 /out ./
ENV PORT=8080
EXPOSE 8080
USER 10001:10001
CMD ["/bin/sh","-c","ASPNETCORE_URLS=\"${ASPNETCORE_URLS:-http://+:$PORT}\" exec dotnet \"$1\"","sh","My Shop.dll"]
