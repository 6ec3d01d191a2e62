// @ts-check

/** @type {import('@docusaurus/types').Config} */
const config = {
  title: "Sample",
  url: "https://sample.example",
  baseUrl: "/",
  plugins: ["@docusaurus/plugin-content-pages"],
  themes: ["@docusaurus/theme-classic"],
};

export default config;
