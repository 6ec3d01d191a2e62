const http = require('node:http');
const greeting = require('greeting');

const server = http.createServer((request, response) => {
  console.log(`visited ${request.url}`);
  response.end(greeting);
});
server.listen(3000, () => console.log('the Node server listens'));
process.on('SIGTERM', () => server.close());
