# Made by Estrade for the platform php. To change it, save it as Dockerfile and choose the platform docker.

FROM php:8.2-apache AS base
RUN apt-get update && apt-get install -y --no-install-recommends libicu-dev && rm -rf /var/lib/apt/lists/*
RUN docker-php-ext-install intl mysqli opcache pdo_mysql
RUN cp "$PHP_INI_DIR/php.ini-production" "$PHP_INI_DIR/php.ini"
RUN a2enmod rewrite headers && echo 'Listen ${PORT}' > /etc/apache2/ports.conf && printf '%s\n' '<VirtualHost *:${PORT}>' 'DocumentRoot ${APACHE_DOCUMENT_ROOT}' '<Directory ${APACHE_DOCUMENT_ROOT}>' 'Options -Indexes +FollowSymLinks' 'AllowOverride All' 'Require all granted' 'DirectoryIndex index.php index.html' '</Directory>' 'RedirectMatch 404 "/\.(?!well-known/)"' '</VirtualHost>' > /etc/apache2/sites-available/000-default.conf
RUN ["/bin/sh","-c","echo \"date.timezone=$1\" > \"$PHP_INI_DIR/conf.d/time-zone.ini\"","sh","Europe/Berlin"]

FROM base AS build
RUN apt-get update && apt-get install -y --no-install-recommends git unzip && rm -rf /var/lib/apt/lists/*
COPY --from=composer:2 /usr/bin/composer /usr/local/bin/composer
ENV COMPOSER_ALLOW_SUPERUSER=1
ENV COMPOSER_CACHE_DIR=/var/cache/estrade/composer
WORKDIR /app
COPY composer.json composer.lock ./
RUN composer install --no-interaction --no-progress --prefer-dist --no-scripts --no-autoloader --no-dev
COPY . ./
RUN composer dump-autoload --no-interaction --optimize --no-dev
RUN mkdir -p vendor /out && tar --exclude=./vendor -cf - . | tar -C /out -xf -

FROM base
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
ENV TZ=Europe/Berlin
WORKDIR /app
ENV APACHE_DOCUMENT_ROOT=/app/public
COPY --from=build --chown=10001:10001 /app/vendor ./vendor
COPY --from=build --chown=10001:10001 /out ./
ENV PORT=80
EXPOSE 80
USER 10001:10001
CMD ["apache2-foreground"]
