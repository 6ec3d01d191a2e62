export default defineEventHandler(() => "<title>Hello from Nitro</title>");
