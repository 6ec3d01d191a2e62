import Fastify from "fastify";

const app = Fastify();
app.get("/", (request, reply) => reply.type("text/html").send("<title>Hello from Fastify</title>"));

await app.listen({ port: process.env.PORT ?? 3000, host: "0.0.0.0" });
