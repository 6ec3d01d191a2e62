from fastapi import FastAPI
from fastapi.responses import HTMLResponse

app = FastAPI()


@app.get("/", response_class=HTMLResponse)
async def hello():
    return "<title>Hello from FastAPI and uv</title>"
