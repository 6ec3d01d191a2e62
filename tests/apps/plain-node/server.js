const http = require("node:http");
const escape = require("escape-html");

const title = escape("Hello from Node.js");

const server = http.createServer((request, response) => {
  const found = request.url === "/";
  response.writeHead(found ? 200 : 404, { "Content-Type": "text/html" });
  response.end(found ? `<title>${title}</title>` : "Nothing here, says Node.js");
});
server.listen(process.env.PORT ?? 3000);
process.on("SIGTERM", () => server.close());
