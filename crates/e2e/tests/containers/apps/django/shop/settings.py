from pathlib import Path

SECRET_KEY = "only for a test"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop.urls"
STATIC_URL = "/static/"
STATIC_ROOT = Path(__file__).resolve().parent.parent / "collected"
INSTALLED_APPS = ["django.contrib.staticfiles"]
