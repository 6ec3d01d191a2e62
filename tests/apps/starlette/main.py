from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route


async def hello(request):
    return HTMLResponse("<title>Hello from Starlette</title>")


app = Starlette(routes=[Route("/", hello)])
