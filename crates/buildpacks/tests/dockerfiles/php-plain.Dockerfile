# Made by Estrade for the platform php. To change it, save it as Dockerfile and choose the platform docker.

FROM php:8.4-apache AS base
RUN docker-php-ext-install mysqli opcache pdo_mysql
RUN cp "$PHP_INI_DIR/php.ini-production" "$PHP_INI_DIR/php.ini"
RUN a2enmod rewrite headers && echo 'Listen ${PORT}' > /etc/apache2/ports.conf && printf '%s\n' '<VirtualHost *:${PORT}>' 'DocumentRoot ${APACHE_DOCUMENT_ROOT}' '<Directory ${APACHE_DOCUMENT_ROOT}>' 'Options -Indexes +FollowSymLinks' 'AllowOverride All' 'Require all granted' 'DirectoryIndex index.php index.html' '</Directory>' 'RedirectMatch 404 "/\.(?!well-known/)"' '</VirtualHost>' > /etc/apache2/sites-available/000-default.conf

FROM base
RUN echo 'estrade:x:10001:10001::/home/estrade:/bin/sh' >> /etc/passwd && echo 'estrade:x:10001:' >> /etc/group && mkdir -p /home/estrade /app && chown 10001:10001 /home/estrade /app
WORKDIR /app
ENV APACHE_DOCUMENT_ROOT=/app
COPY --chown=10001:10001 . ./
ENV PORT=80
EXPOSE 80
USER 10001:10001
CMD ["apache2-foreground"]
