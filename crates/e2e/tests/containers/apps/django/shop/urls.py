import os
import socket
from pathlib import Path

from django.http import HttpResponse
from django.urls import path

VERSION = Path("version.txt").read_text().strip()


def home(request):
    text = f"{VERSION} {os.environ.get('WORD', '-')} {socket.gethostname()}"
    return HttpResponse(text, content_type="text/plain", headers={"Content-Length": len(text)})


urlpatterns = [path("", home)]
