const fs = require("fs");
const http = require("http");
const os = require("os");

const version = fs.readFileSync("version.txt", "utf8").trim();

http
  .createServer((request, response) => {
    const text = `${version} ${process.env.WORD || "-"} ${os.hostname()}`;
    response.writeHead(200, { "Content-Type": "text/plain", "Content-Length": text.length });
    response.end(text);
  })
  .listen(process.env.PORT);
