# Made by Estrade for the platform laravel. To change it, save it as Dockerfile and choose the platform docker.

FROM php:8.4-apache AS base
RUN apt-get update && apt-get install -y --no-install-recommends libfreetype6-dev libjpeg62-turbo-dev libpng-dev libpq-dev libwebp-dev libzip-dev && rm -rf /var/lib/apt/lists/*
RUN docker-php-ext-configure gd --with-freetype --with-jpeg --with-webp
RUN docker-php-ext-install bcmath gd opcache pcntl pdo_mysql pdo_pgsql zip
RUN pecl install redis
RUN docker-php-ext-enable redis
RUN cp "$PHP_INI_DIR/php.ini-production" "$PHP_INI_DIR/php.ini"
RUN a2enmod rewrite headers && echo 'Listen ${PORT}' > /etc/apache2/ports.conf && printf '%s\n' '<VirtualHost *:${PORT}>' 'DocumentRoot ${APACHE_DOCUMENT_ROOT}' '<Directory ${APACHE_DOCUMENT_ROOT}>' 'Options -Indexes +FollowSymLinks' 'AllowOverride All' 'Require all granted' 'DirectoryIndex index.php index.html' '</Directory>' 'RedirectMatch 404 "/\.(?!well-known/)"' '</VirtualHost>' > /etc/apache2/sites-available/000-default.conf

FROM base AS build
RUN apt-get update && apt-get install -y --no-install-recommends git unzip && rm -rf /var/lib/apt/lists/*
COPY --from=composer:2 /usr/bin/composer /usr/local/bin/composer
ENV COMPOSER_ALLOW_SUPERUSER=1
ENV COMPOSER_CACHE_DIR=/var/cache/estrade/composer
WORKDIR /app
RUN mkdir -p bootstrap/cache storage/app/public storage/framework/cache/data storage/framework/sessions storage/framework/views storage/logs
COPY composer.json composer.lock ./
RUN composer install --no-interaction --no-progress --prefer-dist --no-scripts --no-autoloader --no-dev
COPY . ./
RUN composer dump-autoload --no-interaction --optimize --no-dev
RUN ln -sfn ../storage/app/public public/storage
RUN mkdir -p vendor /out && tar --exclude=./vendor -cf - . | tar -C /out -xf -

FROM node:22-slim AS assets
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY --from=build /app ./
RUN npm run build

FROM base
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
WORKDIR /app
ENV APACHE_DOCUMENT_ROOT=/app/public
COPY --from=build --chown=10001:10001 /app/vendor ./vendor
COPY --from=build --chown=10001:10001 /out ./
COPY --from=assets --chown=10001:10001 /app/public ./public
ENV PORT=80
EXPOSE 80
USER 10001:10001
CMD ["/bin/sh","-c","php artisan config:cache && php artisan route:cache && exec apache2-foreground"]
