import os
import socket
from pathlib import Path

from flask import Flask

VERSION = Path("version.txt").read_text().strip()
app = Flask(__name__)


@app.route("/")
def home():
    return f"{VERSION} {os.environ.get('WORD', '-')} {socket.gethostname()}"
