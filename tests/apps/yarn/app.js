const Koa = require("koa");

const app = new Koa();
app.use(async (context, next) => {
  if (context.path !== "/") return next();
  context.body = "<title>Hello from Yarn</title>";
});

app.listen(process.env.PORT ?? 3000);
