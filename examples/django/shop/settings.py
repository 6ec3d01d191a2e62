import os

SECRET_KEY = os.environ.get("SECRET_KEY", "only for this sample")
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
