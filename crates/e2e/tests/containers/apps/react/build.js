const fs = require("fs");
const title = require("titles");

const version = fs.readFileSync("version.txt", "utf8").trim();
fs.mkdirSync("dist/assets", { recursive: true });
fs.writeFileSync("dist/index.html", `<title>${title}</title><p>${version} ${process.env.API_URL}</p>`);
fs.writeFileSync("dist/assets/app.js", `console.log("${version}")`);
console.log("built", version);
